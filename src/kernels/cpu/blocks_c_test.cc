#include "kernels/blocks_c.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/blocks.h"

namespace subbyte {
namespace {

TEST(BlocksC, gives_the_bytes_of_the_cxx_interface) {
  const SubbyteBlocks blocks = {"mxfp8_e5m2", "f32", "ocp_floor", "128x4", 5, 96, 128, 1};
  SubbyteBlocksSizes sizes = {};
  ASSERT_EQ(subbyte_blocks_sizes(&blocks, &sizes, nullptr), 0);
  EXPECT_EQ(sizes.padded_cols, 128);
  EXPECT_EQ(sizes.code_bytes, 5 * 128);
  EXPECT_EQ(sizes.scale_rows, 128);
  EXPECT_EQ(sizes.scale_cols, 4);
  std::vector<float> x(5 * 96);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.37f * static_cast<float>(i % 101) - 15;
  std::vector<uint8_t> codes(sizes.code_bytes);
  std::vector<uint8_t> scales(sizes.scale_rows * sizes.scale_cols);
  ASSERT_EQ(subbyte_quantize_blocks(&blocks, x.data(), codes.data(), scales.data(), 2, nullptr), 0);
  std::vector<uint8_t> expected_codes(codes.size());
  std::vector<uint8_t> expected_scales(scales.size());
  ThreadPool pool(1);
  ASSERT_TRUE(cpu::quantize_blocks({.format = BlockFormat::kMxfp8E5M2,
                                    .input = Format::kF32,
                                    .rule = ScaleRule::kOcpFloor,
                                    .layout = ScaleLayout::k128x4,
                                    .rows = 5,
                                    .cols = 96,
                                    .alignment = 128},
                                   x.data(), expected_codes.data(), expected_scales.data(),
                                   **cpu::select_kernels("scalar"), pool)
                  .ok());
  EXPECT_EQ(codes, expected_codes);
  EXPECT_EQ(scales, expected_scales);
}

/// The names of the interface for C in the order of the enums, NULL last.
constexpr const char* kFormats[] = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"};
constexpr const char* kRules[] = {"ocp_floor", "ceil", "bump_175", nullptr};
constexpr const char* kLayouts[] = {"linear", "128x4", "8x4", nullptr};
constexpr std::pair<const char*, Format> kInputs[] = {
    {"f32", Format::kF32}, {"f16", Format::kF16}, {"bf16", Format::kBF16}};

void expect_bytes_of_cxx(const SubbyteBlocks& c, const BlockQuantization& blocks) {
  std::vector<uint8_t> x(blocks.rows * blocks.cols * info(blocks.input).bits / 8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * i % 253 & 0xBF);
  SubbyteBlocksSizes sizes = {};
  ASSERT_EQ(subbyte_blocks_sizes(&c, &sizes, nullptr), 0);
  ASSERT_EQ(sizes.code_bytes, blocks.code_bytes());
  ASSERT_EQ(sizes.scale_rows * sizes.scale_cols, blocks.scale_bytes());
  std::vector<uint8_t> codes(sizes.code_bytes), expected_codes(codes.size());
  std::vector<uint8_t> scales(blocks.scale_bytes()), expected_scales(scales.size());
  ASSERT_EQ(subbyte_quantize_blocks(&c, x.data(), codes.data(), scales.data(), 1, nullptr), 0);
  ThreadPool pool(1);
  ASSERT_TRUE(cpu::quantize_blocks(blocks, x.data(), expected_codes.data(), expected_scales.data(),
                                   **cpu::select_kernels("scalar"), pool)
                  .ok());
  EXPECT_EQ(codes, expected_codes) << c.format << ' ' << c.input;
  EXPECT_EQ(scales, expected_scales) << c.format << ' ' << c.input;
}

TEST(BlocksC, reaches_every_option) {
  for (int format = 0; format < 4; ++format) {
    for (const auto& [input, number] : kInputs) {
      for (int rule = 0; rule < 4; ++rule) {
        for (int layout = 0; layout < 4; ++layout) {
          expect_bytes_of_cxx(
              {kFormats[format], input, kRules[rule], kLayouts[layout], 9, 96, 128, 0.5f},
              {.format = static_cast<BlockFormat>(format),
               .input = number,
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

TEST(BlocksC, refuses_by_one_line) {
  SubbyteBlocks blocks = {"mxfp9", "f32", nullptr, nullptr, 1, 32, 32, 1};
  SubbyteBlocksSizes sizes = {};
  const char* error = nullptr;
  EXPECT_EQ(subbyte_blocks_sizes(&blocks, &sizes, &error), -1);
  EXPECT_EQ(std::string_view(error),
            "format: expected one of mxfp8_e4m3, mxfp8_e5m2, mxfp4, nvfp4, found \"mxfp9\"");
  blocks = {"mxfp4", "f32", nullptr, nullptr, 1, 31, 32, 1};
  EXPECT_EQ(subbyte_quantize_blocks(&blocks, nullptr, nullptr, nullptr, 1, &error), -1);
  EXPECT_EQ(std::string_view(error),
            "quantize: expected up to 2^24 rows and columns, columns in 32s, found 1 and 31");
}

TEST(BlocksC, refuses_addresses_that_are_null) {
  const SubbyteBlocks blocks = {"mxfp4", "f32", nullptr, nullptr, 1, 32, 32, 1};
  SubbyteBlocksSizes sizes = {};
  std::array<float, 32> x{};
  std::array<uint8_t, 32> out{};
  const char* error = nullptr;
  const auto line = [&](int result) {
    EXPECT_EQ(result, -1);
    return result == -1 ? std::string(error) : std::string();
  };
  const std::string end = ": expected an address, found NULL";
  EXPECT_EQ(line(subbyte_blocks_sizes(nullptr, &sizes, &error)), "blocks" + end);
  EXPECT_EQ(line(subbyte_blocks_sizes(&blocks, nullptr, &error)), "sizes" + end);
  EXPECT_EQ(line(subbyte_quantize_blocks(nullptr, x.data(), out.data(), out.data(), 1, &error)),
            "blocks" + end);
  EXPECT_EQ(line(subbyte_quantize_blocks(&blocks, nullptr, out.data(), out.data(), 1, &error)),
            "x" + end);
  EXPECT_EQ(line(subbyte_quantize_blocks(&blocks, x.data(), nullptr, out.data(), 1, &error)),
            "codes" + end);
  EXPECT_EQ(line(subbyte_quantize_blocks(&blocks, x.data(), out.data(), nullptr, 1, &error)),
            "scales" + end);
  EXPECT_EQ(subbyte_blocks_sizes(nullptr, nullptr, nullptr), -1);
  EXPECT_EQ(subbyte_quantize_blocks(nullptr, nullptr, nullptr, nullptr, 1, nullptr), -1);
}

}  // namespace
}  // namespace subbyte
