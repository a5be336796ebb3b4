#pragma once
// Scales of blocks in the order of tensor cores of Blackwell, a byte each: FlashInfer's and cuBLAS'
// layout 128x4, and FlashInfer's 8x4 for few rows. Scales are [rows][groups], groups are padded to
// C', which is a multiple of 4, and rows to 128 or 8; all padding is 0:
//
//   128x4   byte (row/128 * C'/4 + group/4) * 512 + row%32 * 16 + row%128/32 * 4 + group%4
//   8x4     byte (row/8   * C'/4 + group/4) * 32  + row%8 * 4                    + group%4

#include <cstddef>
#include <cstdint>

namespace subbyte {

enum class ScaleSwizzle : uint8_t { k128x4, k8x4 };

/// Rows with those of padding.
int64_t swizzled_rows(int64_t rows, ScaleSwizzle swizzle);
/// Groups of a row with those of padding.
int64_t swizzled_groups(int64_t groups);

/// Where the scale of a row and a group lies; `groups` may count padding.
int64_t swizzled_byte(int64_t row, int64_t group, int64_t groups, ScaleSwizzle swizzle);

/// Canonical scales [rows][groups] to swizzled_rows() * swizzled_groups() bytes and back.
void swizzle_scales(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups,
                    ScaleSwizzle swizzle);
void unswizzle_scales(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups,
                      ScaleSwizzle swizzle);

}  // namespace subbyte
