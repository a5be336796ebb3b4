#pragma once
// What is in a checkpoint, and what is wrong with it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/executor.h"
#include "subbyte/status.h"

namespace subbyte {
struct ModelConfig;  // of the library's own layers
}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

/// Called with the bytes done and in all.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

/// kError: loaders refuse it, or the model is not the one that was saved. kWarning: it loads, and
/// something is odd. kNote: a fact worth knowing about a sound checkpoint.
enum class Severity : uint8_t { kError, kWarning, kNote };

std::string_view name(Severity severity);  // "error"

struct Finding {
  std::string code = {};  // "verify.scale_zero", or that of a loader: "import.shape"
  Severity severity = Severity::kError;
  std::string where = {};     // a tensor; a module when its tensors are missing; or a file
  std::string expected = {};  // empty when `found` says it all
  std::string found = {};
};

/// For people: "expected 2 groups, found 3".
std::string to_string(const Finding& finding);

struct VerifyOptions {
  bool checksums = false;                  // SHA-256 of every tensor, too
  std::shared_ptr<Executor> threads = {};  // nullptr: the library's own
  Progress progress = {};                  // with checksums the bytes are read twice
};

struct VerifyReport {
  std::string architecture = {};  // "qwen3"; empty for a lone safetensors file
  std::string quantization = {};  // "awq", "none"; "unknown" when config.json does not tell
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;                                 // of all tensors
  std::vector<Finding> findings = {};                 // errors first, notes last
  std::map<std::string, std::string> checksums = {};  // by tensor, 64 hexadecimal digits

  int64_t count(Severity severity) const;
  /// Nothing says that this version does not run what else is sound: an architecture or a tokenizer
  /// that it does not know, or no tokenizer.
  bool is_run_here() const;
  /// Its architecture and its tokenizer are none that this version does not know.
  bool is_known() const;
  /// No errors, and known well enough to say so; a tokenizer may be missing.
  bool is_sound() const;
};

/// Reads a whole checkpoint, weights included, and lists what is wrong with it: a model directory,
/// a model file of OrinMLLM, or a safetensors file, of which only the container and the numbers are
/// looked at. docs/verify.md lists what can be found. Codes, for what cannot be opened at all:
/// model.not_found, file.*, index.*.
Result<VerifyReport> verify(const std::filesystem::path& model, const VerifyOptions& options = {});

struct InspectedWeight {
  std::string name = {};     // of the module ("model.layers.0.mlp.up_proj") or of the tensor
  std::string flavour = {};  // "awq", "gptq", "mxfp4", "dense"; "tensor" for what is no matrix
  std::string format = {};   // "u4 g128 scale f16 zero u8", "bf16"
  std::vector<uint64_t> shape = {};  // [outputs, inputs] or [experts, outputs, inputs]
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // in the files, with scales, zero points and order
  bool act_order = false;

  double bits_per_weight() const;
};

/// Facts of a GGUF file that config.json has no words for.
struct InspectedGguf {
  struct Type {
    std::string name = {};  // "Q4_K"
    int64_t tensors = 0;
    uint64_t bytes = 0;
  };

  std::string architecture = {};   // general.architecture: "qwen3moe"
  std::vector<Type> types = {};    // the one with most bytes first
  std::string tokenizer = {};      // tokenizer.ggml.model: "gpt2"; empty without a tokenizer
  std::string pre_tokenizer = {};  // tokenizer.ggml.pre: "qwen2"
  uint64_t tokens = 0;
  uint64_t memory_bytes = 0;  // of all tensors in the form that processors multiply
};

/// The contents of a checkpoint, from its headers, g_idx and, unless they are large, the scales.
struct Inspection {
  using Weight = InspectedWeight;

  std::string architecture = {};                  // "qwen3"; empty for a lone safetensors file
  std::string quantization = {};                  // "awq", "none", "gguf"
  std::optional<InspectedGguf> gguf = {};         // of a GGUF file
  std::shared_ptr<const ModelConfig> model = {};  // where this version runs the architecture
  std::vector<std::string> problems = {};         // not understood, or contradicts itself
  std::vector<std::string> notes = {};            // what it lacks for text: a tokenizer
  std::vector<InspectedWeight> weights = {};
  std::vector<std::string> files = {};
  uint64_t parameters = 0;
  uint64_t bytes = 0;
  uint64_t scale_bytes = 0;  // of them, those of scales
  int64_t unread = 0;        // tensors of other parts than the text model
  bool reads_scales = true;  // whether what loading refuses of them is among the problems

  /// Bits of a weight on average; 0 without weights.
  double bits_per_weight() const;
  /// Says whether `parameters` is the number of weights: without a config that is understood nobody
  /// says what is packed into integers.
  bool knows_weights() const;
  /// Says whether texts can be generated with it: there are no problems and it lacks nothing.
  bool is_run_here() const;
};

/// Weights that no flavour accepts are listed as plain tensors, and `problems` says why. Codes: as
/// those of verify(), json.*, config.*.
Result<Inspection> inspect(const std::filesystem::path& model,
                           std::shared_ptr<Executor> threads = nullptr);

SUBBYTE_END_NAMESPACE
