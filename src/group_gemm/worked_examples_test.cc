// The worked examples of FlashInfer's guide to MXFP4, from numbers to products: activations and
// weights are quantized by quantize_blocks() as mxfp8_quantize() would, padded and swizzled, and
// multiplied. What the guide has wrong is mended here, by the numbers of the list of its errata:
//
//    1  the even input is in the low half of a byte, not in the high one
//    4  scales of weights have rows in 128s for each expert, outputs only in 8s
//    5  every element of m_indptr is a multiple of 4: [0, 5, 8] and [0, 50, 80, 120] are not
//    8  a group's scales begin at row (m_indptr[i] + 127 i) / 128 * 128, so that groups of whole
//       128s get 128 rows more than they need
//    9  groups differ in size: each is swizzled by itself
//   10  the alignment of mxfp8_quantize() pads K and changes no scale: 2880 becomes 2944
//   16  the scale 0 is 2^-127, the scale 255 is NaN

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "group_gemm/group_gemm.h"
#include "kernels/cpu/blocks.h"
#include "support/group_gemm_oracle.h"
#include "support/normal_numbers.h"

namespace subbyte::group_gemm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kOne{0x38};  // 1.0 as E4M3
constexpr std::byte kUnread{0xFF};

/// Where the scale of a row and a group lies in swizzled scales of a padded K, by the formula of
/// the list of errata (6).
int64_t swizzled(int64_t row, int64_t group, int64_t padded_k) {
  return (row / 128 * (padded_k / 128) + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 +
         group % 4;
}

int64_t whole(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

/// Arguments of the group GEMM in memory of their own.
struct Arguments {
  std::vector<int32_t> m_indptr;
  int64_t n;
  int64_t k;  // padded
  Bytes a, b, a_scale, b_scale, out;

  /// All weights and activations are 0, all scales, and all padding of scales, are kUnread.
  Arguments(std::vector<int32_t> groups, int64_t outputs, int64_t inputs)
      : m_indptr(std::move(groups)), n(outputs), k(whole(inputs, 128)) {
    a.resize(m_indptr.back() * k);
    b.resize(num_groups() * n * (k / 2));
    a_scale.resize(scale_row(num_groups()) * (k / 32), kUnread);
    b_scale.resize(num_groups() * scale_bytes_of_expert(), kUnread);
    out.resize(m_indptr.back() * n * 2);
  }

  int64_t num_groups() const { return static_cast<int64_t>(m_indptr.size()) - 1; }
  int64_t scale_row(int64_t group) const { return (m_indptr[group] + 127 * group) / 128 * 128; }
  int64_t scale_bytes_of_expert() const { return whole(n, 128) * (k / 32); }

  /// One scale for all groups of 32 of a row of a group of activations, or of an expert.
  void fill_a_scale(int64_t group, int64_t row, int scale) {
    for (int64_t g = 0; g < k / 32; ++g) {
      a_scale[scale_row(group) * (k / 32) + swizzled(row, g, k)] = static_cast<std::byte>(scale);
    }
  }
  void fill_b_scale(int64_t expert, int64_t row, int scale) {
    for (int64_t g = 0; g < k / 32; ++g) {
      b_scale[expert * scale_bytes_of_expert() + swizzled(row, g, k)] =
          static_cast<std::byte>(scale);
    }
  }

  GroupGemm gemm() {
    return {.a = a,
            .b = b,
            .a_scale = a_scale,
            .b_scale = b_scale,
            .m_indptr = m_indptr,
            .out = out,
            .n = n,
            .k = k};
  }
  double output(int64_t row, int64_t column) const {
    uint16_t code = 0;
    std::memcpy(&code, &out[(row * n + column) * 2], 2);
    return info(Format::kBF16).decode(code);
  }
};

Status multiply(const GroupGemm& gemm) {
  ThreadPool pool(2);
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, pool);
}

TEST(WorkedExamples, the_even_input_is_in_the_low_half) {
  Arguments arguments({0, 4}, 8, 128);
  for (int64_t m = 0; m < 4; ++m) {
    arguments.a[m * 128 + m] = kOne;  // row m is input m of the weights
    arguments.fill_a_scale(0, m, 127);
  }
  for (int64_t n = 0; n < 8; ++n) arguments.fill_b_scale(0, n, 123);
  std::fill(arguments.b.begin(), arguments.b.end(), std::byte{0x5E});
  ASSERT_TRUE(multiply(arguments.gemm()).ok());
  for (int64_t n = 0; n < 8; ++n) {
    EXPECT_EQ(arguments.output(0, n), -0.25);
    EXPECT_EQ(arguments.output(1, n), 0.1875);
  }
}

TEST(WorkedExamples, all_codes_by_the_scales_of_the_guide) {
  const double values[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const std::pair<int, double> scales[] = {
      {127, 1}, {128, 2}, {126, 0.5}, {135, 256}, {119, 0.00390625}};
  Arguments arguments({0, 4, 8, 12, 16, 20}, 16, 128);
  for (int64_t expert = 0; expert < 5; ++expert) {
    for (int64_t m = 0; m < 4; ++m) {
      arguments.a[(expert * 4 + m) * 128] = kOne;
      arguments.fill_a_scale(expert, m, 127);
    }
    for (int64_t code = 0; code < 16; ++code) {
      arguments.b[(expert * 16 + code) * 64] = static_cast<std::byte>(code);
      arguments.fill_b_scale(expert, code, scales[expert].first);
    }
  }
  ASSERT_TRUE(multiply(arguments.gemm()).ok());
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t code = 0; code < 16; ++code) {
      EXPECT_EQ(arguments.output(row, code), values[code] * scales[row / 4].second);
    }
  }
}

TEST(WorkedExamples, all_scale_bytes_of_activations) {
  Arguments arguments({0, 256}, 8, 128);
  for (int64_t m = 0; m < 256; ++m) {
    arguments.a[m * 128 + 127] = kOne;
    arguments.fill_a_scale(0, m, static_cast<int>(m));
  }
  for (int64_t n = 0; n < 8; ++n) {
    arguments.b[n * 64 + 63] = std::byte{0x30};  // 1.5 for the odd input
    arguments.fill_b_scale(0, n, 127);
  }
  ASSERT_TRUE(multiply(arguments.gemm()).ok());
  for (int m = 0; m < 255; ++m) {
    ASSERT_EQ(arguments.output(m, 7), std::ldexp(1.5, m - 127)) << "scale " << m;
  }
  EXPECT_TRUE(std::isnan(arguments.output(255, 7)));
}

TEST(WorkedExamples, groups_of_the_guide) {
  for (const std::vector<int32_t>& m_indptr :
       {std::vector<int32_t>{0, 5, 8}, std::vector<int32_t>{0, 50, 80, 120}}) {
    Arguments arguments(m_indptr, 8, 128);
    EXPECT_EQ(multiply(arguments.gemm()).error().code, "group_gemm.m_indptr");
  }
  const std::pair<std::vector<int32_t>, std::size_t> taken[] = {
      {{0, 52, 84, 124}, 384}, {{0, 128, 256}, 384}, {{0, 128, 192, 448}, 768}};
  for (const auto& [m_indptr, scale_rows] : taken) {
    Arguments arguments(m_indptr, 8, 2048);
    EXPECT_EQ(arguments.a_scale.size(), scale_rows * 64);
    EXPECT_TRUE(check_group_gemm(arguments.gemm()).ok());
  }
}

/// bf16 numbers of a normal distribution.
std::vector<uint16_t> random_numbers(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> numbers(size);
  for (uint16_t& number : numbers) {
    number = to_bfloat16(testing::normal_number(random)).bits;
  }
  return numbers;
}

/// Numbers [rows][k] as they are quantized, without padding and with linear scales.
std::vector<double> quantized_numbers(BlockFormat format, const std::vector<uint16_t>& numbers,
                                      int64_t rows, int64_t k) {
  const BlockQuantization blocks = {.format = format, .rows = rows, .cols = k};
  Bytes codes(blocks.code_bytes()), scales(blocks.scale_bytes());
  ThreadPool pool(2);
  const auto status = cpu::quantize_blocks(blocks, numbers.data(), codes.data(), scales.data(),
                                           **cpu::select_kernels(), pool);
  EXPECT_TRUE(status.ok());
  std::vector<double> values(rows * k);
  for (int64_t i = 0; i < rows * k; ++i) {
    const bool is_fp4 = format == BlockFormat::kMxfp4;
    const auto byte = std::to_integer<uint32_t>(codes[is_fp4 ? i / 2 : i]);
    const uint32_t code = !is_fp4 ? byte : i % 2 == 0 ? byte & 15 : byte >> 4;
    values[i] =
        std::ldexp(info(blocks.element()).decode(code), std::to_integer<int>(scales[i / 32]) - 127);
  }
  return values;
}

/// A whole call: bf16 activations [M][k] and weights [G][N][k], quantized into the arguments.
struct Call {
  int64_t k;
  std::vector<uint16_t> x, w;
  Arguments arguments;

  Call(const std::vector<int32_t>& m_indptr, int64_t n, int64_t inputs)
      : k(inputs),
        x(random_numbers(m_indptr.back() * inputs, 1)),
        w(random_numbers((static_cast<int64_t>(m_indptr.size()) - 1) * n * inputs, 2)),
        arguments(m_indptr, n, inputs) {
    Arguments& to = arguments;
    for (int64_t i = 0; i < to.num_groups(); ++i) {
      const int64_t begin = to.m_indptr[i];
      quantize({.format = BlockFormat::kMxfp8E4M3, .rows = to.m_indptr[i + 1] - begin},
               &x[begin * k], to.a.data() + begin * to.k,
               to.a_scale.data() + to.scale_row(i) * (to.k / 32));
      quantize({.format = BlockFormat::kMxfp4, .rows = n}, &w[i * n * k],
               to.b.data() + i * n * (to.k / 2),
               to.b_scale.data() + i * to.scale_bytes_of_expert());
    }
  }

  void quantize(BlockQuantization blocks, const uint16_t* numbers, std::byte* codes,
                std::byte* scales) const {
    blocks.layout = ScaleLayout::k128x4;
    blocks.cols = k;
    blocks.alignment = 128;
    EXPECT_EQ(blocks.padded_cols(), arguments.k);
    ThreadPool pool(2);
    const auto status =
        cpu::quantize_blocks(blocks, numbers, codes, scales, **cpu::select_kernels(), pool);
    EXPECT_TRUE(status.ok());
  }

  /// Sums are those of the numbers that blocks were quantized to, within the bound of the product.
  void expect_right() {
    const Arguments& to = arguments;
    const auto a = quantized_numbers(BlockFormat::kMxfp8E4M3, x, to.m_indptr.back(), k);
    const auto b = quantized_numbers(BlockFormat::kMxfp4, w, to.num_groups() * to.n, k);
    const auto oracle = testing::multiply_in_double(arguments.gemm());
    for (int64_t group = 0; group < to.num_groups(); ++group) {
      for (int64_t m = to.m_indptr[group]; m < to.m_indptr[group + 1]; ++m) {
        for (int64_t n = 0; n < to.n; ++n) {
          const double* const weights = &b[(group * to.n + n) * k];
          double sum = 0;
          for (int64_t i = 0; i < k; ++i) sum += a[m * k + i] * weights[i];
          const int64_t i = m * to.n + n;
          ASSERT_EQ(oracle.sums[i], sum);
          ASSERT_TRUE(testing::rounds_to(Format::kBF16, sum, testing::sum_bound(oracle, i, to.k),
                                         to.output(m, n)))
              << "row " << m << " output " << n;
        }
      }
    }
  }
};

TEST(WorkedExamples, the_complete_example_and_groups_of_any_size) {
  // 2 groups of 128 rows, 256 outputs and inputs: 128 rows of scales are left over.
  for (const std::vector<int32_t>& m_indptr :
       {std::vector<int32_t>{0, 128, 256}, {0, 52, 84, 124}, {0, 128, 192, 448}}) {
    Call call(m_indptr, 256, 256);
    ASSERT_TRUE(multiply(call.arguments.gemm()).ok());
    call.expect_right();
  }
}

TEST(WorkedExamples, down_proj_of_gpt_oss_is_padded_to_2944_by_2944) {
  Call call({0, 4, 8}, 2880, 2880);
  Arguments& arguments = call.arguments;
  EXPECT_EQ(arguments.k, 2944);
  EXPECT_EQ(arguments.b.size(), 2u * 2880 * 1472);
  EXPECT_EQ(arguments.b_scale.size(), 2u * 2944 * 92);
  Bytes outputs[2];
  for (const bool swap_ab : {false, true}) {
    GroupGemm gemm = arguments.gemm();
    gemm.swap_ab = swap_ab;
    std::fill(arguments.out.begin(), arguments.out.end(), kUnread);
    ASSERT_TRUE(multiply(gemm).ok());
    outputs[swap_ab] = arguments.out;
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  call.expect_right();
}

}  // namespace
}  // namespace subbyte::group_gemm
