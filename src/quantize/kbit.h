#pragma once
// Quantization to kbit: codes of 2 to 5 bits, whose values are a codebook, that of nfl2 to nfl5 or
// another, and a scale for each 32 inputs, the largest magnitude of its block.
//
//   scale = round(max|w| / factor)          E4M4, F16 or F32
//   code  = the entry nearest to w / (scale * factor), of two that are as near the lower
//   w'    = codebook[code] * scale * factor
//
// `factor` is a power of two for the whole matrix, MatrixView::tensor_scale: E4M4 has its full
// precision from 2^-10 to 31 only. Codes are chosen by the scale that is stored, as that is what
// they will be multiplied by. With h half of the widest gap between neighbours of the codebook, and
// r the relative error of a scale (1/32, 2^-11, 0), a weight is off by at most
//
//   (h + r) * max|w|
//
// as long as scales are normal numbers and the codebook reaches from -1 to 1. KbitRule::kLeastError
// tries the scales near that, from 14 sixteenths of an octave below to 6 above, and takes the one
// with which the squared error of the block is smallest: what is large may be cut then, and the
// bound is that of the sum, never more than with the largest magnitude. bitsandbytes chooses the
// codes by the unrounded magnitude instead; KbitRule::kBitsandbytes gives its codes and scales to
// the bit, with what its encoder of E4M4 does wrong: 1.97 becomes 1.9375, 32 becomes 16.

#include <array>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

inline constexpr int64_t kKbitBlock = 32;

enum class KbitRule : uint8_t { kStoredScale, kLeastError, kBitsandbytes };

/// How the scales of a matrix are stored.
struct KbitScales {
  Format format = Format::kE4M4;  // or kF16, kF32
  double factor = 1;              // a power of two
};

/// The factor with which the largest block of one or several matrices has a scale in E4M4's topmost
/// binade. Blocks below 2^-14 of it may get subnormal scales, and are off by at most 2^-18 of the
/// largest more. `largest` is finite; 0 gives 1.
double kbit_factor(double largest);

/// The largest magnitudes of the blocks of one or several matrices.
struct KbitBlocks {
  static constexpr int kLeastExponent = -149;  // of f32

  double largest = 0;
  std::array<int64_t, 280> of_exponent = {};  // from kLeastExponent on; zeros and NaN left aside

  KbitBlocks& operator+=(const KbitBlocks& other);
  int64_t count() const;
  /// Blocks whose scales are subnormal in E4M4 with kbit_factor(largest).
  int64_t count_subnormal() const;
};

/// `cols` is a multiple of 32.
KbitBlocks count_kbit_blocks(int64_t rows, int64_t cols, const RowReader& read_row, Executor& pool);

struct KbitOptions {
  int bits = 4;  // 2 to 5
  KbitScales scales;
  KbitRule rule = KbitRule::kStoredScale;
  /// Values of the codes, which the matrix gets a copy of; empty: those of kbit_element(bits).
  std::span<const float> codebook;
};

/// `cols` is a multiple of 32. Codes: quantize.bits, quantize.scale_format, quantize.codebook
/// (codebook_fault() has something to say), and those of quantize_rows: quantize.scale_overflow
/// comes from F16 alone, as E4M4 saturates at 31.
Result<Matrix> quantize_kbit(int64_t rows, int64_t cols, const KbitOptions& options,
                             const RowReader& read_row, Executor& pool);

/// The element whose codes have so many bits: nfl2 to nfl5. `bits` is 2 to 5.
Format kbit_element(int bits);

/// E4M4 as the encoder of bitsandbytes writes it: the mantissa does not carry, and from 32 on the
/// exponent is cut and the mantissa kept.
uint8_t encode_e4m4_as_bitsandbytes(float value);

}  // namespace subbyte
