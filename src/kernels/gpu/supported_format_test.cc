#include "kernels/gpu/supported_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
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

TEST(SupportedFormat, takes_what_there_are_kernels_for_as_it_is) {
  for (const WeightFormat& format :
       {WeightFormat{kU4, kF16, Zero::kU8, 128}, WeightFormat{kNF4, kF32, Zero::kNone, 64},
        WeightFormat{kE4M3, kBF16, Zero::kNone, 128}, WeightFormat{kE4M3, kF32, Zero::kNone, 0},
        WeightFormat{kF32, kNone, Zero::kNone, 0}, WeightFormat{kBF16, kNone, Zero::kNone, 0}}) {
    EXPECT_EQ(supported_format(format, 33, 384, false), format) << to_string(format);
  }
}

TEST(SupportedFormat, repeats_the_scales_of_groups_that_are_too_large) {
  struct Case {
    WeightFormat format;
    int64_t cols, group;
  };
  for (const Case& c :
       {Case{{kNF4, kF32, Zero::kNone, 256}, 512, 64}, Case{{kNF4, kF32, Zero::kNone, 0}, 192, 64},
        Case{{kNFL5, kF16, Zero::kNone, 64}, 128, 32}, Case{{kU5, kF16, Zero::kU8, 128}, 256, 32},
        Case{{kI6, kF16, Zero::kNone, 0}, 192, 16}, Case{{kE2M1, kE8M0, Zero::kNone, 64}, 128, 32},
        Case{{kU4, kF16, Zero::kU8, 96}, 192, 32}, Case{{kI4, kBF16, Zero::kBF16, 48}, 144, 16}}) {
    const auto random = random_matrix(c.format, 19, c.cols, testing::Contents::kReal, 3);
    ThreadPool pool(2);
    const auto served = support(unowned(random.view), pool);
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

TEST(SupportedFormat, has_other_integers_of_five_to_seven_bits_as_eight) {
  for (const WeightFormat& format :
       {WeightFormat{kU5, kF16, Zero::kU8, 16}, WeightFormat{kU7, kF16, Zero::kU8, 64},
        WeightFormat{kU7, kBF16, Zero::kU8, 96}, WeightFormat{kI7, kF16, Zero::kF16, 32}}) {
    const auto random = random_matrix(format, 19, 192, testing::Contents::kReal, 6);
    ThreadPool pool(2);
    const auto served = support(unowned(random.view), pool);
    ASSERT_TRUE(served.ok()) << served.error().message;
    EXPECT_EQ(served->view.format, supported_format(format, 19, 192, false));
    EXPECT_EQ(info(served->view.format.element).bits, 8) << to_string(format);
    EXPECT_TRUE(packed_format(served->view).ok());
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t col = 0; col < 192; ++col) {
        ASSERT_EQ(weight_at(served->view, row, col), weight_at(random.view, row, col));
      }
    }
  }
}

TEST(SupportedFormat, keeps_two_levels_as_ggml_has_them) {
  for (const WeightFormat& format :
       {WeightFormat{kU4, kU6, Zero::kOffsetU6, 32}, WeightFormat{kU5, kU6, Zero::kOffsetU6, 32},
        WeightFormat{kU2, kU4, Zero::kOffsetU4, 16}, WeightFormat{kI3, kI6, Zero::kNone, 16},
        WeightFormat{kI6, kI8, Zero::kNone, 16}, WeightFormat{kIQ4, kI6, Zero::kNone, 32},
        WeightFormat{kNFL4, kU6, Zero::kNone, 32}, WeightFormat{kNFL3, kU6, Zero::kNone, 32},
        WeightFormat{kNFL3, kU6, Zero::kNone, 16}}) {
    EXPECT_EQ(supported_format(format, 19, 320, false), format) << to_string(format);
  }
}

TEST(SupportedFormat, rounds_products_of_other_two_levels_to_f16) {
  struct Case {
    WeightFormat format, served;
  };
  for (const Case& c : {Case{{kU4, kU6, Zero::kOffsetU6, 16}, {kU4, kF16, Zero::kF16, 16}},
                        Case{{kU4, kU6, Zero::kNone, 32}, {kU4, kF16, Zero::kNone, 32}},
                        Case{{kU3, kU4, Zero::kOffsetU4, 32}, {kU3, kF16, Zero::kF16, 32}},
                        Case{{kI4, kI6, Zero::kNone, 32}, {kI4, kF16, Zero::kNone, 32}},
                        Case{{kI8, kI8, Zero::kNone, 16}, {kI8, kF16, Zero::kNone, 16}},
                        Case{{kNF4, kI6, Zero::kNone, 32}, {kNF4, kF16, Zero::kNone, 32}}}) {
    EXPECT_EQ(supported_format(c.format, 19, 320, false), c.served) << to_string(c.format);
    const auto random = random_matrix(c.format, 19, 320, testing::Contents::kReal, 6);
    ThreadPool pool(2);
    const auto served = support(unowned(random.view), pool);
    ASSERT_TRUE(served.ok()) << served.error().message;
    ASSERT_EQ(served->view.format, c.served);
    EXPECT_TRUE(packed_format(served->view).ok());
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t col = 0; col < 320; ++col) {
        // Half a unit in the last place of the scale, and of the offset.
        const double scale = testing::scale_at(random.view, row, col);
        const double element = random.view.value_of(code_at(random.view, row, col));
        const double offset = weight_at(random.view, row, col) - element * scale;
        const double bound = std::fabs(element) * (std::fabs(scale) * 0x1p-11 + 0x1p-25) +
                             std::fabs(offset) * 0x1.01p-11 + 0x1p-25;
        ASSERT_NEAR(weight_at(served->view, row, col), weight_at(random.view, row, col), bound)
            << to_string(c.format) << ' ' << row << ' ' << col;
      }
    }
  }
}

TEST(SupportedFormat, refuses_two_levels_beyond_f16) {
  auto random = random_matrix({kU4, kU6, Zero::kNone, 32}, 3, 256, testing::Contents::kReal, 6);
  random.scales->data()[2] = std::byte{63};
  const uint16_t factor = 0x6C00;  // 4096
  std::memcpy(random.scales->data() + 8, &factor, 2);
  ThreadPool pool(1);
  const auto served = support(unowned(random.view), pool);
  ASSERT_FALSE(served.ok());
  EXPECT_EQ(served.error().code, "recast.scale");
}

/// Rounded to nearest: half a unit in the last place of f16 (11 bits) for what is normal there, of
/// the numbers near 2^-24 else; of bf16 (8 bits).
TEST(SupportedFormat, rounds_the_rest_to_sixteen_bits) {
  for (const WeightFormat& format :
       {WeightFormat{kU5, kF16, Zero::kU8, 24}, WeightFormat{kI6, kF16, Zero::kNone, 8},
        WeightFormat{kU4, kF16, Zero::kU8, 24}, WeightFormat{kNF4, kF32, Zero::kNone, 40},
        WeightFormat{kVQ2, kE4M4, Zero::kNone, 40}, WeightFormat{kVQ4, kE4M4, Zero::kNone, 40, 16},
        WeightFormat{kNFL4, kE4M4, Zero::kNone, 24, 16}}) {
    ASSERT_FALSE(packed_bytes(format, 19, 240, false).ok()) << to_string(format);
    const auto random = random_matrix(format, 19, 240, testing::Contents::kReal, 4);
    ThreadPool pool(2);
    const auto served = support(unowned(random.view), pool);
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

/// Inputs of vectors are not gathered by kernels: weights are put where their inputs are.
TEST(SupportedFormat, vectors_with_an_order_of_inputs_are_dense) {
  for (const WeightFormat& format :
       {WeightFormat{kVQ2, kE4M4, Zero::kNone, 32}, WeightFormat{kVQ4, kF16, Zero::kNone, 32}}) {
    auto random = random_matrix(format, 5, 64, testing::Contents::kReal, 4);
    std::vector<uint32_t> order(64);
    for (uint32_t k = 0; k < 64; ++k) order[k] = 63 - k;
    random.view.input_order = order;
    EXPECT_EQ(supported_format(format, 5, 64, false), format);
    EXPECT_TRUE(is_dense(supported_format(random.view)));
    ThreadPool pool(1);
    const auto served = support(unowned(random.view), pool);
    ASSERT_TRUE(served.ok()) << served.error().message;
    EXPECT_TRUE(served->view.input_order.empty());
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t col = 0; col < 64; ++col) {
        const double exact = weight_at(random.view, row, 63 - col);
        ASSERT_NEAR(weight_at(served->view, row, col), exact,
                    std::max(std::fabs(exact) * 0x1p-11, 0x1p-25) + std::fabs(exact) * 0x1p-23);
      }
    }
  }
}

TEST(SupportedFormat, is_bf16_beyond_the_range_of_f16) {
  for (const float scale : {1e5f, 1e-7f}) {
    auto random = random_matrix({kU5, kF32, Zero::kU8, 8}, 4, 64, testing::Contents::kReal, 5);
    std::vector<float> scales(4 * 8, scale);
    Matrix matrix = unowned(random.view);
    matrix.view.scales = std::as_bytes(std::span(scales));
    ThreadPool pool(1);
    const auto served = support(std::move(matrix), pool);
    ASSERT_TRUE(served.ok());
    EXPECT_EQ(served->view.format.element, kBF16);
    EXPECT_GT(std::fabs(weight_at(served->view, 0, 0)) + std::fabs(weight_at(served->view, 1, 1)),
              0);
  }
}

/// Bits of 16-bit floats, finite.
Matrix dense_of(const std::vector<uint16_t>& numbers, Format element, int64_t cols) {
  Matrix matrix;
  matrix.view.format = {.element = element};
  matrix.view.rows = std::ssize(numbers) / cols;
  matrix.view.cols = cols;
  matrix.view.codes = std::as_bytes(std::span(numbers));
  return matrix;
}

/// All finite numbers of bf16 below `most`.
std::vector<uint16_t> bfloats_below(float most) {
  std::vector<uint16_t> numbers;
  for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
    const float value = to_float(BFloat16{static_cast<uint16_t>(bits)});
    if (std::fabs(value) < most) numbers.push_back(static_cast<uint16_t>(bits));
  }
  return numbers;
}

TEST(PackedFloats, are_the_numbers_themselves_where_activations_have_their_type) {
  ThreadPool pool(2);
  const std::vector<uint16_t> numbers = bfloats_below(4);
  const auto packed = as_packed_floats(dense_of(numbers, kBF16, 2), Number::kBF16, pool);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_EQ(packed->view.format, packed_floats(Number::kBF16));
  EXPECT_EQ(static_cast<const void*>(packed->view.codes.data()), numbers.data());
  EXPECT_EQ(packed->view.tensor_scale, 1);
  const auto format = packed_format(packed->view);
  ASSERT_TRUE(format.ok()) << format.error().message;
  EXPECT_EQ(format->bytes, *packed_bytes(packed->view.format, packed->view.rows, 2, false));
  std::vector<std::byte> bytes(format->bytes);
  pack_on_host(bytes.data(), packed->view, *format);
  for (int64_t row = 0; row < packed->view.rows; ++row) {
    ASSERT_EQ(packed_code_at(bytes.data(), *format, row, 1), numbers[2 * row + 1]);
  }
}

TEST(PackedFloats, of_bf16_in_f16_keep_all_bits_down_to_a_tiny_part_of_the_largest) {
  for (const float most : {0x1p-6f, 3.0f, 0x1p100f}) {
    ThreadPool pool(2);
    const std::vector<uint16_t> numbers = bfloats_below(most);
    const Matrix dense = dense_of(numbers, kBF16, 2);
    const auto packed = as_packed_floats(dense, Number::kF16, pool);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    EXPECT_EQ(packed->view.format, packed_floats(Number::kF16));
    int64_t exact = 0;
    for (int64_t row = 0; row < dense.view.rows; ++row) {
      for (const int64_t col : {0, 1}) {
        const double expected = weight_at(dense.view, row, col);
        const double found = weight_at(packed->view, row, col);
        const bool is_small = std::fabs(expected) < most * 0x1p-30;
        ASSERT_NEAR(found, expected, is_small ? most * 0x1p-39 : 0);
        exact += !is_small && expected != 0 ? 1 : 0;
      }
    }
    EXPECT_GT(exact, 7000);  // 30 powers of two, 128 numbers and signs of each
  }
}

TEST(PackedFloats, keep_the_factor_of_the_tensor) {
  ThreadPool pool(2);
  const std::vector<uint16_t> numbers = bfloats_below(4);
  Matrix dense = dense_of(numbers, kBF16, 2);
  dense.view.tensor_scale = 0.375;
  for (const Number number : {Number::kBF16, Number::kF16}) {
    const auto packed = as_packed_floats(dense, number, pool);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    for (int64_t row = dense.view.rows / 2; row < dense.view.rows; ++row) {
      const double weight = to_float(BFloat16{numbers[2 * row]});
      if (std::fabs(weight) < 0x1p-10) continue;
      ASSERT_EQ(weight_at(packed->view, row, 0), weight * 0.375);
    }
  }
}

TEST(PackedFloats, refuse_what_they_would_round) {
  ThreadPool pool(2);
  const std::vector<float> short_ones = {1.5f, -0.375f, 0x1.004p3f, 0x1.01p-29f};
  const std::vector<float> long_ones = {1.5f, -0.375f, 0x1.001p3f, 0};
  const std::vector<float> infinite = {1.5f, INFINITY, 0, 0};
  const auto dense = [](const std::vector<float>& values) {
    Matrix matrix;
    matrix.view.format = {.element = kF32};
    matrix.view.rows = matrix.view.cols = 2;
    matrix.view.codes = std::as_bytes(std::span(values));
    return matrix;
  };
  const auto found = as_packed_floats(dense(short_ones), Number::kF16, pool);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(weight_at(found->view, 1, 0), short_ones[2]);
  for (const auto& [values, number] :
       {std::pair(long_ones, Number::kF16), std::pair(short_ones, Number::kBF16),
        std::pair(infinite, Number::kF16), std::pair(infinite, Number::kBF16)}) {
    const auto refused = as_packed_floats(dense(values), number, pool);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "linear.unsupported");
    EXPECT_NE(refused.error().message.find("1 of 4 weights"), std::string::npos)
        << refused.error().message;
  }
  const std::vector<uint16_t> brain = {0x3f80, 0x7f80};
  const auto refused = as_packed_floats(dense_of(brain, kBF16, 2), Number::kF16, pool);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("not all are numbers"), std::string::npos);
}

}  // namespace
}  // namespace subbyte::gpu
