// The comparisons of matmul_test.cc can fail: faults that are put into a matrix are found by them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "support/compare.h"
#include "support/matmul.h"
#include "support/matmul_bounds.h"
#include "support/random_matrix.h"
#include "support/test_names.h"

namespace subbyte::cpu {
namespace {

using testing::bounds_of;
using testing::compare_matmul;
using testing::Comparison;
using testing::Contents;
using testing::expect;
using testing::Expected;
using testing::kernels_of_this_machine;
using testing::loop_of;
using testing::multiply;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::variants_of;

constexpr int64_t kMaxM = 37;

/// One product in which a single thing is wrong must fail the comparison: y comes from the right
/// matrix, the oracle from a damaged copy.
class FaultyProduct {
 protected:
  static constexpr int64_t kRows = 8;
  static constexpr int64_t kCols = 264;  // two blocks of AVX-512 and a tail of one lane

  explicit FaultyProduct(const WeightFormat& format)
      : right_(random_matrix(format, kRows, kCols, Contents::kReal, 11)),
        wrong_(random_matrix(format, kRows, kCols, Contents::kReal, 11)) {}

  RandomMatrix right_;
  RandomMatrix wrong_;
  std::vector<float> x_ = random_inputs(kMaxM, kCols, Contents::kReal, 12);

  void expect_found() const {
    for (const Kernels* kernels : kernels_of_this_machine()) {
      for (const KernelVariant& variant : variants_of(*kernels, right_.view)) {
        // Rounded to 8 bits, activations hide a code that is off by one.
        if (loop_of(variant).takes_bf16 || loop_of(variant).takes_bytes) continue;
        for (const int64_t m : {1, 4, 37}) {
          EXPECT_TRUE(compared(*kernels, variant, right_.view, m))
              << kernels->name << ", " << variant.name << ", M " << m;
          EXPECT_FALSE(compared(*kernels, variant, wrong_.view, m))
              << kernels->name << ", " << variant.name << ", M " << m;
        }
      }
    }
  }

 private:
  Comparison compared(const Kernels& kernels, const KernelVariant& variant,
                      const MatrixView& oracle_weights, int64_t m) const {
    const std::vector<float> y = multiply(kernels, variant, right_.view, x_, m);
    const Expected expected = expect(oracle_weights, x_, m);
    return compare_matmul(y, expected.exact.y, bounds_of(kernels, variant, expected, kCols));
  }
};

/// Integers with zero points, by the size of groups.
class SeededFaults : protected FaultyProduct, public ::testing::TestWithParam<int64_t> {
 protected:
  SeededFaults() : FaultyProduct({Format::kU4, Format::kF16, Zero::kU8, GetParam()}) {}
};

TEST_P(SeededFaults, the_nibbles_of_one_byte_swapped) {
  for (std::byte& byte : wrong_.codes->span()) {
    if ((byte >> 4) == (byte & std::byte{15})) continue;
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

TEST_P(SeededFaults, the_last_eight_inputs_of_a_row_dropped) {
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

/// E2M1, by the format and the size of groups.
struct E2m1Case {
  Format scale;
  int64_t group_size;
};
class E2m1Faults : protected FaultyProduct, public ::testing::TestWithParam<E2m1Case> {
 protected:
  E2m1Faults()
      : FaultyProduct({Format::kE2M1, GetParam().scale, Zero::kNone, GetParam().group_size}) {
    // Scales of 1 and 2, but for one group in each row, the second of the second block, which is
    // too small for the first pass over MXFP4.
    const bool powers = GetParam().scale == Format::kE8M0;
    const int64_t groups = right_.view.groups();
    for (RandomMatrix* matrix : {&right_, &wrong_}) {
      for (int64_t i = 0; i < kRows * groups; ++i) {
        const bool small = i % groups == small_group();
        const int exponent = small ? -3 : static_cast<int>(i % 2);
        matrix->scales->data()[i] = static_cast<std::byte>(
            powers ? 127 + exponent : (7 + exponent) * 8 + static_cast<int>(i % 5));
      }
    }
  }
  static int64_t small_group() { return 128 / GetParam().group_size + 1; }
};

TEST_P(E2m1Faults, one_code_with_its_sign_changed) {
  wrong_.codes->data()[kCols / 2 + 10] ^= std::byte{0x80};
  expect_found();
}

TEST_P(E2m1Faults, one_code_of_the_smallest_group_with_its_sign_changed) {
  // That of the largest input of the first row, so that no rounding of activations hides it.
  const int64_t begin = small_group() * GetParam().group_size;
  int64_t largest = begin;
  for (int64_t k = begin; k < begin + GetParam().group_size; ++k) {
    if (std::fabs(x_[k]) > std::fabs(x_[largest])) largest = k;
  }
  const std::byte all = largest % 2 == 0 ? std::byte{0x07} : std::byte{0x70};  // 6, or -6
  const std::byte sign = largest % 2 == 0 ? std::byte{0x08} : std::byte{0x80};
  right_.codes->data()[largest / 2] |= all;
  wrong_.codes->data()[largest / 2] = right_.codes->data()[largest / 2] ^ sign;
  expect_found();
}

TEST_P(E2m1Faults, one_scale_off_by_one) {
  std::byte& scale = wrong_.scales->data()[3 * right_.view.groups() + 1];
  scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
  expect_found();
}

TEST_P(E2m1Faults, the_smallest_scale_of_a_row_off_by_one) {
  std::byte& scale = wrong_.scales->data()[3 * right_.view.groups() + small_group()];
  scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
  expect_found();
}

TEST_P(E2m1Faults, the_last_eight_inputs_of_a_row_dropped) {
  for (int64_t i = 1; i <= 4; ++i) wrong_.codes->data()[4 * kCols / 2 - i] = std::byte{0};
  expect_found();
}

INSTANTIATE_TEST_SUITE_P(GroupSize, SeededFaults, ::testing::Values(32, 128), NamedByValue());
INSTANTIATE_TEST_SUITE_P(Formats, E2m1Faults,
                         ::testing::Values(E2m1Case{Format::kE8M0, 32},
                                           E2m1Case{Format::kE4M3, 16}),
                         [](const auto& param) {
                           return std::string(subbyte::info(param.param.scale).name);
                         });

}  // namespace
}  // namespace subbyte::cpu
