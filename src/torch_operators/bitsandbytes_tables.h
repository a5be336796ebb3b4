#pragma once
// Tensors of the 4-bit operators of bitsandbytes: blocks of consecutive numbers of a tensor of any
// shape share a scale, absmax; two codes a byte, the first number in the high half.

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace subbyte::torch_operators {

/// Values of the codes.
using Table = std::array<float, 16>;

Table nf4_table();

/// The table of "nf4" or "fp4". Code torch.argument.
Table table_of(int64_t quant_type);

/// A table in rising order, with the code of each entry and the middles between neighbours, which
/// belong to the lower one; NaN has the code of the largest.
struct Rising {
  explicit Rising(const Table& table);
  uint8_t code(float x) const {
    int below = 0;
    for (const float middle : middles) below += x <= middle ? 0 : 1;
    return codes[static_cast<std::size_t>(below)];
  }

  std::array<uint8_t, 16> codes{};
  std::array<float, 15> middles{};
};

/// A power of two from 32 to 4096. Code torch.argument.
Status check_blocksize(int64_t blocksize);

/// Writes numbers [begin, end) of a tensor that was packed so.
void unpack(float* to, const std::byte* packed, const Table& table, std::span<const float> absmax,
            int64_t blocksize, int64_t begin, int64_t end);

}  // namespace subbyte::torch_operators
