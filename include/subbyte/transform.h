#pragma once
// Whole checkpoints: what is in them, what is wrong with them, and others that are made of them.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/checkpoint.h"

SUBBYTE_BEGIN_WRAPPED_NAMESPACE

/// Called with the bytes done and in all.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

/// The matrix that lost most when it was written.
struct WorstLoss {
  std::string name;  // empty where nothing lost anything
  double signal_to_noise_db = std::numeric_limits<double>::infinity();
};

// --- Quantizing ----------------------------------------------------------------------------------

struct QuantizeOptions {
  /// One of weight_quantizations() of quantize.h.
  std::string format = "awq";
  std::optional<double> bits = {};         // 3.4 is the mean of widths that are chosen for matrices
  std::optional<int64_t> group_size = {};  // inputs that share a scale; 0: the whole row
  std::optional<bool> symmetric = {};      // no zero points
  std::vector<std::string> ignore = {};    // names of modules, or "re:" and a pattern: stay floats
  bool head = false;                       // the head is quantized, too
  bool embedding = false;                  // and the embedding
  bool experts_only = false;               // nothing but experts is
  bool allow_lossy = false;                // also where little is left of a matrix
  uint64_t shard_bytes = 0;                // of a file at most; 0: as the source has it
  std::shared_ptr<Executor> threads = {};  // nullptr: the library's own
  Progress progress = {};
};

struct QuantizeReport {
  std::string format;
  int64_t group_size = 0;
  bool symmetric = false;
  int64_t quantized_matrices = 0;
  int64_t kept_tensors = 0;
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  std::map<int, int64_t> matrices_of_bits;  // how many have codes of so many bits
  double bits_per_weight = 0;     // of the quantized matrices, with scales and zero points
  double signal_to_noise_db = 0;  // of all of them; infinite without errors
  WorstLoss worst;
};

/// Reads an unquantized model and writes a quantized directory, which appears at `destination`
/// whole or not at all, and only after verify() has read it. A run that was stopped is gone on
/// with. Identical bytes for any number of threads. Codes: quantize.*, model.*, config.*, import.*,
/// export.*, file.*.
Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options = {});

// --- Converting ----------------------------------------------------------------------------------

struct ConvertOptions {
  std::string format;        // one of conversion_formats()
  bool allow_lossy = false;  // scales and dequantized weights may be rounded
  uint64_t shard_bytes = uint64_t{4} << 30;
  std::shared_ptr<Executor> threads = {};  // nullptr: the library's own
  Progress progress = {};
};

struct ConvertReport {
  std::string format;  // that was chosen
  int64_t converted_matrices = 0;
  int64_t kept_tensors = 0;
  int64_t rounded_matrices = 0;  // 0: every weight is what it was, to the bit
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  double signal_to_noise_db = std::numeric_limits<double>::infinity();  // of the rounded ones
  WorstLoss worst;
};

/// The names: "awq", "gptq", "compressed-tensors", ..., "f32", "bf16", "f16".
std::vector<std::string> conversion_formats();

/// Stores the same weights in another format, without loss unless that is allowed; what cannot be
/// said exactly is refused, naming the tensor. The result appears as that of quantize_model().
/// Codes: convert.*, recast.*, export.*, import.*, model.*, file.*.
Result<ConvertReport> convert_model(const std::filesystem::path& source,
                                    const std::filesystem::path& destination,
                                    const ConvertOptions& options);

// --- Looking at checkpoints ----------------------------------------------------------------------

/// kError: loaders refuse it, or the model is not the one that was saved. kWarning: it loads, and
/// something is odd. kNote: a fact worth knowing about a sound checkpoint.
enum class Severity : uint8_t { kError, kWarning, kNote };

struct Finding {
  std::string code;  // "verify.scale_zero", or that of a loader: "import.shape"
  Severity severity = Severity::kError;
  std::string where;     // a tensor, a module or a file
  std::string expected;  // empty when `found` says it all
  std::string found;
};

/// For people: "expected 2 groups, found 3".
std::string to_string(const Finding& finding);

struct VerifyOptions {
  bool checksums = false;                  // SHA-256 of every tensor, too
  std::shared_ptr<Executor> threads = {};  // nullptr: the library's own
  Progress progress = {};
};

struct VerifyReport {
  std::string architecture;  // "qwen3"; empty for a lone safetensors file
  std::string quantization;  // "awq", "none"; "unknown" when config.json does not tell
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;                            // of all tensors
  std::vector<Finding> findings;                 // errors first, notes last
  std::map<std::string, std::string> checksums;  // by tensor, 64 hexadecimal digits

  int64_t count(Severity severity) const;
};

/// Reads a whole checkpoint, weights included, and lists what is wrong with it. Codes, for what
/// cannot be opened at all: model.not_found, file.*, index.*.
Result<VerifyReport> verify(const std::filesystem::path& model, const VerifyOptions& options = {});

/// The contents of a checkpoint, from its headers.
struct Inspection {
  struct Weight {
    std::string name;             // of the module or of the tensor
    std::string flavour;          // "awq", "dense", ...; "tensor" for what is no matrix
    std::string format;           // "u4 g128 scale f16 zero u8", "bf16"
    std::vector<uint64_t> shape;  // [outputs, inputs] or [experts, outputs, inputs]
    uint64_t parameters = 0;
    uint64_t bytes = 0;  // in the files, with scales, zero points and order
    bool act_order = false;
  };

  std::string architecture;
  std::string quantization;
  std::vector<std::string> problems;  // what was not understood or contradicts itself
  std::vector<std::string> notes;     // what it lacks for text: a tokenizer
  std::vector<Weight> weights;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

Result<Inspection> inspect(const std::filesystem::path& model,
                           std::shared_ptr<Executor> threads = nullptr);

/// Two versions of one weight.
struct ComparedWeight {
  enum class Verdict : uint8_t {
    kSameBytes,
    kSameValues,  // stored differently, the same numbers
    kDifferent,
    kShape,  // not comparable: sizes or types differ
    kOnlyFirst,
    kOnlySecond
  };

  std::string name;
  Verdict verdict = Verdict::kSameBytes;
  std::string first;  // how it is stored: "awq [64, 32]"; empty where it is missing
  std::string second;
  double max_difference = 0;
  double signal_to_noise_db = std::numeric_limits<double>::infinity();
};

struct ModelDiff {
  std::vector<ComparedWeight> weights;  // by name

  /// Says whether nothing is missing and all numbers are the same.
  bool same_values() const;
};

/// Compares the weights of two models, however they store them.
Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second,
                              std::shared_ptr<Executor> threads = nullptr);

SUBBYTE_END_NAMESPACE
