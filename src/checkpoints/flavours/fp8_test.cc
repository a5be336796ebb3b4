// Random codes, read by the definition of E4M3 and a factor for each block, row or tensor.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/modelopt.h"
#include "support/round_trip.h"

namespace subbyte {
namespace {

/// By the definition of OCP, without the library's decoder; NaN has all bits of the magnitude set.
double e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code < 128 ? value : -value;
}

/// Shape of the factors, and the outputs and inputs that share one.
struct Factors {
  const char* suffix;
  DType dtype;
  Shape shape;
  int64_t block_rows;
  int64_t block_cols;
};

class Fp8 : public RoundTripFixture {
 protected:
  CompressedState& ct() { return said_by<CompressedState>(compressed_tensors_flavour); }
  ModeloptState& modelopt() { return said_by<ModeloptState>(modelopt_flavour); }

  Fp8() { say({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}); }

  /// Any codes but NaN; factors from 2^-7 on, which every type holds.
  static std::vector<TestTensor> layer(uint64_t rows, uint64_t cols, const Factors& factors) {
    Random random(rows * 1000 + cols);
    TestTensor weight = random_bits("m.weight", DType::kF8E4M3, {rows, cols}, random);
    for (char& code : weight.bytes) {
      if ((code & 0x7F) == 0x7F) code = '\x7E';
    }
    uint64_t count = 1;
    for (const uint64_t size : factors.shape) count *= size;
    TestTensor scales{std::string("m") + factors.suffix, factors.dtype, factors.shape, {}};
    const auto width = static_cast<std::size_t>(bits(factors.dtype) / 8);
    scales.bytes.resize(count * width);
    for (uint64_t i = 0; i < count; ++i) {
      const auto value =
          static_cast<float>(std::ldexp(1.0, static_cast<int>(random.below(14)) - 7));
      uint32_t code = 0;
      if (width == 4) std::memcpy(&code, &value, 4);
      if (factors.dtype == DType::kBF16) code = to_bfloat16(value).bits;
      if (factors.dtype == DType::kF16) code = to_float16(value).bits;
      if (width == 1) code = static_cast<uint32_t>(127 + std::ilogb(value));
      std::memcpy(scales.bytes.data() + i * width, &code, width);
    }
    return {weight, scales};
  }

  static double factor_at(const TestTensor& factors, int64_t index) {
    switch (factors.dtype) {
      case DType::kF32:
        return factors.at<float>(index);
      case DType::kBF16:
        return to_float(BFloat16{factors.at<uint16_t>(index)});
      case DType::kF16:
        return to_float(Float16{factors.at<uint16_t>(index)});
      default:
        return std::ldexp(1.0, factors.at<uint8_t>(index) - 127);
    }
  }

  void expect_definition(uint64_t rows, uint64_t cols, const Factors& factors) {
    const std::vector<TestTensor> tensors = layer(rows, cols, factors);
    const auto width = static_cast<int64_t>(cols);
    const int64_t per_row = (width + factors.block_cols - 1) / factors.block_cols;
    const auto weight = [&](int64_t n, int64_t k) {
      const int64_t index = n / factors.block_rows * per_row + k / factors.block_cols;
      return e4m3(tensors[0].at<uint8_t>(n * width + k)) * factor_at(tensors[1], index);
    };
    expect_in_place(tensors, static_cast<int64_t>(rows), width, weight);
  }

  void expect_round_trip_of(std::string_view exporter, uint64_t rows, uint64_t cols,
                            const Factors& factors) {
    expect_round_trip(exporter, layer(rows, cols, factors));
  }

  void use_scheme(int64_t block_rows, int64_t group_size) {
    ct().schemes = {{CompressedScheme::Format::kFp8, 8, true, group_size, false, block_rows}};
  }
};

TEST_F(Fp8, of_experts_may_have_factors_in_a_stack_of_all) {
  // Gate and up of two experts, each of two blocks.
  const std::string experts = "m.experts.";
  Random random(5);
  std::vector<TestTensor> tensors;
  for (const std::string name : {"0.gate_proj", "0.up_proj", "1.gate_proj", "1.up_proj"}) {
    tensors.push_back(random_bits(experts + name + ".weight", DType::kF8E4M3, {256, 128}, random));
  }
  TestTensor factors{experts + "gate_up_proj_scale_inv", DType::kF32, {2, 4, 1}, {}};
  for (int i = 1; i <= 8; ++i) {
    const auto value = static_cast<float>(i);
    factors.bytes.append(reinterpret_cast<const char*>(&value), 4);
  }
  tensors.push_back(factors);
  open(tensors);
  int first = 1;
  for (const std::string name : {"0.gate_proj", "0.up_proj", "1.gate_proj", "1.up_proj"}) {
    const auto matrix = import_matrix(context(), experts + name);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    std::vector<float> scales(256);
    ASSERT_EQ(matrix->view.scales.size(), scales.size() * sizeof(float));
    std::memcpy(scales.data(), matrix->view.scales.data(), matrix->view.scales.size());
    EXPECT_EQ(scales.front(), first) << name;
    EXPECT_EQ(scales[127], first) << name;
    EXPECT_EQ(scales.back(), first + 1) << name;
    first += 2;
  }
}

TEST_F(Fp8, leaves_factors_beside_floats_aside) {
  Random random(6);
  open({random_bits("m.weight", DType::kBF16, {64, 128}, random),
        {"m.weight_scale_inv", DType::kF32, {1, 1}, std::string(4, '\0')}});
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->importer, "dense");
  EXPECT_EQ(info->tensors.size(), 2u);
}

TEST_F(Fp8, blocks_may_be_short_and_factors_of_any_type) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0, DType::kU8}) {
    expect_definition(128, 128, {".weight_scale_inv", dtype, {1, 1}, 128, 128});
    expect_definition(320, 192, {".weight_scale_inv", dtype, {3, 2}, 128, 128});
    expect_definition(576, 64, {".weight_scale_inv", dtype, {5, 1}, 128, 128});
    expect_definition(7, 384, {".weight_scale", dtype, {1, 3}, 128, 128});
  }
  EXPECT_EQ(matrix_.view.format, (WeightFormat{Format::kE4M3, Format::kE8M0, Zero::kNone, 128}));
  say("weight_block_size", {64, 32});
  expect_definition(100, 72, {".weight_scale_inv", DType::kF32, {2, 3}, 64, 32});
}

TEST_F(Fp8, factors_of_rows_and_of_tensors) {
  say("weight_block_size", nullptr);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}}) {
    expect_definition(24, 40, {".weight_scale", DType::kF32, shape, 24, 40});
  }
  for (const Shape& shape : {Shape{24}, Shape{24, 1}}) {
    expect_definition(24, 40, {".weight_scale", DType::kBF16, shape, 1, 40});
  }
  EXPECT_EQ(matrix_.view.format, (WeightFormat{Format::kE4M3, Format::kBF16, Zero::kNone, 0}));
}

TEST_F(Fp8, compressed_tensors_says_which_by_its_strategy) {
  use_scheme(1, -1);
  expect_definition(24, 40, {".weight_scale", DType::kBF16, {24, 1}, 1, 40});
  use_scheme(-1, -1);
  expect_definition(24, 40, {".weight_scale", DType::kF32, {1}, 24, 40});
  use_scheme(128, 128);
  expect_definition(130, 136, {".weight_scale", DType::kBF16, {2, 2}, 128, 128});
  use_scheme(1, 32);
  expect_definition(6, 64, {".weight_scale", DType::kBF16, {6, 2}, 1, 32});
  open(layer(6, 64, {".weight_scale", DType::kBF16, {6, 1}, 1, 64}));
  EXPECT_EQ(code(), "import.shape");
  EXPECT_NE(message().find("expected shape [6, 2]"), std::string::npos) << message();
}

TEST_F(Fp8, modelopt_has_factors_of_tensors_and_scales_of_activations) {
  modelopt().weights = {ModeloptWeights::kFp8};
  std::vector<TestTensor> tensors = layer(24, 40, {".weight_scale", DType::kF32, {}, 24, 40});
  tensors.push_back(filled<float>("m.input_scale", DType::kF32, {}, 0.5F));
  open(tensors);
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->importer, "fp8");
  EXPECT_EQ(info->tensors.size(), 3u);
  modelopt().fp8_in_blocks = true;  // FP8_PB_WO
  expect_definition(256, 136, {".weight_scale", DType::kF32, {2, 1, 2, 1}, 128, 128});
  modelopt().weights = {ModeloptWeights::kNvfp4};
  EXPECT_EQ(code(), "import.config");
}

/// w = e4m3 * 2^(byte - 127): MXFP8 of ModelOpt and of compressed-tensors has one file.
TEST_F(Fp8, mxfp8_has_a_power_of_two_for_32_inputs) {
  std::vector<TestTensor> tensors = layer(6, 64, {".weight_scale", DType::kU8, {6, 2}, 1, 32});
  for (std::size_t i = 0; i < 12; ++i) tensors[1].set(i, static_cast<uint8_t>(100 + 3 * i));
  const auto expect_definition_of = [&] {
    open(tensors);
    expect_weights(6, 64, [&](int64_t n, int64_t k) {
      const auto index = static_cast<std::size_t>(n * 2 + k / 32);
      return std::ldexp(ieee_value(tensors[0].at<uint8_t>(n * 64 + k), 4, 3),
                        tensors[1].at<uint8_t>(index) - 127);
    });
    EXPECT_EQ(to_string(matrix_.view.format), "e4m3 g32 scale e8m0");
  };
  modelopt().weights = {ModeloptWeights::kMxfp8};
  expect_definition_of();
  modelopt().weights = {ModeloptWeights::kFp8};
  EXPECT_EQ(code(), "import.shape");
  use_scheme(1, 32);
  expect_definition_of();
}

TEST_F(Fp8, factors_of_inputs_that_modelopt_leaves_beside_weights_count) {
  std::vector<TestTensor> tensors = {
      filled<uint8_t>("m.weight", DType::kF8E4M3, {6, 64}, 0x38),   // 1
      filled<uint8_t>("m.weight_scale", DType::kU8, {6, 2}, 128)};  // 2
  modelopt().weights = {ModeloptWeights::kMxfp8};
  tensors.push_back(filled<float>("m.pre_quant_scale", DType::kF32, {64}, 3.0F));
  open(tensors);
  expect_weights(6, 64, [](int64_t, int64_t) { return 6.0; });
}

TEST_F(Fp8, refuses_wrong_shapes_types_and_factors_that_are_not_finite) {
  const Factors factors = {".weight_scale_inv", DType::kF32, {3, 2}, 128, 128};
  const std::vector<TestTensor> good = layer(320, 192, factors);
  const auto with_shape = [&](Shape shape) {
    return code_of({good[0], filled<float>("m.weight_scale_inv", DType::kF32, shape, 1.0F)});
  };
  EXPECT_EQ(code_of(good), "");
  // What a division into equal parts would take.
  EXPECT_EQ(with_shape({2, 2}), "import.shape");
  EXPECT_EQ(with_shape({2, 3}), "import.shape");
  EXPECT_NE(message().find("expected shape [3, 2]"), std::string::npos) << message();
  EXPECT_EQ(with_shape({320, 1}), "import.shape");
  EXPECT_EQ(with_shape({}), "import.shape");
  EXPECT_EQ(code_of({good[0]}), "dense.dtype");
  EXPECT_NE(message().find("without a factor"), std::string::npos) << message();
  EXPECT_EQ(code_of({good[0], filled<double>("m.weight_scale_inv", DType::kF64, {3, 2}, 1.0)}),
            "import.dtype");
  EXPECT_EQ(code_of({filled<uint8_t>("m.weight", DType::kF8E5M2, {320, 192}, 1), good[1]}),
            "dense.dtype");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<TestTensor> tensors = good;
    tensors[1].set<float>(3, bad);
    EXPECT_EQ(code_of(tensors), "import.scale_not_finite");
    EXPECT_NE(message().find("[1, 1]"), std::string::npos) << message();
  }
  std::vector<TestTensor> nan =
      layer(320, 192, {".weight_scale_inv", DType::kF8E8M0, {3, 2}, 128, 128});
  nan[1].set<uint8_t>(4, 0xFF);
  EXPECT_EQ(code_of(nan), "import.scale_not_finite");
}

TEST_F(Fp8, two_names_of_factors_say_the_same) {
  std::vector<TestTensor> tensors =
      layer(128, 128, {".weight_scale_inv", DType::kF32, {1, 1}, 128, 128});
  tensors.push_back(tensors[1]);
  tensors[2].name = "m.weight_scale";
  EXPECT_EQ(code_of(tensors), "");
  EXPECT_EQ(describe_module(context(), "m")->tensors.size(), 3u);  // nobody misses the second
  tensors[2].set(0, 2 * tensors[1].at<float>(0));
  EXPECT_EQ(code_of(tensors), "import.config");
  EXPECT_NE(message().find("tensor \"m.weight_scale\": expected the numbers of "
                           "\"m.weight_scale_inv\""),
            std::string::npos)
      << message();
}

TEST_F(Fp8, a_module_that_the_config_keeps_must_not_have_a_factor) {
  const std::vector<TestTensor> tensors =
      layer(128, 128, {".weight_scale_inv", DType::kF32, {1, 1}, 128, 128});
  const auto keeps = [&](const char* list) {
    const json::Value section = {{"modules_to_not_convert", {list}}};
    config_.kept = {};
    EXPECT_TRUE(
        config_.kept.add(*json::Object::of(section, "config.json"), "modules_to_not_convert").ok());
    open(tensors);
    const auto info = describe_module(context(), "m");
    return info.ok() ? std::string() : std::string(info.error().code);
  };
  EXPECT_EQ(keeps("m"), "import.config");
  EXPECT_EQ(keeps("m_proj"), "");
  EXPECT_EQ(keeps("x.m"), "");
}

TEST_F(Fp8, comes_back) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E8M0}) {
    expect_round_trip_of("fp8", 320, 192, {".weight_scale_inv", dtype, {3, 2}, 128, 128});
    expect_round_trip_of("fp8", 8, 40, {".weight_scale_inv", dtype, {1, 1}, 128, 128});
  }
  use_scheme(128, 128);
  expect_round_trip_of("float_quantized", 320, 192,
                       {".weight_scale", DType::kBF16, {3, 2}, 128, 128});
  use_scheme(1, -1);
  expect_round_trip_of("float_quantized", 24, 40, {".weight_scale", DType::kF32, {24, 1}, 1, 40});
}

TEST_F(Fp8, the_writer_refuses_what_has_no_blocks) {
  const auto code_of_shape = [](std::string_view exporter, const ExportShape& shape) {
    const auto described = find_exporter(exporter)->describe(shape, "m");
    return described.ok() ? std::string_view() : described.error().code;
  };
  const WeightFormat blocks = {Format::kE4M3, Format::kF32, Zero::kNone, 128};
  const WeightFormat rows = {Format::kE4M3, Format::kBF16, Zero::kNone, 0};
  EXPECT_EQ(code_of_shape("fp8", {blocks, 8, 64}), "");
  EXPECT_EQ(code_of_shape("fp8", {rows, 8, 64}), "export.format");
  EXPECT_EQ(code_of_shape("float_quantized", {rows, 8, 64}), "");
  EXPECT_EQ(
      code_of_shape("float_quantized", {{Format::kE4M3, Format::kE8M0, Zero::kNone, 128}, 8, 64}),
      "export.format");
  EXPECT_EQ(code_of_shape("fp8", {blocks, 8, 64, true}), "export.act_order");
  EXPECT_EQ(code_of_shape("fp8", {blocks, 8, 64, false, 2}), "export.experts");
  // Rows of one block with scales of their own.
  use_scheme(1, -1);
  open(layer(4, 128, {".weight_scale", DType::kF32, {4, 1}, 1, 128}));
  auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  const Exporter& exporter = *find_exporter("fp8");
  const auto recast_matrix = recast(std::move(*matrix), exporter.target(shape_of(matrix->view)));
  ASSERT_TRUE(recast_matrix.ok()) << recast_matrix.error().message;
  const auto written = exporter.write(recast_matrix->view, "m", pool_);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, "export.blocks");
}

}  // namespace
}  // namespace subbyte
