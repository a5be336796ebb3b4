// Random bytes, and w = e * s / global (compressed-tensors) or e * s * global (ModelOpt) read from
// them by the table of E2M1 values and the definition of E4M3.

#include <gtest/gtest.h>

#include <cfloat>

#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/modelopt.h"
#include "support/round_trip.h"

namespace subbyte {
namespace {

constexpr double kE2M1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

struct Layer {
  bool divides;  // compressed-tensors
  int64_t rows, cols;
  TestTensor codes, scales, factor;

  std::vector<TestTensor> tensors() const { return {codes, scales, factor}; }

  double weight(int64_t n, int64_t k) const {
    const auto byte = codes.at<uint8_t>((n * cols + k) / 2);
    const double element = kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4];  // low nibble first
    const auto scale = scales.at<uint8_t>((n * cols + k) / 16);
    const double global = float_at(factor, 0);
    // An element times a scale is exact; then one factor, which for a divisor is its reciprocal.
    return element * ieee_value(scale, 4, 3) * (divides ? 1 / global : global);
  }
};

Layer random_layer(bool divides, uint64_t rows, uint64_t cols, float global) {
  Random random(rows * 100 + cols + (divides ? 1 : 0));
  Layer layer = {
      divides,
      static_cast<int64_t>(rows),
      static_cast<int64_t>(cols),
      random_bits(divides ? "m.weight_packed" : "m.weight", DType::kU8, {rows, cols / 2}, random),
      random_bits("m.weight_scale", DType::kF8E4M3, {rows, cols / 16}, random),
      filled<float>(divides ? "m.weight_global_scale" : "m.weight_scale_2", DType::kF32,
                    divides ? Shape{1} : Shape{}, global)};
  for (char& byte : layer.scales.bytes) byte = (byte & 0x7F) == 0x7F ? '\x38' : byte;
  return layer;
}

class Nvfp4 : public RoundTripFixture {
 protected:
  CompressedState& ct() { return said_by<CompressedState>(compressed_tensors_flavour); }
  ModeloptState& modelopt() { return said_by<ModeloptState>(modelopt_flavour); }

  void use(bool compressed) {
    config_ = {};
    if (compressed) {
      ct().schemes = {{CompressedScheme::Format::kNvfp4, 4, true, 16, false}};
    } else {
      modelopt().weights = {ModeloptWeights::kNvfp4};
    }
  }
  static std::string_view flavour(bool compressed) {
    return compressed ? "nvfp4_pack_quantized" : "modelopt_nvfp4";
  }
  void expect_layer(const Layer& layer) {
    expect_weights(layer.rows, layer.cols,
                   [&](int64_t n, int64_t k) { return layer.weight(n, k); });
  }
};

TEST_F(Nvfp4, means_what_the_definition_says_and_comes_back) {
  for (const bool compressed : {true, false}) {
    use(compressed);
    for (const auto& [rows, cols] : {std::pair(1, 16), {8, 16}, {8, 64}, {33, 208}, {5, 48}}) {
      const Layer layer = random_layer(compressed, rows, cols, compressed ? 1934.7F : 0.00123F);
      open(layer.tensors());
      expect_layer(layer);
      open_misaligned(layer.tensors(), 3);
      expect_layer(layer);
      expect_round_trip(flavour(compressed), layer.tensors());
    }
  }
}

TEST_F(Nvfp4, decodes_bytes_whose_values_are_known) {
  // 0x5E: element 0 is -4, element 1 is 3. Scale 0x38 is 1, 0x40 is 2, 0x01 is 2^-9.
  TestTensor scales = filled<uint8_t>("m.weight_scale", DType::kF8E4M3, {1, 3}, 0x38);
  scales.set<uint8_t>(1, 0x40);
  scales.set<uint8_t>(2, 0x01);
  const double of_group[3] = {1, 2, 0x1p-9};
  const auto weight = [&](int64_t, int64_t k) { return (k % 2 == 0 ? -4 : 3) * of_group[k / 16]; };
  use(true);
  open({filled<uint8_t>("m.weight_packed", DType::kU8, {1, 24}, 0x5E), scales,
        filled<float>("m.weight_global_scale", DType::kF32, {1}, 8)});
  expect_weights(1, 48, [&](int64_t n, int64_t k) { return weight(n, k) / 8; });
  use(false);
  open({filled<uint8_t>("m.weight", DType::kU8, {1, 24}, 0x5E), scales,
        filled<float>("m.weight_scale_2", DType::kF32, {}, 8)});
  expect_weights(1, 48, [&](int64_t n, int64_t k) { return weight(n, k) * 8; });
}

TEST_F(Nvfp4, every_divisor_comes_back_to_the_bit) {
  // A reciprocal in float32 would not: between sqrt(2) and 2 two divisors share one.
  use(true);
  Random random(3);
  Layer layer = random_layer(true, 2, 16, 1);
  std::vector<float> divisors = {FLT_MIN, FLT_MAX,       FLT_TRUE_MIN, 1,
                                 3,       0x1.FFFFFEp0F, 0x1.6A09E8p0F};
  for (int i = 0; i < 40; ++i) {
    divisors.push_back(static_cast<float>(std::ldexp(1 + random.uniform(), i - 10)));
  }
  for (const float divisor : divisors) {
    layer.factor.set(0, divisor);
    open(layer.tensors());
    const auto matrix = import_matrix(context(), "m");
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->view.tensor_scale, 1.0 / divisor);
    expect_same_tensors(exported("nvfp4_pack_quantized"), layer.tensors());
  }
}

TEST_F(Nvfp4, one_flavour_becomes_the_other) {
  for (const bool compressed : {true, false}) {
    use(compressed);
    const Layer layer = random_layer(compressed, 8, 64, compressed ? 1934.7F : 0.00123F);
    open(layer.tensors());
    const auto written = exported(flavour(!compressed));
    use(!compressed);
    open(written);
    const auto matrix = import_matrix(context(), "m");
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    for (int64_t n = 0; n < 8; ++n) {
      for (int64_t k = 0; k < 64; ++k) {
        // The factor is rounded once to float: half a unit in the last of 24 places. Two roundings
        // of doubles are far below.
        const double expected = layer.weight(n, k);
        EXPECT_NEAR(weight_at(matrix->view, n, k), expected, std::abs(expected) * 0x1.01p-24);
      }
    }
  }
}

TEST_F(Nvfp4, powers_of_two_become_the_other_flavour_exactly) {
  use(true);
  const Layer layer = random_layer(true, 8, 64, 4096);
  open(layer.tensors());
  const auto written = exported("modelopt_nvfp4");
  use(false);
  open(written);
  expect_layer(layer);
}

TEST_F(Nvfp4, of_modelopt_may_have_a_scale_for_32) {
  use(false);
  Layer layer = random_layer(false, 8, 64, 0.00123F);
  layer.scales.shape = {8, 2};
  layer.scales.bytes.resize(16);
  for (const auto& said : {std::vector<int64_t>{}, {32}, {16, 32}}) {  // or the shapes tell
    modelopt().group_sizes = said;
    open(layer.tensors());
    expect_weights(8, 64, [&](int64_t n, int64_t k) {
      const auto byte = layer.codes.at<uint8_t>((n * 64 + k) / 2);
      const double element = kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4];
      return element * ieee_value(layer.scales.at<uint8_t>((n * 64 + k) / 32), 4, 3) *
             float_at(layer.factor, 0);
    });
  }
  modelopt().group_sizes = {16};
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("group_size is 16, but \"m\" has 2 groups for 64 inputs"),
            std::string::npos)
      << message();
  modelopt().has_unsaid_group_size = true;  // of another entry, which may be this module's
  EXPECT_EQ(code(), "");
  modelopt().has_unsaid_group_size = false;
  modelopt().group_sizes = {32};
  EXPECT_EQ(code_of(random_layer(false, 8, 64, 1).tensors()), "import.config");
  layer.scales.shape = {8, 1};
  layer.scales.bytes.resize(8);
  EXPECT_EQ(code_of(layer.tensors()), "import.shape");
}

TEST_F(Nvfp4, of_modelopt_without_a_factor_is_mxfp4) {
  Random random(9);
  const TestTensor codes = random_bits("m.weight", DType::kU8, {8, 32}, random);
  TestTensor scales = random_bits("m.weight_scale", DType::kU8, {8, 2}, random);
  for (std::size_t i = 0; i < 16; ++i) scales.set(i, static_cast<uint8_t>(110 + i));
  use(false);
  modelopt().weights = {ModeloptWeights::kMxfp4};
  const TestTensor of_activations = filled<float>("m.input_scale", DType::kF32, {}, 3);
  open({codes, scales, of_activations});
  expect_weights(8, 64, [&](int64_t n, int64_t k) {
    const auto byte = codes.at<uint8_t>((n * 64 + k) / 2);
    const int exponent = scales.at<uint8_t>((n * 64 + k) / 32) - 127;
    return std::ldexp(kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4], exponent);
  });
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->importer, "modelopt_mxfp4");
  EXPECT_EQ(info->tensors.size(), 3u);
  EXPECT_EQ(code_of(random_layer(false, 8, 64, 1).tensors()), "import.config");
  modelopt().weights = {ModeloptWeights::kNvfp4};
  EXPECT_EQ(code_of({codes, scales}), "import.config");
}

TEST_F(Nvfp4, scales_of_activations_are_left_aside) {
  for (const bool compressed : {true, false}) {
    use(compressed);
    const Layer layer = random_layer(compressed, 8, 32, 5);
    std::vector<TestTensor> tensors = layer.tensors();
    tensors.push_back(
        filled<float>(compressed ? "m.input_global_scale" : "m.input_scale", DType::kF32, {1}, 77));
    open(tensors);
    expect_layer(layer);
    const auto info = describe_module(context(), "m");
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->importer, flavour(compressed));
    EXPECT_EQ(info->tensors.size(), 4u);
    EXPECT_EQ(to_string(info->format), "e2m1 g16 scale e4m3");
    EXPECT_EQ(info->bytes(), 8u * 16 + 8 * 2 + 8);
  }
}

TEST_F(Nvfp4, uses_the_bytes_where_they_lie) {
  use(true);
  open(random_layer(true, 8, 32, 5).tensors());
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->view.codes.data(), source_->find("m.weight_packed")->bytes.data());
  EXPECT_EQ(matrix->view.scales.data(), source_->find("m.weight_scale")->bytes.data());
}

TEST_F(Nvfp4, refuses_wrong_shapes_types_and_nan) {
  for (const bool compressed : {true, false}) {
    use(compressed);
    const Layer good = random_layer(compressed, 8, 64, 3);
    Random random(1);
    const auto with = [&](const TestTensor& tensor) { return code_of(good.tensors(), tensor); };
    const auto bits = [&](const TestTensor& like, DType dtype, Shape shape) {
      return with(random_bits(like.name, dtype, std::move(shape), random));
    };
    EXPECT_EQ(with(good.codes), "");
    EXPECT_EQ(bits(good.codes, DType::kU8, {8, 31}), "import.shape");
    EXPECT_EQ(bits(good.codes, DType::kU8, {8, 40}), "import.shape");  // too few scales
    EXPECT_EQ(bits(good.codes, DType::kU8, {256}), "import.shape");
    EXPECT_EQ(bits(good.codes, DType::kU8, {8, 0}), "import.shape");
    EXPECT_EQ(bits(good.scales, DType::kF8E4M3, {8, 5}), "import.shape");
    EXPECT_EQ(bits(good.scales, DType::kF8E4M3, {32}), "import.shape");
    EXPECT_EQ(bits(good.scales, DType::kF8E5M2, {8, 4}), "import.dtype");
    EXPECT_EQ(bits(good.factor, DType::kF16, {1}), "import.dtype");
    EXPECT_EQ(with(filled<float>(good.factor.name, DType::kF32, {2}, 1)), "import.shape");
    EXPECT_EQ(with(filled<float>(good.factor.name, DType::kF32, {1, 1}, 1)), "import.shape");
    for (const float bad : {NAN, INFINITY, -INFINITY, -1.0F}) {
      EXPECT_EQ(with(filled<float>(good.factor.name, DType::kF32, {1}, bad)),
                "import.scale_not_finite");
    }
    // Nothing can be divided by 0; a product with 0 is 0.
    EXPECT_EQ(with(filled<float>(good.factor.name, DType::kF32, {1}, 0)),
              compressed ? "import.scale_not_finite" : "");
    for (const uint8_t nan : {uint8_t{0x7F}, uint8_t{0xFF}}) {
      TestTensor scales = good.scales;
      scales.set<uint8_t>(13, nan);
      EXPECT_EQ(with(scales), "import.scale_not_finite");
      EXPECT_NE(message().find("(NaN) at index 13"), std::string::npos) << message();
    }
    EXPECT_EQ(code_of({good.codes, good.scales}), "import.missing");
  }
}

TEST_F(Nvfp4, a_config_that_contradicts_the_tensors_is_refused_with_both) {
  use(true);
  ct().schemes = {{CompressedScheme::Format::kPackQuantized, 4, true, 128, false}};
  EXPECT_EQ(code_of(random_layer(true, 8, 64, 3).tensors()), "import.config");
  EXPECT_NE(message().find("pack-quantized 4 bits symmetric group 128"), std::string::npos);
  EXPECT_NE(message().find("nvfp4-pack-quantized"), std::string::npos) << message();
  use(false);
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("\"modelopt\""), std::string::npos) << message();
  EXPECT_NE(message().find("\"compressed-tensors\""), std::string::npos) << message();
  use(true);
  EXPECT_EQ(code_of(random_layer(false, 8, 64, 3).tensors()), "import.config");
}

TEST_F(Nvfp4, weights_of_other_flavours_are_not_taken) {
  // FP8 of the same names, and bytes without scales.
  use(false);
  const TestTensor scale = filled<float>("m.weight_scale", DType::kF32, {1}, 1);
  EXPECT_EQ(code_of({filled<uint8_t>("m.weight", DType::kF8E4M3, {8, 16}, 1), scale}),
            "import.config");
  EXPECT_EQ(code_of({filled<uint8_t>("m.weight", DType::kU8, {8, 16}, 1)}), "dense.dtype");
}

TEST_F(Nvfp4, the_writers_refuse_what_is_not_nvfp4) {
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  for (const bool compressed : {true, false}) {
    const Exporter& writer = *find_exporter(flavour(compressed));
    const auto code_of_shape = [&](const ExportShape& shape) {
      const auto described = writer.describe(shape, "m");
      return described.ok() ? std::string_view() : described.error().code;
    };
    EXPECT_EQ(code_of_shape({nvfp4, 8, 64}), "");
    EXPECT_EQ(code_of_shape({nvfp4, 8, 40}), "export.shape");
    EXPECT_EQ(code_of_shape({nvfp4, 8, 64, true}), "export.act_order");
    EXPECT_EQ(code_of_shape({nvfp4, 8, 64, false, 2}), "export.experts");
    EXPECT_EQ(code_of_shape({{Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, 8, 64}),
              "export.format");
    const std::vector<std::byte> codes(8), scales(1);
    MatrixView view;
    view.format = nvfp4;
    view.rows = 1;
    view.cols = 16;
    view.codes = codes;
    view.scales = scales;
    for (const double factor : {1e60, 1e-60, -1.0, 0.0}) {
      view.tensor_scale = factor;
      const auto written = writer.write(view, "m", pool_);
      EXPECT_EQ(written.ok() ? "" : written.error().code,
                factor == 0 && !compressed ? "" : "export.tensor_scale");
    }
  }
}

}  // namespace
}  // namespace subbyte
