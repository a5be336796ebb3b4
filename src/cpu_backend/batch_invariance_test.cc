// The mode in which a token's results are the same bits however many are computed with it: rows
// together against the same rows alone, for every format and instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/linear.h"
#include "support/isa_test.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;

// A strip of rows and a part of one; three blocks of inputs and a run of 8.
constexpr int64_t kRows = 67;
constexpr int64_t kCols = 392;
constexpr int64_t kManyRows = 512;  // of activations
constexpr int64_t kFewRows = 40;    // every number of them up to this one

/// So that the sign of a zero counts.
uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

class BatchInvariance : public testing::IsaTest {
 protected:
  static Execution& invariant(int threads, cpu::Precision precision) {
    static std::map<std::tuple<std::string, int, cpu::Precision>, std::unique_ptr<Execution>> made;
    std::unique_ptr<Execution>& one = made[{GetParam(), threads, precision}];
    if (one == nullptr) {
      auto created = Execution::create({.num_threads = threads,
                                        .isa = GetParam(),
                                        .precision = precision,
                                        .batch_invariant = true});
      EXPECT_TRUE(created.ok());
      one = std::move(*created);
    }
    return *one;
  }

  /// Rows [begin, begin + m) of x, multiplied together.
  static std::vector<float> multiply(Execution& run, const MatrixView& weights,
                                     const std::vector<float>& x, int64_t begin, int64_t m) {
    std::vector<float> y(m * weights.rows, NAN);
    const auto rows = std::span(x).subspan(begin * weights.cols, m * weights.cols);
    EXPECT_TRUE(linear(run, y, rows, m, weights).ok());
    return y;
  }

  /// `weights` by 1 to 40 rows, which end with the same row and so have others before them each
  /// time, and by 512; with more threads than the rows alone had.
  static void expect_rows_as_alone(const MatrixView& weights, const std::vector<float>& x,
                                   cpu::Precision precision) {
    std::map<int64_t, std::vector<float>> alone;
    const auto expect_as_alone = [&](int threads, int64_t begin, int64_t m, int64_t step) {
      const std::vector<float> y = multiply(invariant(threads, precision), weights, x, begin, m);
      for (int64_t i = 0; i < m; i += step) {
        std::vector<float>& one = alone[begin + i];
        if (one.empty()) one = multiply(invariant(1, precision), weights, x, begin + i, 1);
        const auto together = std::span(y).subspan(i * kRows, kRows);
        ASSERT_TRUE(std::ranges::equal(one, together, {}, bits, bits))
            << to_string(weights.format) << (weights.input_order.empty() ? "" : ", act-order")
            << ", M " << m << ", row " << i << ", precision " << static_cast<int>(precision);
      }
    };
    for (int64_t m = 1; m <= kFewRows; ++m) expect_as_alone(2, kFewRows - m, m, 1);
    expect_as_alone(3, 0, kManyRows, 13);  // positions of all kinds, and not 500 products more
  }
};

TEST_P(BatchInvariance, rows_together_are_the_same_bits_as_alone) {
  const std::vector<float> x = random_inputs(kManyRows, kCols, Contents::kReal, 1);
  std::vector<uint32_t> order(kCols);
  for (uint32_t i = 0; i < kCols; ++i) order[i] = (i * 37 + 5) % kCols;
  const cpu::Kernels& kernels = execution(1).kernels();
  for (const cpu::MatmulKernel& kernel : kernels.matmuls) {
    const bool dense = kernel.scale == Format::kNone;
    for (const int64_t group : {0, 32, 128, 384}) {
      if (dense && group != 0) continue;
      const WeightFormat format = {kernel.element, kernel.scale, kernel.zero, group};
      if (cpu::find_matmul(kernels, format) == nullptr) continue;  // groups of two levels
      RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kReal, 2);
      if (group == 128 && !has_two_levels(format)) matrix.view.input_order = order;
      std::vector<const void*> seen;
      for (const cpu::Precision precision :
           {cpu::Precision::kF32, cpu::Precision::kBF16, cpu::Precision::kInt8}) {
        const auto* variant = reinterpret_cast<const void*>(
            cpu::choose_variant(kernels, kernel, cpu::weights_of(matrix.view), 1, precision, true)
                .multiply);
        if (std::ranges::find(seen, variant) != seen.end()) continue;  // rounds as one before
        seen.push_back(variant);
        expect_rows_as_alone(matrix.view, x, precision);
        if (HasFatalFailure()) return;
      }
    }
  }
}

SUBBYTE_FOR_EVERY_ISA(BatchInvariance);

}  // namespace
}  // namespace subbyte
