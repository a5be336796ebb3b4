// Values at the edges of the number formats: what ordinary random data never meets.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/matmul.h"
#include "support/matmul_bounds.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

using testing::Contents;
using testing::kernels_of_this_machine;
using testing::loop_of;
using testing::multiply;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::variants_of;

/// Calls check(kernels, variant, m) for every variant for such weights.
template <typename Check>
void for_all_kernels(const MatrixView& weights, const Check& check) {
  for (const Kernels* kernels : kernels_of_this_machine()) {
    for (const KernelVariant& variant : variants_of(*kernels, weights)) {
      for (const int64_t m : {1, 5}) check(*kernels, variant, m);
    }
  }
}

TEST(SpecialValues, every_scale_code_of_e8m0_is_exact) {
  // 256 rows of one group each, all weights 1.0, one input: y is the scale, from 2^-127 (which is
  // subnormal) to NaN.
  const WeightFormat format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  RandomMatrix matrix = random_matrix(format, 256, 32, Contents::kExact, 1);
  for (std::byte& byte : matrix.codes->span()) byte = std::byte{0x22};
  for (int i = 0; i < 256; ++i) matrix.scales->data()[i] = static_cast<std::byte>(i);
  for_all_kernels(
      matrix.view, [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
        std::vector<float> x(m * 32);
        for (int64_t i = 0; i < m; ++i) x[i * 32 + 13] = 1;
        const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
        for (int i = 0; i < 255; ++i) {
          // To tiles a subnormal bf16 is zero.
          const bool zero = i == 0 && loop_of(variant).rounds_weights;
          EXPECT_EQ(y[i], zero ? 0 : std::ldexp(1.0, i - 127)) << kernels.name << ", code " << i;
        }
        EXPECT_TRUE(std::isnan(y[255])) << kernels.name;
      });
}

TEST(SpecialValues, every_scale_code_of_one_byte_is_exact) {
  struct Scale {
    Format element;
    Format scale;
    std::byte ones;  // a byte of codes with the same value each
    double value;
  };
  for (const Scale& test : {Scale{Format::kE2M1, Format::kE4M3, std::byte{0x22}, 1.0},
                            Scale{Format::kNFL4, Format::kE4M4, std::byte{0xFF}, 1.0},
                            Scale{Format::kNFL3, Format::kE4M4, std::byte{0xFF}, 1.0},
                            Scale{Format::kNFL5, Format::kE4M4, std::byte{0xFF}, 1.0}}) {
    for (const int64_t group : {16, 0}) {
      const WeightFormat format = {test.element, test.scale, Zero::kNone, group};
      RandomMatrix matrix = random_matrix(format, 256, 16, Contents::kExact, 6);
      for (std::byte& byte : matrix.codes->span()) byte = test.ones;
      // Rows are decoded some at a time, those with ordinary scales in another way: so once more
      // without others.
      for (const uint32_t codes : {256u, 127u}) {
        for (uint32_t i = 0; i < 256; ++i) {
          matrix.scales->data()[i] = static_cast<std::byte>(i % codes);
        }
        for_all_kernels(
            matrix.view, [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
              std::vector<float> x(m * 16);
              for (int64_t i = 0; i < m; ++i) x[i * 16 + 9] = 1;
              const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
              for (uint32_t i = 0; i < 256; ++i) {
                const double expected = info(test.scale).decode(i % codes);
                if (std::isnan(expected)) {
                  ASSERT_TRUE(std::isnan(y[i])) << kernels.name << ", code " << i % codes;
                } else {
                  ASSERT_EQ(y[i], expected) << kernels.name << ", code " << i % codes;
                }
              }
            });
      }
    }
  }
}

TEST(SpecialValues, every_scale_code_of_f16_and_bf16_is_exact) {
  for (const Format scale : {Format::kF16, Format::kBF16}) {
    for (const int64_t group : {8, 0}) {  // lanes of their own, and one for the row
      const WeightFormat format = {Format::kU4, scale, Zero::kU8, group};
      RandomMatrix matrix = random_matrix(format, 65536, 8, Contents::kExact, 2);
      for (std::byte& byte : matrix.codes->span()) byte = std::byte{0x99};
      for (std::byte& byte : matrix.zeros->span()) byte = std::byte{8};
      for (uint32_t i = 0; i < 65536; ++i) std::memcpy(matrix.scales->data() + 2 * i, &i, 2);
      for_all_kernels(matrix.view,
                      [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
                        std::vector<float> x(m * 8);
                        for (int64_t i = 0; i < m; ++i) x[i * 8 + 5] = 1;
                        const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
                        const testing::Loop& loop = loop_of(variant);
                        for (uint32_t i = 0; i < 65536; ++i) {
                          const double expected = info(scale).decode(i);
                          // Infinity meets the zero inputs of the other lanes only in other rows.
                          const bool subnormal = std::fabs(expected) < 0x1p-126;
                          if (!std::isfinite(expected)) {
                            ASSERT_FALSE(std::isfinite(y[i])) << kernels.name << ", code " << i;
                          } else if (loop.rounds_weights) {
                            // Weights are rounded to bf16, half a step of 2^-8; subnormals are
                            // zero.
                            ASSERT_NEAR(y[i], expected, std::fabs(expected) * 0x1p-8 + 0x1p-126)
                                << kernels.name << ", code " << i;
                          } else if (loop.flushes_weights && subnormal) {
                            // To tiles that multiply by weights, not by codes, a subnormal bf16 is
                            // zero.
                            ASSERT_NEAR(y[i], expected, 0x1p-126) << kernels.name << ", code " << i;
                          } else {
                            ASSERT_EQ(y[i], expected) << kernels.name << ", code " << i;
                          }
                        }
                      });
    }
  }
}

TEST(SpecialValues, an_infinite_scale_gives_infinity_when_the_row_ends_inside_a_block) {
  for (const int64_t group : {0, 40, 32, 8}) {
    const WeightFormat format = {Format::kU4, Format::kF32, Zero::kU8, group};
    RandomMatrix matrix = random_matrix(format, 2, 40, Contents::kExact, 3);
    for (std::byte& byte : matrix.codes->span()) byte = std::byte{0x99};  // weights of one
    for (std::byte& byte : matrix.zeros->span()) byte = std::byte{8};
    const float scales[2] = {std::numeric_limits<float>::infinity(), 1};
    for (int64_t i = 0; i < 2 * matrix.view.groups(); ++i) {
      std::memcpy(matrix.scales->data() + 4 * i, &scales[i / matrix.view.groups()], 4);
    }
    for_all_kernels(
        matrix.view, [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
          const std::vector<float> y =
              multiply(kernels, variant, matrix.view, std::vector<float>(m * 40, 1.0F), m);
          if (loop_of(variant).infinity_is_nan) {
            // Infinity meets low parts, or limbs, of zero.
            EXPECT_FALSE(std::isfinite(y[0])) << kernels.name;
          } else {
            EXPECT_EQ(y[0], scales[0]) << kernels.name << ", group " << group;
          }
          EXPECT_EQ(y[1], 40) << kernels.name << ", group " << group;
        });
  }
}

TEST(SpecialValues, an_offset_beside_a_scale_of_zero_is_the_weight) {
  for (const Format element : {Format::kU2, Format::kU3, Format::kU4, Format::kU8}) {
    for (const int64_t group : {8, 32, 128}) {
      RandomMatrix matrix =
          random_matrix({element, Format::kF16, Zero::kF32, group}, 2, 136, Contents::kExact, 6);
      std::ranges::fill(matrix.scales->span(), std::byte{0});
      std::ranges::fill(matrix.zeros->span(), std::byte{0});
      const float offset = 40;  // of the second row, beside those of zero
      for (int64_t g = 0; g < matrix.view.groups(); ++g) {
        std::memcpy(matrix.zeros->data() + (matrix.view.groups() + g) * 4, &offset, 4);
      }
      for_all_kernels(matrix.view, [&](const Kernels& kernels, const KernelVariant& variant,
                                       int64_t m) {
        const std::vector<float> x(static_cast<std::size_t>(m * 136), 1);
        const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
        for (int64_t i = 0; i < m; ++i) {
          EXPECT_EQ(y[i * 2], 0) << kernels.name;
          EXPECT_NEAR(y[i * 2 + 1], 40 * 136, 40 * 136 * 0x1p-20) << kernels.name << variant.name;
        }
      });
    }
  }
}

TEST(SpecialValues, an_input_that_is_not_finite_shows_in_every_output) {
  for (const MatmulKernel& listed : all_kernels().back()->matmuls) {
    for (const int64_t group : {32, 128}) {
      const WeightFormat format = {listed.element, listed.scale, listed.zero, group};
      const RandomMatrix matrix = random_matrix(format, 9, 136, Contents::kExact, 4);
      for (const float value :
           {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
            std::numeric_limits<float>::quiet_NaN()}) {
        for_all_kernels(
            matrix.view, [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
              std::vector<float> x = random_inputs(m, 136, Contents::kReal, 5);
              x[(m - 1) * 136 + 135] = value;
              const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
              for (int64_t i = 0; i < m; ++i) {
                for (int64_t n = 0; n < 9; ++n) {
                  EXPECT_EQ(std::isfinite(y[i * 9 + n]), i != m - 1) << kernels.name;
                }
              }
            });
      }
    }
  }
}

TEST(SpecialValues, inputs_of_any_magnitude_keep_their_bits) {
  // Weights of one or none, a single input: y is that input, as far as the variant rounds it, from
  // the smallest normal number to where codes times inputs may overflow before zero points are
  // subtracted (few_rows_int8.inl.h).
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 128};
  RandomMatrix matrix = random_matrix(format, 3, 128, Contents::kExact, 7);
  for (std::byte& byte : matrix.codes->span()) byte = std::byte{0x99};
  for (std::byte& byte : matrix.zeros->span()) byte = std::byte{8};
  const uint16_t one = 0x3C00;
  for (int64_t i = 0; i < 3; ++i) std::memcpy(matrix.scales->data() + 2 * i, &one, 2);
  for (const Kernels* kernels : kernels_of_this_machine()) {
    for (const KernelVariant& variant : variants_of(*kernels, matrix.view)) {
      for (int exponent = -126; exponent < 114; ++exponent) {
        std::vector<float> x(4 * 128);
        for (int64_t m = 0; m < 4; ++m)
          x[m * 129] = std::ldexp(m % 2 == 0 ? 1.0F : -1.0F, exponent);
        const std::vector<float> y = multiply(*kernels, variant, matrix.view, x, 4);
        // One byte for each activation counts what is below 2^-120 as zero.
        const double bound = loop_of(variant).takes_bytes ? std::ldexp(1.0, exponent) * 0x1p-20 : 0;
        for (int64_t i = 0; i < 12; ++i) {
          const float expected = x[i / 3 * 129];
          if (loop_of(variant).takes_bytes && exponent < -119) continue;
          ASSERT_NEAR(y[i], expected, bound)
              << kernels->name << ", " << variant.name << ", 2^" << exponent;
        }
      }
    }
  }
}

}  // namespace
}  // namespace subbyte::cpu
