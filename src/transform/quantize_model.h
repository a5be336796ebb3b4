#pragma once
// Quantizing a whole model directory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/leftover.h"
#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"
#include "transform/difference.h"
#include "transform/quantize_formats.h"

namespace subbyte {

struct QuantizeOptions {
  std::string format = "awq";  // find_quantize_format() of quantize_formats.h
  /// Inputs that share a scale; 0 and -1: the whole row. nullopt: that of the format, halved until
  /// it divides the inputs of all matrices.
  std::optional<int64_t> group_size = {};
  /// True where a matrix or tensor may be left with less than least_signal_db().
  bool allow_lossy = false;
  std::optional<double> bits = {};       // of a code; nullopt: those of the format
  std::optional<bool> symmetric = {};    // nullopt: as the format usually has it
  std::vector<std::string> ignore = {};  // patterns (module_pattern.h) of what is kept
  std::string rules = {};                // a file with forms of single matrices (quantize_rules.h)
  /// Measures what a unit of the plan costs, for `bits` that are a mean: by predictions of a text
  /// (ProbingBackend of probing_backend.h is for that). nullptr: by the weights alone.
  std::function<Result<double>(const std::string& unit, const QuantizeFormat& format,
                               const QuantizeForm& form)>
      measure = nullptr;
  /// Told of units whose errors are known, from none on, and of all of them, while widths are
  /// chosen.
  std::function<void(int64_t done, int64_t all)> measured = nullptr;
  bool head = false;          // the head is quantized, too
  bool embedding = false;     // and the embedding, with a head that is tied to it
  bool experts_only = false;  // nothing but experts is quantized
  /// At most so much in a shard; 0: 4 GiB, or as much as the largest file of a source that is in
  /// shards.
  uint64_t shard_bytes = 0;
  Notice notice = nullptr;  // of what earlier runs left behind, and what is not copied
  /// Opens what was written, before it has its name; its error ends the work, and nothing appears.
  /// The program has verify() here.
  std::function<Status(const std::filesystem::path&)> check = nullptr;
};

struct QuantizeReport {
  std::string format;  // the name of the format that was written
  int64_t group_size = 0;
  bool symmetric = false;
  int64_t quantized_tensors = 0;
  int64_t kept_tensors = 0;     // embeddings, norms, the head
  int64_t resumed_tensors = 0;  // groups of tensors that an earlier run had finished
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  std::map<int, int64_t> modules_of_bits;  // how many have codes of so many bits
  int64_t modules_with_f16_scales = 0;     // instead of E4M4, which lacks their range
  double code_bits = 0;                    // of the quantized matrices, on average, without scales
  double bits_per_weight = 0;     // of the quantized matrices, with all that is stored beside codes
  double signal_to_noise_db = 0;  // of all quantized weights together; infinite without errors
  WorstLoss worst;                // of all matrices and kept tensors
};

/// Reads an unquantized model directory and writes a quantized one that appears at `destination`
/// whole or not at all. Matrices that the family's list lets be quantized are rounded to nearest;
/// everything else is kept byte for byte (AWQ: as f16, as its readers have it). config.json gets
/// the quantization_config of the format; tokenizer and other side files are copied.
/// Scales of kbit and vq are E4M4, or F16 where quantize_scales.h says so.
/// A run that was stopped is gone on with (OutputDirectory::resume); the loss of what was finished
/// then is not in the report.
/// Streams: beside the mapped source no more than one matrix and its result are in memory.
/// Identical bytes for any number of threads.
/// Codes: quantize.format, quantize.bits, quantize.group_size, quantize.symmetry (what the format
/// lacks, and what it has), those of plan_units(), choose_widths() and
/// plan_jobs(), quantize.f16_overflow,
/// quantize.not_finite, quantize.scale_overflow, quantize.loss (less than least_signal_db() is left
/// of a tensor), those of the loaders, file.*. Every message about a tensor names it.
Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress = nullptr);

}  // namespace subbyte
