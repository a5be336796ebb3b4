#pragma once
// Products of a group GEMM in double precision, which has no rounding inside a block of 32 and
// holds every product of scales: in the order of K, rounded once to nearest even.

#include <cstdint>
#include <span>
#include <vector>

#include "group_gemm/rows.h"

namespace subbyte::group_gemm {

/// One row of weights at a time, so one object for each thread.
class ExactProducts {
 public:
  ExactProducts(const GroupGemm& gemm, const Rows& rows);

  /// Output n of `group` for those rows of a.
  void multiply(int64_t group, int64_t n, std::span<const int64_t> rows_of_a);

 private:
  void decode_weights(int64_t group, int64_t n);
  double product(const std::byte* codes, const std::byte* scales, int64_t row) const;

  const GroupGemm& gemm_;
  const Rows& rows_;
  std::vector<float> weights_;  // [k], of the present row
  std::vector<double> scales_;  // [k / 32]
};

}  // namespace subbyte::group_gemm
