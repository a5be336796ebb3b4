#pragma once
// Checkpoints that are made of others, and how far two are apart.

#include <cmath>
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

#include "subbyte/verify.h"

namespace subbyte {  // of the library's own layers
struct QuantizeForm;
struct QuantizeFormat;
}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

/// Sums over weights w of the first version and v of the second.
struct Difference {
  int64_t weights = 0;
  int64_t unequal = 0;  // w != v; 0 and -0 are equal, and so are two NaN
  double max = 0;       // of |w - v|
  double sum = 0;       // of |w - v|
  double signal = 0;    // of w^2
  double noise = 0;     // of (w - v)^2

  void add(double w, double v);
  Difference& operator+=(const Difference& other);
  double mean() const { return weights == 0 ? 0 : sum / static_cast<double>(weights); }
  /// 10 log10(signal / noise); infinite without noise.
  double signal_to_noise_db() const;
};

/// The matrix or tensor that lost most: the ratio of many together hides one that is gone.
struct WorstLoss {
  std::string name = {};  // empty while nothing lost anything
  double signal_to_noise_db = std::numeric_limits<double>::infinity();

  /// The first of those that lost as much stays.
  void add(std::string_view of, double db) {
    if (!(db < signal_to_noise_db)) return;
    name = of;
    signal_to_noise_db = db;
  }
};

// --- Quantizing ----------------------------------------------------------------------------------

struct QuantizeOptions {
  /// One of weight_quantizations() of quantize.h.
  std::string format = "awq";
  /// Inputs that share a scale; 0 and -1: the whole row. nullopt: that of the format, halved until
  /// it divides the inputs of all matrices.
  std::optional<int64_t> group_size = {};
  bool allow_lossy = false;              // also where little is left of a matrix
  std::optional<double> bits = {};       // of a code; 3.4 is the mean of widths that are chosen
  std::optional<bool> symmetric = {};    // no zero points; nullopt: as the format usually has it
  std::vector<std::string> ignore = {};  // names of modules, or "re:" and a pattern: stay floats
  std::string rules = {};                // a file with forms of single matrices (docs/quantize.md)
  bool head = false;                     // the head is quantized, too
  bool embedding = false;                // and the embedding, with a head that is tied to it
  bool experts_only = false;             // nothing but experts is
  /// At most so much in a file; 0: 4 GiB, or as much as the largest file of a source that has
  /// several.
  uint64_t shard_bytes = 0;
  std::shared_ptr<Executor> threads = {};  // nullptr: the library's own
  Progress progress = {};
  /// Told of what earlier runs left behind, and what is not copied.
  std::function<void(const std::string& line)> notice = {};
  /// Opens what was written before it has its name; its error ends the work, and nothing appears.
  /// nullptr: verify() does.
  std::function<Status(const std::filesystem::path&)> check = {};

  // Of the library, for `bits` that are a mean.

  /// Measures what a unit of the plan costs: by predictions of a text (probing_backend.h is for
  /// that). nullptr: by the weights alone.
  std::function<Result<double>(const std::string& unit, const QuantizeFormat& format,
                               const QuantizeForm& form)>
      measure = {};
  /// Told of units whose errors are known, from none on, and of all of them, while widths are
  /// chosen.
  std::function<void(int64_t done, int64_t all)> measured = {};
};

struct QuantizeReport {
  std::string format = {};  // that was written
  int64_t group_size = 0;
  bool symmetric = false;
  int64_t quantized_matrices = 0;
  int64_t kept_tensors = 0;     // embeddings, norms, the head
  int64_t resumed_tensors = 0;  // groups of tensors that an earlier run had finished
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  std::map<int, int64_t> matrices_of_bits = {};  // how many have codes of so many bits
  int64_t matrices_with_f16_scales = 0;          // instead of E4M4, which lacks their range
  double code_bits = 0;           // of the quantized matrices, on average, without scales
  double bits_per_weight = 0;     // of the quantized matrices, with all that is stored beside codes
  double signal_to_noise_db = 0;  // of all quantized weights together; infinite without errors
  WorstLoss worst = {};           // of all matrices and kept tensors
};

/// Reads an unquantized model and writes a quantized directory, which appears at `destination`
/// whole or not at all, and only after `check`. Matrices that the family's list lets be quantized
/// are rounded to nearest; everything else is kept byte for byte (AWQ: as f16, as its readers have
/// it). A run that was stopped is gone on with; the loss of what was finished then is not in the
/// report. Beside the mapped source no more than one matrix and its result are in memory. Identical
/// bytes for any number of threads. Codes: quantize.*, model.*, config.*, import.*, export.*,
/// file.*; a message about a tensor names it.
Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options = {});

// --- Converting ----------------------------------------------------------------------------------

struct ConvertOptions {
  /// The name of a format ("-" may stand for "_"), "nvfp4" (nvfp4_pack_quantized), "nf4" (bnb_nf4),
  /// "w4a16" (pack_quantized), "compressed-tensors" for the one of its formats that has such
  /// weights, "ak48" (a model file of OrinMLLM, for Qwen3), or "f32", "bf16", "f16", which
  /// dequantize.
  std::string format = {};
  /// Scales, factors and dequantized weights may be rounded to nearest even, and scales of
  /// activations left out.
  bool allow_lossy = false;
  uint64_t shard_bytes = uint64_t{4} << 30;
  std::shared_ptr<Executor> threads = {};  // nullptr: the library's own
  Progress progress = {};
  // As in QuantizeOptions.
  std::function<void(const std::string& line)> notice = {};
  std::function<Status(const std::filesystem::path&)> check = {};
};

struct ConvertReport {
  std::string format = {};  // that was chosen
  int64_t converted_matrices = 0;
  int64_t kept_tensors = 0;
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  int64_t rounded_matrices = 0;  // 0: every weight is what it was, to the bit
  Difference loss = {};          // of these matrices
  WorstLoss worst = {};          // the matrix, or expert of a stack, that lost most
  int64_t dropped_activation_scales = 0;
};

/// The values of ConvertOptions::format.
std::vector<std::string> conversion_formats();

/// Stores the same weights in another format, without loss unless that is allowed; what cannot be
/// said exactly is refused, naming the tensor. The result appears as that of quantize_model(), and
/// an exact conversion that was stopped is gone on with.
///
/// Everything that is not quantized is kept byte for byte; only where nothing is quantized are
/// floats turned into f32, bf16 or f16. A stack of experts becomes modules "experts.E.NAME" where a
/// format has one matrix in a tensor, and back. Codes: convert.*, recast.*, export.*, import.*,
/// quantization.*, model.*, file.*.
Result<ConvertReport> convert_model(const std::filesystem::path& source,
                                    const std::filesystem::path& destination,
                                    const ConvertOptions& options);

// --- Comparing -----------------------------------------------------------------------------------

/// Two versions of one weight.
struct ComparedWeight {
  enum class Verdict : uint8_t {
    kSameBytes,   // the same tensors
    kSameValues,  // stored differently, the same numbers
    kDifferent,   // `difference` says how far, unless the tensors are no floats
    kShape,       // not comparable: sizes or types differ
    kOnlyFirst,
    kOnlySecond
  };
  static constexpr Verdict kVerdicts[] = {Verdict::kSameBytes, Verdict::kSameValues,
                                          Verdict::kDifferent, Verdict::kShape,
                                          Verdict::kOnlyFirst, Verdict::kOnlySecond};

  std::string name = {};  // of a module, of one expert of a stack, or of another tensor
  Verdict verdict = Verdict::kSameBytes;
  std::string first = {};  // how it is stored: "awq [64, 32]"; empty where it is missing
  std::string second = {};
  Difference difference = {};  // all zeros for kSameBytes
};

std::string_view name_of(ComparedWeight::Verdict verdict);  // "same bytes"

struct ModelDiff {
  std::vector<ComparedWeight> weights = {};  // by name, experts of a stack by their number

  /// Bytes or values, nothing missing and nothing else.
  bool same_values() const;
  bool same_bytes() const;
  int64_t count(ComparedWeight::Verdict verdict) const;
  /// Worst of those that differ and have a difference: the one whose weights are furthest apart.
  WorstLoss worst() const;
};

/// Compares the weights of two models, however they store them, module by module, and the other
/// tensors by name; floats of different types by value. Codes: model.*, json.*, config.*, import.*,
/// file.*.
Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second,
                              std::shared_ptr<Executor> threads = nullptr);

SUBBYTE_END_NAMESPACE
