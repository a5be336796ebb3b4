#include "kernels/gpu/served_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread_pool.h"
#include "kernels/gpu/packed_weights.h"
#include "support/random_matrix.h"

namespace subbyte::gpu {
namespace {

using testing::random_matrix;
using enum Format;

Matrix unowned(const MatrixView& view) {
  Matrix matrix;
  matrix.view = view;
  return matrix;
}

TEST(ServedFormat, takes_what_there_are_kernels_for_as_it_is) {
  for (const WeightFormat& format :
       {WeightFormat{kU4, kF16, Zero::kU8, 128}, WeightFormat{kNF4, kF32, Zero::kNone, 64},
        WeightFormat{kF32, kNone, Zero::kNone, 0}, WeightFormat{kBF16, kNone, Zero::kNone, 0}}) {
    EXPECT_EQ(served_format(format, 33, 384), format) << to_string(format);
  }
}

TEST(ServedFormat, repeats_the_scales_of_groups_that_are_too_large) {
  struct Case {
    WeightFormat format;
    int64_t cols, group;
  };
  for (const Case& c :
       {Case{{kNF4, kF32, Zero::kNone, 256}, 512, 64}, Case{{kNF4, kF32, Zero::kNone, 0}, 192, 64},
        Case{{kNFL5, kF16, Zero::kNone, 64}, 128, 32},
        Case{{kE2M1, kE8M0, Zero::kNone, 64}, 128, 32}, Case{{kU4, kF16, Zero::kU8, 96}, 192, 32},
        Case{{kI4, kBF16, Zero::kBF16, 48}, 144, 16}}) {
    const auto random = random_matrix(c.format, 19, c.cols, testing::Contents::kReal, 3);
    ThreadPool pool(2);
    const auto served = serve(unowned(random.view), pool);
    ASSERT_TRUE(served.ok()) << served.error().message;
    EXPECT_EQ(served->view.format.group_size, c.group) << to_string(c.format);
    EXPECT_TRUE(packed_format(served->view).ok());
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t col = 0; col < c.cols; ++col) {
        ASSERT_EQ(weight_at(served->view, row, col), weight_at(random.view, row, col));
      }
    }
  }
}

TEST(ServedFormat, has_integers_of_five_to_seven_bits_as_eight) {
  for (const WeightFormat& format :
       {WeightFormat{kU5, kF16, Zero::kU8, 32}, WeightFormat{kI6, kF16, Zero::kNone, 64},
        WeightFormat{kU7, kBF16, Zero::kU8, 96}, WeightFormat{kI5, kF16, Zero::kF16, 32}}) {
    const auto random = random_matrix(format, 19, 192, testing::Contents::kReal, 6);
    ThreadPool pool(2);
    const auto served = serve(unowned(random.view), pool);
    ASSERT_TRUE(served.ok()) << served.error().message;
    EXPECT_EQ(served->view.format, served_format(format, 19, 192));
    EXPECT_EQ(info(served->view.format.element).bits, 8) << to_string(format);
    EXPECT_TRUE(packed_format(served->view).ok());
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t col = 0; col < 192; ++col) {
        ASSERT_EQ(weight_at(served->view, row, col), weight_at(random.view, row, col));
      }
    }
  }
}

/// Rounded to nearest: half a unit in the last place of f16 (11 bits) for what is normal there, of
/// the numbers near 2^-24 else; of bf16 (8 bits).
TEST(ServedFormat, rounds_the_rest_to_sixteen_bits) {
  for (const WeightFormat& format :
       {WeightFormat{kU5, kF16, Zero::kU8, 24}, WeightFormat{kI6, kF16, Zero::kNone, 8},
        WeightFormat{kU4, kF16, Zero::kU8, 24}, WeightFormat{kNF4, kF32, Zero::kNone, 40}}) {
    ASSERT_FALSE(packed_bytes(format, 19, 240, false).ok()) << to_string(format);
    const auto random = random_matrix(format, 19, 240, testing::Contents::kReal, 4);
    ThreadPool pool(2);
    const auto served = serve(unowned(random.view), pool);
    ASSERT_TRUE(served.ok()) << served.error().message;
    EXPECT_TRUE(is_dense(served->view.format));
    const bool is_f16 = served->view.format.element == kF16;
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t col = 0; col < 240; ++col) {
        const double exact = weight_at(random.view, row, col);
        const double bound =
            is_f16 ? std::max(std::fabs(exact) * 0x1p-11, 0x1p-25) : std::fabs(exact) * 0x1p-8;
        // FloatRows rounds to float before.
        ASSERT_NEAR(weight_at(served->view, row, col), exact, bound + std::fabs(exact) * 0x1p-23)
            << to_string(format);
      }
    }
  }
}

TEST(ServedFormat, is_bf16_beyond_the_range_of_f16) {
  for (const float scale : {1e5f, 1e-7f}) {
    auto random = random_matrix({kU5, kF32, Zero::kU8, 8}, 4, 64, testing::Contents::kReal, 5);
    std::vector<float> scales(4 * 8, scale);
    Matrix matrix = unowned(random.view);
    matrix.view.scales = std::as_bytes(std::span(scales));
    ThreadPool pool(1);
    const auto served = serve(std::move(matrix), pool);
    ASSERT_TRUE(served.ok());
    EXPECT_EQ(served->view.format.element, kBF16);
    EXPECT_GT(std::fabs(weight_at(served->view, 0, 0)) + std::fabs(weight_at(served->view, 1, 1)),
              0);
  }
}

}  // namespace
}  // namespace subbyte::gpu
