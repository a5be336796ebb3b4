// Random bytes, and w = q * s read from them as the layout says.

#include <gtest/gtest.h>

#include "checkpoints/flavours/modelopt.h"
#include "support/import_fixture.h"

namespace subbyte {
namespace {

/// Of output n and input k: two's complement in a nibble of the byte that it shares with the output
/// next to it.
int number_of(const TestTensor& weight, int64_t cols, int64_t n, int64_t k) {
  const int byte = weight.at<uint8_t>(n / 2 * cols + k);
  const int nibble = n % 2 == 0 ? byte % 16 : byte / 16;
  return nibble < 8 ? nibble : nibble - 16;
}

class ModeloptInt4 : public ImportFixture {
 protected:
  ModeloptState& modelopt() { return said_by<ModeloptState>(modelopt_flavour); }

  void SetUp() override { modelopt().weights = {ModeloptWeights::kInt4}; }

  TestTensor weight(uint64_t rows, uint64_t cols) {
    return random_bits("m.weight", DType::kU8, {rows / 2, cols}, random_);
  }
  TestTensor scales(DType type, uint64_t rows, uint64_t groups) {
    return random_floats("m.weight_scale", type, {rows, groups}, random_);
  }

  Random random_{5};
};

TEST_F(ModeloptInt4, means_what_the_layout_says) {
  for (const auto& [rows, cols, groups] :
       {std::tuple(2, 32, 1), {6, 64, 2}, {10, 96, 3}, {32, 256, 2}}) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      const TestTensor codes = weight(rows, cols);
      const TestTensor scale = scales(type, rows, groups);
      open({codes, scale});
      expect_weights(rows, cols, [&, cols = cols, groups = groups](int64_t n, int64_t k) {
        return number_of(codes, cols, n, k) * float_at(scale, n * groups + k / (cols / groups));
      });
      EXPECT_EQ(matrix_.view.format.element, Format::kI4);
    }
  }
}

TEST_F(ModeloptInt4, factors_of_inputs_make_it_floats) {
  const TestTensor codes = weight(6, 64);
  const TestTensor scale = scales(DType::kF32, 6, 2);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    TestTensor factors = random_floats("m.pre_quant_scale", type, {64}, random_);
    open({codes, scale, factors});
    expect_weights(6, 64, [&](int64_t n, int64_t k) {
      return static_cast<float>(number_of(codes, 64, n, k) * float_at(scale, n * 2 + k / 32) *
                                float_at(factors, k));
    });
    EXPECT_EQ(to_string(matrix_.view.format), "f32");
    EXPECT_EQ(describe_module(context(), "m")->importer, "modelopt_int4");
  }
  TestTensor factors = filled<float>("m.pre_quant_scale", DType::kF32, {64}, 1.0F);
  factors.set<uint32_t>(7, 0x7F800000);
  EXPECT_EQ(code_of({codes, scale, factors}), "import.scale_not_finite");
}

TEST_F(ModeloptInt4, refuses_what_does_not_fit) {
  const TestTensor codes = weight(6, 64);
  const TestTensor scale = scales(DType::kF32, 6, 2);
  EXPECT_EQ(code_of({codes, scale}), "");
  EXPECT_EQ(code_of({codes, scales(DType::kF32, 3, 2)}), "import.shape");
  EXPECT_EQ(code_of({codes, scales(DType::kF32, 6, 5)}), "import.shape");
  EXPECT_EQ(code_of({codes, scales(DType::kF32, 6, 16)}), "import.shape");  // 4 inputs
  modelopt().group_sizes = {64};
  EXPECT_EQ(code_of({codes, scale}), "import.config");
  modelopt().group_sizes = {32};
  EXPECT_EQ(code_of({codes, scale}), "");
  modelopt().weights = {ModeloptWeights::kNvfp4};
  EXPECT_EQ(code_of({codes, scale}), "import.config");
  EXPECT_NE(
      message().find("quant_algo is one of NVFP4, but the tensors of \"m\" are those of INT4"),
      std::string::npos)
      << message();
}

}  // namespace
}  // namespace subbyte
