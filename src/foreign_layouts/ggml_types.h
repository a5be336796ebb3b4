#pragma once
// Types of tensors in ggml and GGUF files. Rows of a matrix are outputs, as here, and each row is
// cut into blocks, which hold codes and scales:
//
//   Q4_0, 18 bytes for 32 weights     d f16 | 16 bytes: weight i low, 16 + i high nibble of byte i
//                                     w = d (q - 8)
//   Q4_K, 144 bytes for 256 weights   d, dmin f16 | 8 times s, m of 6 bits | codes
//                                     w = (d s) q - (dmin m)

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "formats/weight_format.h"

namespace subbyte {

struct GgmlType {
  uint32_t number;        // in files
  std::string_view name;  // "Q4_K"
  uint32_t block;         // numbers in one, along the inputs
  uint32_t bytes;         // of one
  /// How a matrix of them is stored here; nullopt where none can be. nfl3 and nfl4 are those of a
  /// codebook that the matrix brings.
  std::optional<WeightFormat> format;
};

/// All that files may have, by their numbers.
std::span<const GgmlType> ggml_types();

/// nullptr for a number that no type has.
const GgmlType* find_ggml_type(uint32_t number);
/// nullptr for a name that no type has.
const GgmlType* find_ggml_type(std::string_view name);

/// Says whether it is the number of a type that files no longer may have.
bool is_removed_ggml_type(uint32_t number);

}  // namespace subbyte
