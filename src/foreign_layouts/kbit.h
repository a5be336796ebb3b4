#pragma once
// The kbit formats of bitsandbytes (nfl2 to nfl5): blocks of 32 inputs of one output, b bits each,
// stored as b words of 32 bits. Word p of a block is bit plane p: its bit l is bit p of element l.
//
//   codes of a block of 3 bits   5 0 7 ...       (elements 0, 1, 2, ...)
//   word 0, from bit 0 up        1 0 1 ...
//   word 1                       0 0 1 ...
//   word 2                       1 0 1 ...
//
// A buffer is blocks one after the other, and its scales (E4M4 bytes or F16, one for a block) have
// the same order:
//
//   flat    block n * K/32 + k/32: output after output
//   tiled   block ((k/64 * N/128 + n/128) * 128 + n % 128) * 2 + k % 64 / 32: tiles of 128 outputs
//           and 64 inputs. When K is an odd multiple of 32, the second half of the last tiles is 0.

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace subbyte {

enum class KbitOrder : uint8_t { kFlat, kTiled };

struct KbitShape {
  int64_t rows = 0;  // N, outputs; in 128s when tiled
  int64_t cols = 0;  // K, inputs; in 32s
  int bits = 4;      // 2 to 5
  KbitOrder order = KbitOrder::kFlat;
};

/// Code layout.shape.
Status check_kbit_shape(const KbitShape& shape);

/// How many blocks a buffer has, with those of padding. Its planes are 4 * bits bytes a block.
int64_t kbit_blocks(const KbitShape& shape);

/// Where the block of output n and inputs 32 * group, ... lies.
int64_t kbit_block(const KbitShape& shape, int64_t n, int64_t group);

/// Canonical codes [rows][cols * bits / 8] to planes and back. The shape has been checked.
void pack_kbit(std::byte* planes, const std::byte* codes, const KbitShape& shape);
void unpack_kbit(std::byte* codes, const std::byte* planes, const KbitShape& shape);
/// The same of outputs [begin, end), to where all would go.
void unpack_kbit_rows(std::byte* codes, const std::byte* planes, const KbitShape& shape,
                      int64_t begin, int64_t end);

/// Canonical scales [rows][cols / 32] of `width` bytes to the order of the blocks and back.
void pack_kbit_scales(std::byte* to, const std::byte* scales, const KbitShape& shape, int width);
void unpack_kbit_scales(std::byte* scales, const std::byte* from, const KbitShape& shape,
                        int width);
void unpack_kbit_scales_of_rows(std::byte* scales, const std::byte* from, const KbitShape& shape,
                                int width, int64_t begin, int64_t end);

}  // namespace subbyte
