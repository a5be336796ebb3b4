#include "kernels/blocks_c.h"

#include <gtest/gtest.h>

#include <string_view>
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

}  // namespace
}  // namespace subbyte
