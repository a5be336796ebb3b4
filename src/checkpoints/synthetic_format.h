#pragma once
// How `synth` makes weights in the tensors of an exporter without quantizing any: which format they
// have, and what each tensor holds.

#include <cstdint>
#include <span>
#include <string_view>

#include "formats/weight_format.h"
#include "json/strict_json.h"
#include "subbyte/modules.h"

namespace subbyte {

/// Kind of the random elements of a tensor.
enum class RandomElements : uint8_t {
  kCodes,         // any bits: every code equally often
  kZeros,         // 7 or 8, as nibbles
  kZerosLessOne,  // the same, stored as 6 or 7
  kScales,        // F16
  kExponents,     // E8M0
  kE4M3,          // every code but those of NaN equally often
  kFactors,       // F32, of E4M3
  kE4M4,          // 1 or 17/16
  kFactor,        // F32, one for all of a matrix
  kCodebook,      // F32 values of the element, or F16 vectors, the same for all
  kGroups,        // of each input, in their order
  kDense,         // F16 or BF16, bell-shaped
};

struct SyntheticFormat {
  std::string_view name;  // by which people ask for it
  /// Group size 0: the one that is asked for. Of a rotation the largest that divides the inputs.
  WeightFormat format;
  std::span<const RandomElements> tensors;  // those of Exporter::describe(), in their order
  DType floats = DType::kBF16;              // of all that is not quantized
  /// The quantization_config, as the software that is known for the format writes it; nullptr: that
  /// of the exporter.
  json::Value (*config)(int64_t group_size) = nullptr;
};

}  // namespace subbyte
