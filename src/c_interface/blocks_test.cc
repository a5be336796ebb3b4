// Blocks of the C interface against those of C++, and there and back.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/blocks.h"
#include "support/c_handles.h"

namespace subbyte::testing {
namespace {

/// The names of the interface in the order of the enums, NULL last.
constexpr const char* kFormats[] = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"};
constexpr const char* kRules[] = {"ocp_floor", "ceil", "bump_175", nullptr};
constexpr const char* kLayouts[] = {"linear", "128x4", "8x4", nullptr};

void expect_bytes_of_cxx(const CContext& context, const subbyte_blocks& c,
                         const BlockQuantization& blocks) {
  std::vector<uint8_t> x(blocks.rows * blocks.cols * info(blocks.input).bits / 8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * i % 253 & 0xBF);
  auto sizes = c_struct<subbyte_blocks_sizes>();
  ASSERT_EQ(subbyte_blocks_measure(&c, &sizes), SUBBYTE_OK) << subbyte_last_error();
  ASSERT_EQ(sizes.padded_cols, blocks.padded_cols());
  ASSERT_EQ(sizes.code_bytes, blocks.code_bytes());
  ASSERT_EQ(sizes.scale_rows * sizes.scale_cols, blocks.scale_bytes());
  std::vector<uint8_t> codes(sizes.code_bytes), expected_codes(codes.size());
  std::vector<uint8_t> scales(blocks.scale_bytes()), expected_scales(scales.size());
  ASSERT_EQ(
      subbyte_blocks_quantize(context.get(), &c, x.data(), codes.data(), scales.data(), nullptr),
      SUBBYTE_OK);
  ThreadPool pool(1);
  ASSERT_TRUE(cpu::quantize_blocks(blocks, x.data(), expected_codes.data(), expected_scales.data(),
                                   **cpu::select_kernels("scalar"), pool)
                  .ok());
  EXPECT_EQ(codes, expected_codes) << c.format << ' ' << c.input;
  EXPECT_EQ(scales, expected_scales) << c.format << ' ' << c.input;
}

subbyte_blocks c_blocks(const char* format, int32_t input, int64_t rows, int64_t cols) {
  auto blocks = c_struct<subbyte_blocks>();
  blocks.format = format;
  blocks.input = input;
  blocks.rows = rows;
  blocks.cols = cols;
  return blocks;
}

TEST(CBlocks, reach_every_option) {
  const CContext context = c_context();
  for (int format = 0; format < 4; ++format) {
    for (const int32_t input : {SUBBYTE_F32, SUBBYTE_F16, SUBBYTE_BF16}) {
      for (int rule = 0; rule < 4; ++rule) {
        for (int layout = 0; layout < 4; ++layout) {
          subbyte_blocks c = c_blocks(kFormats[format], input, 9, 96);
          c.rule = kRules[rule];
          c.layout = kLayouts[layout];
          c.alignment = 128;
          c.tensor_scale = 0.5f;
          expect_bytes_of_cxx(
              context, c,
              {.format = static_cast<BlockFormat>(format),
               .input = static_cast<Format>(input),
               .rule = rule == 3 ? ScaleRule::kCeil : static_cast<ScaleRule>(rule),
               .layout = layout == 3 ? ScaleLayout::kLinear : static_cast<ScaleLayout>(layout),
               .rows = 9,
               .cols = 96,
               .alignment = 128,
               .tensor_scale = 0.5f});
        }
      }
    }
  }
}

TEST(CBlocks, are_matrices) {
  struct Case {
    const char* format;
    int32_t element, scale;
    int64_t group;
    double step;  // largest distance of neighbours, of the largest number of a group
  };
  const CContext context = c_context();
  for (const Case& c : {Case{"mxfp8_e4m3", SUBBYTE_E4M3, SUBBYTE_E8M0, 32, 1. / 8},
                        {"mxfp8_e5m2", SUBBYTE_E5M2, SUBBYTE_E8M0, 32, 1. / 4},
                        {"mxfp4", SUBBYTE_E2M1, SUBBYTE_E8M0, 32, 1. / 2},
                        {"nvfp4", SUBBYTE_E2M1, SUBBYTE_E4M3, 16, 1. / 2}}) {
    std::vector<float> x(2 * 64), back(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.7f * static_cast<float>(i));
    subbyte_blocks blocks = c_blocks(c.format, SUBBYTE_F32, 2, 64);
    blocks.tensor_scale = 0.25f;
    std::vector<uint8_t> codes(2 * 64), scales(2 * 4);
    ASSERT_EQ(subbyte_blocks_quantize(context.get(), &blocks, x.data(), codes.data(), scales.data(),
                                      nullptr),
              SUBBYTE_OK);
    auto w = c_struct<subbyte_weights>();
    w.element = c.element;
    w.scale = c.scale;
    w.group_size = c.group;
    w.rows = 2;
    w.cols = 64;
    w.codes = codes.data();
    w.scales = scales.data();
    w.tensor_scale = c.group == 16 ? 0.25 : 1;
    ASSERT_EQ(subbyte_dequantize(context.get(), &w, SUBBYTE_F32, back.data(), nullptr), SUBBYTE_OK);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], c.step) << c.format;
  }
}

TEST(CBlocks, refuse_by_one_line) {
  const CContext context = c_context();
  subbyte_blocks blocks = c_blocks("mxfp9", SUBBYTE_F32, 1, 32);
  auto sizes = c_struct<subbyte_blocks_sizes>();
  EXPECT_EQ(subbyte_blocks_measure(&blocks, &sizes), SUBBYTE_ARGUMENT);
  EXPECT_STREQ(subbyte_last_error(),
               "blocks.format: expected one of mxfp8_e4m3, mxfp8_e5m2, mxfp4, nvfp4, found "
               "\"mxfp9\"");
  blocks = c_blocks("mxfp4", SUBBYTE_F32, 1, 31);
  EXPECT_EQ(subbyte_blocks_measure(&blocks, &sizes), SUBBYTE_ARGUMENT);
  EXPECT_STREQ(subbyte_last_error(),
               "quantize: expected up to 2^24 rows and columns, columns in 32s, found 1 and 31");
  blocks = c_blocks("mxfp4", SUBBYTE_U4, 1, 32);
  EXPECT_EQ(subbyte_blocks_measure(&blocks, &sizes), SUBBYTE_ARGUMENT);
  blocks = c_blocks("mxfp4", SUBBYTE_F32, 1, 32);
  blocks.rule = "up";
  EXPECT_EQ(code_of(subbyte_blocks_measure(&blocks, &sizes)), "blocks.rule");
}

TEST(CBlocks, refuse_null_for_every_address) {
  const CContext context = c_context();
  const subbyte_blocks blocks = c_blocks("mxfp4", SUBBYTE_F32, 1, 32);
  auto sizes = c_struct<subbyte_blocks_sizes>();
  std::vector<float> x(32);
  std::vector<uint8_t> out(32);
  expect_nulls_refused("measure", &subbyte_blocks_measure, {}, {&blocks, &sizes});
  expect_nulls_refused("quantize", &subbyte_blocks_quantize, {5},
                       {context.get(), &blocks, x.data(), out.data(), out.data() + 16, nullptr});
}

}  // namespace
}  // namespace subbyte::testing
