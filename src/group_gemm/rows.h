#pragma once
// The rows of a group GEMM as linear() takes them.
//
// Most rows are ordinary: their numbers are finite, and their scales lie from 2^-46 to 2^20, of
// weights from 2^-63 to 2^64. Then bf16 holds every number of them, and neither a product nor a sum
// can leave the range of float32:
//
//   least product    2^-16 (E5M2) * 2^-46 * 2^-1 * 2^-63                  = 2^-126
//   largest sum      57344 (E5M2) * 2^20 * 6 * 2^64 * 2^24 inputs         < 2^127
//
// Blocks of zeros may have any scale but NaN: those of padding are 0, which is 2^-127. A row with
// anything else is extreme: it is multiplied in double precision (exact_products.h).
//
// Looking at the codes of all blocks with small scales would read memory twice, so those rows are
// multiplied as ordinary ones at first. Of weights below 2^-126, which bf16 and some instructions
// take for 0, a sum may lose 2^-126 * 57344 * 2^20 * 2^24 < 2^-65, which is nothing beside 2^-40
// and more: only where a result is smaller the codes are looked at.

#include <array>
#include <cstddef>
#include <cstdint>

#include "group_gemm/group_gemm.h"

namespace subbyte::group_gemm {

inline constexpr int64_t kBlockInputs = 32;  // that share a scale
inline constexpr int64_t kAtomRows = 128;    // of swizzled scales

enum class RowKind : uint8_t {
  kOrdinary,
  kZero,   // of activations: zeros alone
  kSmall,  // of weights: has scales below 2^-63; the codes were not looked at
  kExtreme,
};

/// Results of kSmall rows from which on nothing is lost.
inline constexpr float kSureResult = 0x1p-40f;

class Rows {
 public:
  explicit Rows(const GroupGemm& gemm);

  /// The number that a code of an activation stands for.
  float value(std::byte code) const { return values_[std::to_integer<uint8_t>(code)]; }

  /// Row m of a, which is one of `group`, with its scales, to x[k]: zeros if it is extreme.
  RowKind unpack_activations(float* x, int64_t group, int64_t m) const;

  /// The scales of rows [first, first + 128) of the weights of `group`, first a multiple of 128, as
  /// far as there are any, to scales[rows][k / 32], and their kinds. Scales of more than 2^64 and
  /// NaN are ordinary ones here.
  void unpack_weight_scales(std::byte* scales, RowKind* kinds, int64_t group, int64_t first) const;

  /// Looks for numbers other than 0 with small scales in row n of the weights of `group`, whose
  /// scales these are.
  bool has_small_weights(const std::byte* scales, int64_t group, int64_t n) const;

 private:
  bool replace_large(std::byte* scales, int64_t atoms, int64_t group, int64_t n,
                     int64_t block) const;
  bool is_zero_block(int64_t group, int64_t n, int64_t block) const;

  const GroupGemm& gemm_;
  std::array<float, 256> values_;
  std::array<float, 256> scales_;
};

}  // namespace subbyte::group_gemm
