#pragma once
// The arguments of all kernels: plain data, filled by the host (launch.cu), passed by value.

#include <cstdint>

#include "base/operands.h"
#include "kernels/gpu/superblock.h"
#include "kernels/gpu/tile_order.h"

namespace subbyte::cuda {

// The packed form and its decoders belong to all GPUs.
using namespace gpu;

/// How a lane reads a scale of any kind without branches: magnitude and sign of a code of `bytes`
/// bytes are moved to where float32 has them and multiplied by `factor`, which corrects the bias of
/// the exponent and makes subnormal numbers normal.
struct ScaleRule {
  uint32_t magnitude;  // bits of the code
  uint32_t sign;       // its sign bit, or 0
  int32_t shift;       // of the magnitude to the left
  int32_t sign_shift;
  uint32_t special;  // this magnitude and larger ones are NaN (infinity, too)
  float factor;
  float zero;  // of magnitude 0
  int32_t bytes;
};

constexpr ScaleRule scale_rule(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kF16:
      return {0x7fff, 0x8000, 13, 16, 0x7c00, 0x1p112f, 0, 2};
    case ScaleKind::kBF16:
      return {0x7fff, 0x8000, 16, 16, 0x7f80, 1, 0, 2};
    case ScaleKind::kE8M0:
      return {0xff, 0, 23, 0, 0xff, 1, 0x1p-127f, 1};
    case ScaleKind::kE4M3:
      return {0x7f, 0x80, 20, 24, 0x7f, 0x1p120f, 0, 1};
    case ScaleKind::kE4M4:
      return {0xff, 0, 19, 0, 0x100, 0x1p116f, 0, 1};
    case ScaleKind::kTwoLevels:
      return {};
    default:
      return {0x7fffffff, 0x80000000, 0, 0, 0x7f800000, 1, 0, 4};
  }
}

enum class Activation : uint8_t {
  kNone,
  kSwiGLU,  // silu(gate) * up
  kGeGLU,   // gelu(gate) * up, gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  /// gate <= limit, -limit <= up <= limit, gate sigmoid(alpha gate) (up + up_offset)
  kClampedSwiGLU,
};

/// Activations of one number.
enum class Unary : uint8_t {
  kNone,
  kRelu,
  kGelu,  // as the gate of kGeGLU
};

/// Kind of the `zeros` of a packed matrix: zero points, w = (code - zero) * scale, or offsets, two
/// bytes each, w = (code - constant zero) * scale + offset.
enum class ZeroKind : uint8_t { kInteger, kF16, kBF16 };

/// The packed matrix.
struct WeightArguments {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* zeros;    // zero points or offsets (zero_kind); nullptr: `zero` everywhere
  const uint32_t* gather;  // act-order: input of each column; nullptr: itself
  const float* vectors;    // [256][2 or 4] of vq4 or vq2; nullptr: other weights
  int32_t bits;            // of a code
  int32_t rows;            // N
  int32_t cols;            // K
  int32_t strips;
  int32_t tiles;   // of a strip
  int32_t blocks;  // scale blocks of a strip
  /// Scale block of a tile: the high 32 bits of tile * blocks_per_tile; 0: the tile's own number.
  uint32_t blocks_per_tile;
  int32_t tiles_per_block;
  int32_t zero;        // the constant zero point, also beside offsets
  int32_t zero_bytes;  // 1, or 2 for 8 bits and offsets
  float gain;          // a last factor of every weight, or of those of gate
  float up_gain;       // of rows 8 to 15 of each strip: up, where row_order has gate and up
  /// Where scales are multiplied into 16-bit weights they are first multiplied by this, a power of
  /// two, so that the largest are near the top of f16. 1 for bf16.
  float scale_factor;
  ScaleRule scale;
  RowOrder row_order;
  ZeroKind zero_kind;
  /// Sizes of scales of two levels; scale.bytes is 0 then, and zeros nullptr.
  Superblock superblock;
  uint16_t codebook[32];  // numbers of the activations' type
};

struct LinearArguments {
  WeightArguments weights;
  const void* x;         // [m][x_stride]
  void* y;               // [m][y_stride]
  const void* bias;      // [rows] or nullptr
  const void* residual;  // [m][residual_stride] or nullptr
  int64_t x_stride;
  int64_t y_stride;
  int64_t residual_stride;
  int32_t m;
  Activation activation;
  Unary unary;        // where there is no gate
  SwiGLU swiglu;      // of kClampedSwiGLU
  bool is_dependent;  // programmatic dependent launch: the kernel before may not have ended yet
  bool is_aligned;    // rows of x can be copied 16 bytes at a time
  bool y_is_other;    // y is f16 where x is bf16, and bf16 where it is f16; without a residual
};

/// [0, size) split into contiguous ranges: the first `remainder` have base + 1 elements, the rest
/// `base`. The host divides, because a GPU takes a hundred instructions for it.
struct Parts {
  int32_t base;
  int32_t remainder;

  SUBBYTE_DEVICE constexpr int begin(int i) const {
    return i * base + (i < remainder ? i : remainder);
  }
  SUBBYTE_DEVICE constexpr int size(int i) const { return base + (i < remainder ? 1 : 0); }
};

SUBBYTE_DEVICE constexpr Parts parts_of(int64_t size, int64_t parts) {
  return {static_cast<int32_t>(size / parts), static_cast<int32_t>(size % parts)};
}

/// Values of the codes of a one-byte scale.
inline constexpr int kScaleValuesBytes = 256 * 4;

/// Floats from one token to the next in the partials of a strip: 16 rows, and 4 more so that the
/// stores of a warp go to different banks.
inline constexpr int kPartialStride = 20;

}  // namespace subbyte::cuda
