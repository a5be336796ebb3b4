// The interface for C against the definition of a weight (matrix/matrix.h), and there and back with
// what subbyte_quantize_blocks() writes.

#include "kernels/dequantize_c.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/blocks_c.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

const char* name_of(Zero zero) {
  const char* const names[] = {nullptr, "u8", "u16", "f16", "bf16"};
  return names[static_cast<int>(zero)];
}

TEST(DequantizeC, gives_the_weights_of_the_oracle_in_every_number) {
  const WeightFormat formats[] = {{Format::kU4, Format::kF16, Zero::kU8, 128},
                                  {Format::kI4, Format::kBF16, Zero::kBF16, 32},
                                  {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
                                  {Format::kNFL3, Format::kE4M4, Zero::kNone, 0},
                                  {Format::kU3, Format::kF32, Zero::kU16, 32},
                                  {Format::kBF16}};
  for (const WeightFormat& format : formats) {
    testing::RandomMatrix matrix =
        testing::random_matrix(format, 3, 256, testing::Contents::kExact, 7);
    const MatrixView& view = matrix.view;
    const std::string element(info(format.element).name);
    const std::string scale(is_dense(format) ? "" : info(format.scale).name);
    const SubbyteWeights weights = {element.c_str(),
                                    is_dense(format) ? nullptr : scale.c_str(),
                                    name_of(format.zero),
                                    format.group_size,
                                    view.rows,
                                    view.cols,
                                    view.codes.data(),
                                    view.scales.data(),
                                    view.zeros.data(),
                                    nullptr,
                                    view.tensor_scale};
    for (const char* number : {"f32", "f16", "bf16"}) {
      const FormatInfo& out_format = *find_format(number);
      std::vector<uint8_t> out(view.rows * view.cols * out_format.bits / 8);
      const char* error = nullptr;
      ASSERT_EQ(subbyte_dequantize(&weights, number, out.data(), 2, &error), 0) << error;
      for (int64_t i = 0; i < view.rows * view.cols; ++i) {
        uint32_t code = 0;
        std::memcpy(&code, &out[i * out_format.bits / 8], out_format.bits / 8);
        ASSERT_EQ(code, out_format.encode(weight_at(view, i / view.cols, i % view.cols),
                                          Rounding::kNearestEven))
            << to_string(format) << ' ' << number << ' ' << i;
      }
    }
  }
}

TEST(DequantizeC, takes_what_is_quantized) {
  struct Case {
    const char *format, *element, *scale;
    int64_t group;
    double step;  // largest distance of neighbours, of the largest number of a group
  };
  for (const Case& c : {Case{"mxfp8_e4m3", "e4m3", "e8m0", 32, 1. / 8},
                        {"mxfp8_e5m2", "e5m2", "e8m0", 32, 1. / 4},
                        {"mxfp4", "e2m1", "e8m0", 32, 1. / 2},
                        {"nvfp4", "e2m1", "e4m3", 16, 1. / 2}}) {
    std::vector<float> x(2 * 64), back(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.7f * static_cast<float>(i));
    const SubbyteBlocks blocks = {c.format, "f32", nullptr, nullptr, 2, 64, 64, 0.25f};
    std::vector<uint8_t> codes(2 * 64), scales(2 * 4);
    ASSERT_EQ(subbyte_quantize_blocks(&blocks, x.data(), codes.data(), scales.data(), 1, nullptr),
              0);
    const double tensor_scale = c.group == 16 ? 0.25 : 1;
    const SubbyteWeights weights = {c.element,    c.scale,       nullptr, c.group, 2,           64,
                                    codes.data(), scales.data(), nullptr, nullptr, tensor_scale};
    ASSERT_EQ(subbyte_dequantize(&weights, "f32", back.data(), 1, nullptr), 0);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], c.step) << c.format;
  }
}

TEST(DequantizeC, follows_act_order) {
  const uint8_t codes[] = {0x21, 0x43};
  const float scale = 2;
  const uint32_t order[] = {2, 0, 3, 1};
  SubbyteWeights weights = {"u4", "f32", nullptr, 0, 1, 4, codes, &scale, nullptr, order, 1};
  float out[4] = {};
  ASSERT_EQ(subbyte_dequantize(&weights, "f32", out, 1, nullptr), 0);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{4, 8, 2, 6}));
}

TEST(DequantizeC, refuses_by_one_line) {
  const uint8_t codes[4] = {};
  const float scales[4] = {};
  const auto error_of = [&](auto change, const char* number = "f32") {
    SubbyteWeights weights = {"u4", "f32", nullptr, 0, 1, 4, codes, scales, nullptr, nullptr, 1};
    change(weights);
    const char* error = "";
    float out[4] = {};
    return subbyte_dequantize(&weights, number, out, 1, &error) == 0 ? "ok" : std::string(error);
  };
  const uint32_t twice[] = {0, 1, 1, 2}, outside[] = {0, 1, 2, 4};
  EXPECT_EQ(error_of([](SubbyteWeights&) {}), "ok");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.element = "u9"; }),
            "dequantize: element: expected the name of a format, found \"u9\"");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.element = "f16"; }),
            "dequantize: element: expected up to 8 bits, found \"f16\"");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.scale = "u4"; }),
            "dequantize: scale: expected whole bytes, found \"u4\"");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.scale = nullptr; }),
            "dequantize: scale: expected the name of a format, or elements of f32, f16 or bf16 "
            "alone, found NULL");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.zero = "u4"; }),
            "dequantize: zero: expected u8, u16, f16, bf16 or NULL, found \"u4\"");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.zero = "u8"; }),
            "dequantize: zeros: expected an address, found NULL");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.group_size = -1; }),
            "dequantize: group_size: expected 0 or more, found -1");
  EXPECT_EQ(error_of([](SubbyteWeights& w) { w.cols = 0; }),
            "dequantize: rows and cols: expected up to 2^24, and a column, found 1 and 0");
  EXPECT_EQ(error_of([&](SubbyteWeights& w) { w.input_order = twice; }),
            "dequantize: input_order: expected every input once, found 1");
  EXPECT_EQ(error_of([&](SubbyteWeights& w) { w.input_order = outside; }),
            "dequantize: input_order: expected every input once, found 4");
  EXPECT_EQ(error_of([](SubbyteWeights&) {}, "u4"),
            "dequantize: expected a buffer of f32, f16 or bf16, found u4");
}

TEST(DequantizeC, refuses_addresses_that_are_null) {
  const uint8_t codes[2] = {};
  const float scale = 1;
  SubbyteWeights weights = {"u4", "f32", nullptr, 0, 1, 4, codes, &scale, nullptr, nullptr, 1};
  float out[4];
  const char* error = nullptr;
  EXPECT_EQ(subbyte_dequantize(nullptr, "f32", out, 1, &error), -1);
  EXPECT_EQ(std::string_view(error), "weights: expected an address, found NULL");
  EXPECT_EQ(subbyte_dequantize(&weights, "f32", nullptr, 1, &error), -1);
  EXPECT_EQ(std::string_view(error), "out: expected an address, found NULL");
  EXPECT_EQ(subbyte_dequantize(&weights, nullptr, out, 1, &error), -1);
  weights.codes = nullptr;
  EXPECT_EQ(subbyte_dequantize(&weights, "f32", out, 1, &error), -1);
  weights.codes = codes;
  weights.scales = nullptr;
  EXPECT_EQ(subbyte_dequantize(&weights, "f32", out, 1, &error), -1);
  EXPECT_EQ(subbyte_dequantize(nullptr, nullptr, nullptr, 1, nullptr), -1);
}

}  // namespace
}  // namespace subbyte
