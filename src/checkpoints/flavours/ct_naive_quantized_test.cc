// Random bytes, and w = (q - z) * s read from them as signed numbers.

#include <gtest/gtest.h>

#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/modelopt.h"
#include "support/import_fixture.h"

namespace subbyte {
namespace {

struct Layer {
  int64_t rows, cols, group;
  TestTensor weight, scale, zero_point;  // the last one with an empty shape: symmetric

  std::vector<TestTensor> tensors() const {
    std::vector<TestTensor> all = {weight, scale};
    if (!zero_point.shape.empty()) all.push_back(zero_point);
    return all;
  }

  double at(int64_t n, int64_t k) const {
    const int64_t group_index = n * (cols / group) + k / group;
    const int zero = zero_point.shape.empty() ? 0 : zero_point.at<int8_t>(group_index);
    return (weight.at<int8_t>(n * cols + k) - zero) * float_at(scale, group_index);
  }
};

TestTensor random_codes(std::string name, Shape shape, int bits, Random& random) {
  TestTensor tensor = random_bits(std::move(name), DType::kI8, std::move(shape), random);
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    tensor.set(i, static_cast<int8_t>(tensor.at<int8_t>(i) >> (8 - bits)));  // with its sign
  }
  return tensor;
}

Layer random_layer(int bits, int64_t rows, int64_t cols, int64_t group, bool symmetric,
                   DType type) {
  Random random(bits * 1000 + rows + cols);
  const auto n = static_cast<uint64_t>(rows);
  const auto groups = static_cast<uint64_t>(cols / group);
  Layer layer = {rows,
                 cols,
                 group,
                 random_codes("m.weight", {n, static_cast<uint64_t>(cols)}, bits, random),
                 random_floats("m.weight_scale", type, {n, groups}, random),
                 {}};
  if (!symmetric) layer.zero_point = random_codes("m.weight_zero_point", {n, groups}, bits, random);
  return layer;
}

class NaiveQuantized : public ImportFixture {
 protected:
  CompressedState& ct() { return said_by<CompressedState>(compressed_tensors_flavour); }
  ModeloptState& modelopt() { return said_by<ModeloptState>(modelopt_flavour); }

  Random random_{77};

  void use(int64_t bits, int64_t group, bool symmetric) {
    config_ = {};
    ct().schemes = {{CompressedScheme::Format::kNaive, bits, symmetric, group, false}};
  }
};

TEST_F(NaiveQuantized, means_what_the_definition_says) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const bool symmetric : {true, false}) {
      for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
        for (const int64_t group : {8, 32, 96}) {
          const Layer layer = random_layer(bits, 5, 96, group, symmetric, type);
          use(bits, group == 96 ? -1 : group, symmetric);
          open(layer.tensors());
          expect_weights(5, 96, [&](int64_t n, int64_t k) { return layer.at(n, k); });
          EXPECT_EQ(matrix_.view.format.zero == Zero::kNone, symmetric);
          EXPECT_EQ(info(matrix_.view.format.element).bits, bits);
        }
      }
    }
  }
}

TEST_F(NaiveQuantized, one_scale_may_serve_the_tensor) {
  for (const bool symmetric : {true, false}) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}}) {
      const Layer layer = random_layer(8, 5, 96, 96, symmetric, DType::kF32);
      std::vector<TestTensor> tensors = {
          layer.weight, filled<float>("m.weight_scale", DType::kF32, shape, 0.0123F)};
      if (!symmetric) {
        tensors.push_back(filled<int8_t>("m.weight_zero_point", DType::kI8, shape, -7));
      }
      use(8, -1, symmetric);
      ct().schemes.front().block_rows = -1;
      open(tensors);
      expect_weights(5, 96, [&](int64_t n, int64_t k) {
        return (layer.weight.at<int8_t>(n * 96 + k) + (symmetric ? 0 : 7)) * double{0.0123F};
      });
      ct().schemes.front().block_rows = 1;  // "channel"
      EXPECT_EQ(code(), "import.config");
      EXPECT_NE(message().find("has one scale for 96 inputs"), std::string::npos) << message();
    }
  }
}

TEST_F(NaiveQuantized, the_last_group_may_be_short) {
  Layer layer = random_layer(8, 5, 80, 16, true, DType::kF32);
  layer.scale = random_floats("m.weight_scale", DType::kF32, {5, 3}, random_);
  use(8, 32, true);
  open(layer.tensors());
  expect_weights(5, 80, [&](int64_t n, int64_t k) {
    return layer.weight.at<int8_t>(n * 80 + k) * float_at(layer.scale, n * 3 + k / 32);
  });
}

/// W8A16 and W8A8_SQ_PER_CHANNEL: scales of rows, and factors of inputs where SmoothQuant left
/// some.
TEST_F(NaiveQuantized, modelopt_has_scales_of_rows_and_may_have_factors_of_inputs) {
  Layer layer = random_layer(8, 6, 64, 64, true, DType::kF32);
  layer.scale.shape = {6};
  modelopt().weights = {ModeloptWeights::kInt8};
  std::vector<TestTensor> tensors = layer.tensors();
  tensors.push_back(filled<float>("m.input_scale", DType::kF32, {}, 0.5F));
  open(tensors);
  expect_weights(6, 64, [&](int64_t n, int64_t k) { return layer.at(n, k); });
  EXPECT_EQ(to_string(matrix_.view.format), "i8 per row scale f32");
  EXPECT_EQ(describe_module(context(), "m")->tensors.size(), 3u);

  const TestTensor factors = random_floats("m.pre_quant_scale", DType::kBF16, {64}, random_);
  tensors.push_back(factors);
  open(tensors);
  expect_weights(6, 64, [&](int64_t n, int64_t k) {
    return static_cast<float>(layer.at(n, k) * float_at(factors, k));  // rounded once
  });
  const auto info = describe_module(context(), "m");
  EXPECT_EQ(to_string(info->format), "f32");
  EXPECT_EQ(info->tensors.size(), 4u);
  EXPECT_FALSE(is_dense(*info));  // in the file it is not
  tensors.back().shape = {32};
  tensors.back().bytes.resize(64);
  EXPECT_EQ(code_of(tensors), "import.shape");
  modelopt().weights = {ModeloptWeights::kFp8};
  EXPECT_EQ(code_of(layer.tensors()), "import.config");
}

TEST_F(NaiveQuantized, refuses_what_does_not_fit) {
  const Layer good = random_layer(5, 8, 64, 32, false, DType::kBF16);
  use(5, 32, false);
  EXPECT_EQ(code_of(good.tensors()), "");
  for (const int bad : {-17, 16, 127}) {
    Layer layer = good;
    layer.weight.set(130, static_cast<int8_t>(bad));
    EXPECT_EQ(code_of(layer.tensors()), "naive_quantized.range");
    EXPECT_NE(message().find("found " + std::to_string(bad) + " at index 130"), std::string::npos)
        << message();
    layer = good;
    layer.zero_point.set(3, static_cast<int8_t>(bad));
    EXPECT_EQ(code_of(layer.tensors()), "naive_quantized.range");
  }
  Layer layer = good;
  layer.scale.shape = {8, 1};
  layer.scale.bytes.resize(16);
  EXPECT_EQ(code_of(layer.tensors()), "import.shape");  // not that of the zero points
  layer = good;
  layer.zero_point.dtype = DType::kU8;
  EXPECT_EQ(code_of(layer.tensors()), "import.dtype");
  layer = good;
  layer.zero_point = {};
  EXPECT_EQ(code_of(layer.tensors()), "import.config");  // no group is symmetric
  layer = good;
  layer.scale.set<uint16_t>(5, 0x7FC0);
  EXPECT_EQ(code_of(layer.tensors()), "import.scale_not_finite");
  open(good.tensors());
  ct().schemes.push_back({CompressedScheme::Format::kNaive, 6, false, 32, false});
  EXPECT_EQ(code(), "naive_quantized.bits");
  ct().schemes = {{CompressedScheme::Format::kPackQuantized, 5, false, 32, false}};
  EXPECT_EQ(code(), "import.config");
  config_ = {};
  EXPECT_EQ(code(), "import.config");
}

}  // namespace
}  // namespace subbyte
