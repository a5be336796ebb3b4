#pragma once
// What is wrong with a checkpoint. Every tensor is read, weights included, and a problem with one
// does not keep the others from being looked at. docs/verify.md lists what can be found.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "subbyte/executor.h"

namespace subbyte {

/// kError: loaders refuse it, or the model is not the one that was saved. kWarning: it loads, and
/// something is odd. kNote: a fact worth knowing about a sound checkpoint.
enum class Severity : uint8_t { kError, kWarning, kNote };

std::string_view name(Severity severity);  // "error"

struct Finding {
  std::string_view code;  // "verify.scale_zero", or that of a loader: "import.shape"
  Severity severity;
  std::string where;     // a tensor; a module when its tensors are missing; or a file
  std::string expected;  // empty when `found` says it all
  std::string found;
};

/// For people: "expected 2 groups, found 3".
std::string to_string(const Finding& finding);

struct TensorChecksum {
  std::string tensor;
  std::string sha256;  // of its bytes in the file, 64 hexadecimal digits
};

struct VerifyReport {
  std::string architecture;  // "qwen3"; empty for a lone safetensors file
  std::string quantization;  // "awq", "none"; "unknown" when config.json does not tell
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;                     // of all tensors
  std::vector<Finding> findings;          // errors first, notes last
  std::vector<TensorChecksum> checksums;  // by name, when asked for

  std::size_t count(Severity severity) const;
  /// Nothing says that this version does not run what else is sound: an architecture or a tokenizer
  /// that it does not know, or no tokenizer.
  bool is_run_here() const;
  /// Its architecture and its tokenizer are none that this version does not know.
  bool is_known() const;
  /// No errors, and known well enough to say so; a tokenizer may be missing.
  bool is_sound() const;
};

struct VerifyOptions {
  bool checksums = false;
  /// Called with the bytes read so far and in all; with checksums they are read twice.
  LoadProgress progress = nullptr;
  /// If given, it computes in the memory of the host, and what keeps the model of a directory or a
  /// model file from running there is a finding.
  Backend* backend = nullptr;
};

/// `path` is a model directory, a model file of OrinMLLM (its header stands for config.json, other
/// files lie beside it), or a safetensors file, of which only the container and the numbers
/// are looked at. The report is the same for any number of threads; at most one module is in memory
/// at a time. Codes, for what cannot be opened at all: file.*, index.no_checkpoint,
/// index.pickle_only; file.changed when it is written to meanwhile.
Result<VerifyReport> verify(const std::filesystem::path& path, const VerifyOptions& options,
                            Executor& pool);

}  // namespace subbyte
