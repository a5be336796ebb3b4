// Random bytes, read by the table of E2M1 values and 2^(byte - 127).

#include <gtest/gtest.h>

#include "checkpoints/flavours/ct_config.h"
#include "support/round_trip.h"

namespace subbyte {
namespace {

constexpr double kE2M1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

class Mxfp4Packed : public RoundTripFixture {
 protected:
  CompressedState& ct() { return said_by<CompressedState>(compressed_tensors_flavour); }

  Mxfp4Packed() { ct().schemes = {{CompressedScheme::Format::kMxfp4, 4, true, 32, false}}; }

  static std::vector<TestTensor> layer(uint64_t rows, uint64_t cols) {
    Random random(rows * 100 + cols);
    std::vector<TestTensor> tensors = {
        random_bits("m.weight_packed", DType::kU8, {rows, cols / 2}, random),
        random_bits("m.weight_scale", DType::kU8, {rows, cols / 32}, random)};
    for (char& byte : tensors[1].bytes) byte = byte == '\xFF' ? '\x7F' : byte;
    return tensors;
  }
};

TEST_F(Mxfp4Packed, means_what_the_definition_says_and_comes_back) {
  for (const auto& [rows, cols] : {std::pair(1, 32), {8, 32}, {10, 96}, {17, 256}}) {
    const std::vector<TestTensor> tensors = layer(rows, cols);
    const auto weight = [&, width = cols](int64_t n, int64_t k) {
      const auto byte = tensors[0].at<uint8_t>((n * width + k) / 2);
      const int scale = tensors[1].at<uint8_t>((n * width + k) / 32);
      return kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4] * std::ldexp(1.0, scale - 127);
    };
    expect_in_place(tensors, rows, cols, weight);
    expect_round_trip("mxfp4_pack_quantized", tensors);
  }
}

TEST_F(Mxfp4Packed, has_the_bytes_of_gpt_oss) {
  open(layer(8, 64));
  std::vector<TestTensor> written = exported("mxfp4");
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0].shape, (Shape{1, 8, 2, 16}));
  EXPECT_EQ(written[0].bytes, layer(8, 64)[0].bytes);
  EXPECT_EQ(written[1].bytes, layer(8, 64)[1].bytes);
}

TEST_F(Mxfp4Packed, refuses_wrong_shapes_types_and_nan) {
  const std::vector<TestTensor> good = layer(8, 64);
  Random random(1);
  const auto packed = [&](DType dtype, Shape shape) {
    return code_of({random_bits("m.weight_packed", dtype, std::move(shape), random), good[1]});
  };
  const auto scales = [&](DType dtype, Shape shape) {
    return code_of({good[0], filled<uint8_t>("m.weight_scale", dtype, std::move(shape), 120)});
  };
  EXPECT_EQ(code_of(good), "");
  EXPECT_EQ(packed(DType::kU8, {8, 33}), "import.shape");
  EXPECT_EQ(packed(DType::kU8, {8, 48}), "import.shape");
  EXPECT_EQ(packed(DType::kU8, {256}), "import.shape");
  EXPECT_EQ(packed(DType::kU8, {0, 32}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {8, 3}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {16}), "import.shape");
  EXPECT_EQ(scales(DType::kF8E8M0, {8, 2}), "import.dtype");
  EXPECT_EQ(code_of({good[0]}), "import.missing");
  std::vector<TestTensor> nan = good;
  nan[1].set<uint8_t>(5, 0xFF);
  EXPECT_EQ(code_of(nan), "import.scale_not_finite");
  EXPECT_NE(message().find("at index 5"), std::string::npos) << message();
}

TEST_F(Mxfp4Packed, refuses_another_label) {
  open(layer(8, 64));
  ct().schemes = {{CompressedScheme::Format::kNvfp4, 4, true, 16, false}};
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("mxfp4-pack-quantized"), std::string::npos) << message();
  say({{"quant_method", "mxfp4"}, {"modules_to_not_convert", nullptr}});
  EXPECT_EQ(code(), "import.config");
}

TEST_F(Mxfp4Packed, the_writer_refuses_what_is_not_mxfp4) {
  const auto code_of_shape = [](const ExportShape& shape) {
    const auto described = find_exporter("mxfp4_pack_quantized")->describe(shape, "m");
    return described.ok() ? std::string_view() : described.error().code;
  };
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  EXPECT_EQ(code_of_shape({mxfp4, 8, 64}), "");
  EXPECT_EQ(code_of_shape({mxfp4, 8, 48}), "export.shape");
  EXPECT_EQ(code_of_shape({mxfp4, 8, 64, true}), "export.act_order");
  EXPECT_EQ(code_of_shape({mxfp4, 8, 64, false, 2}), "export.experts");
  EXPECT_EQ(code_of_shape({{Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, 8, 64}),
            "export.format");
}

}  // namespace
}  // namespace subbyte
