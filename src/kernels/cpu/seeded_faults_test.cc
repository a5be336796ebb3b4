// The comparisons of matmul_test.cc can fail: faults that are put into a matrix are found by them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/compare.h"
#include "support/matmul.h"
#include "support/matmul_bounds.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

using testing::bounds_of;
using testing::compare_matmul;
using testing::Comparison;
using testing::Contents;
using testing::expect;
using testing::Expected;
using testing::kernels_of_this_machine;
using testing::methods_of;
using testing::multiply;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::takes_bf16;
using testing::takes_bytes;

constexpr int64_t kMaxM = 37;

/// One product in which a single thing is wrong must fail the comparison: y comes from the right
/// matrix, the oracle from a damaged copy.
class SeededFaults : public ::testing::TestWithParam<int64_t> {
 protected:
  static constexpr int64_t kRows = 8;
  static constexpr int64_t kCols = 264;  // two blocks of AVX-512 and a tail of one lane

  const WeightFormat format_ = {Format::kU4, Format::kF16, Zero::kU8, GetParam()};
  RandomMatrix right_ = random_matrix(format_, kRows, kCols, Contents::kReal, 11);
  RandomMatrix wrong_ = random_matrix(format_, kRows, kCols, Contents::kReal, 11);
  std::vector<float> x_ = random_inputs(kMaxM, kCols, Contents::kReal, 12);

  void expect_found() const {
    for (const Kernels* kernels : kernels_of_this_machine()) {
      for (const Method& method : methods_of(*kernels, right_.view)) {
        // Rounded to 8 bits, activations hide a code that is off by one.
        if (takes_bf16(method) || takes_bytes(method)) continue;
        for (const int64_t m : {1, 4, 37}) {
          EXPECT_TRUE(compared(*kernels, method, right_.view, m))
              << kernels->name << ", " << method.name << ", M " << m;
          EXPECT_FALSE(compared(*kernels, method, wrong_.view, m))
              << kernels->name << ", " << method.name << ", M " << m;
        }
      }
    }
  }

 private:
  Comparison compared(const Kernels& kernels, const Method& method,
                      const MatrixView& oracle_weights, int64_t m) const {
    const std::vector<float> y = multiply(kernels, method, right_.view, x_, m);
    const Expected expected = expect(oracle_weights, x_, m);
    return compare_matmul(y, expected.exact.y, bounds_of(kernels, method, expected, kCols));
  }
};

TEST_P(SeededFaults, the_nibbles_of_one_byte_swapped) {
  for (std::byte& byte : wrong_.codes->span()) {
    if (byte >> 4 == (byte & std::byte{15})) continue;
    byte = (byte << 4) | (byte >> 4);
    break;
  }
  expect_found();
}

TEST_P(SeededFaults, one_code_off_by_one) {
  wrong_.codes->data()[kCols / 2 + 70] ^= std::byte{0x10};
  expect_found();
}

TEST_P(SeededFaults, one_zero_point_off_by_one) {
  std::byte& zero = wrong_.zeros->data()[5];
  zero = static_cast<std::byte>(std::to_integer<int>(zero) + 1);
  expect_found();
}

TEST_P(SeededFaults, the_scale_of_the_neighbouring_group) {
  std::memcpy(wrong_.scales->data() + 2 * 7, right_.scales->data() + 2 * 8, 2);
  expect_found();
}

TEST_P(SeededFaults, the_last_octet_of_a_row_dropped) {
  // A code equal to the zero point is a weight of zero.
  const int64_t row = 3;
  const std::byte zero = wrong_.zeros->data()[(row + 1) * wrong_.view.groups() - 1];
  ASSERT_LT(std::to_integer<int>(zero), 16);
  for (int64_t i = 1; i <= 4; ++i) {
    wrong_.codes->data()[(row + 1) * kCols / 2 - i] = zero | (zero << 4);
  }
  expect_found();
}

TEST_P(SeededFaults, two_inputs_exchanged) {
  std::vector<uint32_t> order(kCols);
  for (uint32_t i = 0; i < kCols; ++i) order[i] = i;
  std::swap(order[256], order[257]);
  wrong_.view.input_order = order;
  expect_found();
}

INSTANTIATE_TEST_SUITE_P(GroupSize, SeededFaults, ::testing::Values(32, 128));

}  // namespace
}  // namespace subbyte::cpu
