#pragma once
// Configs of AutoAWQ and AutoGPTQ, and of AutoRound, whose weights have the layout of either.

#include <span>
#include <vector>

#include "checkpoints/exporter.h"
#include "checkpoints/import_parts.h"
#include "json/strict_json.h"

namespace subbyte {

/// Bits, and inputs of a group: the general ones and those of overrides for single modules. The
/// tensors of a module may agree with any of them.
struct IntegerSizes {
  std::vector<int64_t> bits = {};
  std::vector<int64_t> group_sizes = {};  // -1: the whole row

  /// Adds what `key` says, if it is there: one of `known`. Codes quantization.bits, json.*.
  Status read_bits(const json::Object& object, std::string_view key, std::span<const int> known);
  /// The same of -1 or a positive multiple of 8. Codes quantization.group_size, json.*.
  Status read_group_size(const json::Object& object, std::string_view key);
  /// Code json.missing where there are none.
  Status require(const json::Object& object) const;
  /// Checks that the tensors of `module`, with K inputs in so many groups, do not contradict them.
  /// Code import.config.
  Status check(const ImportContext& context, std::string_view module, int64_t num_bits,
               int64_t cols, int64_t groups) const;
  /// Inputs of a group as WeightFormat has it: 0 for one group. Code import.shape when no size
  /// gives that many.
  Result<int64_t> group_size_of(const FileTensor& scales, int64_t cols, int64_t groups) const;
};

inline constexpr int kAwqBits[] = {4};
inline constexpr int kGptqBits[] = {2, 3, 4, 8};

struct AwqState : FlavourState {
  IntegerSizes sizes;
  bool zero_point = true;
};

struct GptqState : FlavourState {
  IntegerSizes sizes;
  bool sym = false;
  bool sym_differs = false;  // an override says the opposite
  bool desc_act = false;
  bool stores_zero_minus_one = true;  // checkpoint_format "gptq" (v1), not "gptq_v2"
  bool zeros_borrow = false;          // v1 by GPTQModel: gptq.cc says how it subtracts
  bool marlin = false;                // words and scales in Marlin's order, no zero points
};

extern const Exporter gptq_exporter, gptq_v2_exporter;
extern const Importer marlin_importer, marlin_qweight_importer;
extern const Exporter marlin_exporter, marlin_qweight_exporter;

/// Says whether words and scales are those of Marlin, which packs 2 N or 4 N words in a row and has
/// no zero points (marlin.cc).
bool has_marlin_words(const TensorSource& tensors, std::string_view module);

/// Says whether words hold neighbouring outputs, as AWQ has them (awq.cc), and not inputs.
bool packs_outputs(const TensorSource& tensors, std::string_view module);

}  // namespace subbyte
