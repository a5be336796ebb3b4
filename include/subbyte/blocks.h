#pragma once
// Blocks of small floats that share a scale.

#include <cstdint>

#include "subbyte/format.h"
#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

/// [rows][cols]:
///
///   format        element  group  scale
///   kMxfp8E4M3    e4m3     32     e8m0
///   kMxfp8E5M2    e5m2     32     e8m0
///   kMxfp4        e2m1     32     e8m0
///   kNvfp4        e2m1     16     e4m3      and one float for the tensor
enum class BlockFormat : uint8_t { kMxfp8E4M3, kMxfp8E5M2, kMxfp4, kNvfp4 };

/// The exponent of a shared scale, from the largest magnitude of its group: kFloor as the OCP
/// specification has it, kCeil the least that clips nothing (FlashInfer), kBump175 the former, one
/// more where the largest would be 1.75 or more times the largest power of two of the element.
enum class ScaleRule : uint8_t { kFloor, kCeil, kBump175 };

/// The order of the scales: [rows][groups], or in atoms of 128 or 8 rows by 4 groups, as tensor
/// cores read them; rows and groups are padded to whole atoms.
enum class ScaleLayout : uint8_t { kLinear, k128x4, k8x4 };

/// A quantization to blocks. Codes are [rows][padded_cols()], those of e2m1 two in a byte with the
/// even column in the low half; padding is zeros with scale 0.
struct BlockQuantization {
  BlockFormat format = BlockFormat::kMxfp8E4M3;
  Format input = Format::kBF16;  // or kF16, kF32
  ScaleRule rule = ScaleRule::kCeil;
  ScaleLayout layout = ScaleLayout::kLinear;
  int64_t rows = 0;        // 0 to 2^24
  int64_t cols = 0;        // in groups, 1 to 2^24
  int64_t alignment = 32;  // of the columns of the codes: a multiple of 32
  float tensor_scale = 1;  // of NVFP4: w = element * scale * tensor_scale; 2^-100 to 2^100

  int64_t group() const { return format == BlockFormat::kNvfp4 ? 16 : 32; }
  Format element() const;
  Format scale() const;
  int64_t padded_cols() const { return (cols + alignment - 1) / alignment * alignment; }
  /// Bytes of a row of codes, and of all.
  int64_t row_bytes() const { return padded_cols() * bits(element()) / 8; }
  int64_t code_bytes() const { return rows * row_bytes(); }
  /// Scales of a row and rows of scales, with padding; their product is the bytes of all.
  int64_t scale_cols() const;
  int64_t scale_rows() const;
  int64_t scale_bytes() const { return scale_rows() * scale_cols(); }
};

/// Codes: blocks.shape, blocks.input, blocks.alignment, blocks.tensor_scale.
Status check_block_quantization(const BlockQuantization& blocks);

SUBBYTE_END_NAMESPACE
