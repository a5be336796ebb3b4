// Random bytes, and w = e * s * factor read from them where ModelOpt puts them: two inputs of an
// output in a byte, inputs before outputs.

#include <gtest/gtest.h>

#include "checkpoints/flavours/modelopt.h"
#include "checkpoints/modules.h"
#include "support/import_fixture.h"

namespace subbyte {
namespace {

constexpr double kE2M1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

struct Experts {
  int64_t experts, rows, cols;
  TestTensor codes, scales, factor;

  double weight(int64_t e, int64_t n, int64_t k) const {
    const auto byte = codes.at<uint8_t>((e * cols / 2 + k / 2) * rows + n);
    const auto scale = scales.at<uint8_t>((e * cols / 16 + k / 16) * rows + n);
    const double element = kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4];
    return element * ieee_value(scale, 4, 3) * float_at(factor, 0);
  }
};

Experts random_experts(uint64_t experts, uint64_t rows, uint64_t cols) {
  Random random(experts * 1000 + rows * 10 + cols);
  Experts made = {static_cast<int64_t>(experts),
                  static_cast<int64_t>(rows),
                  static_cast<int64_t>(cols),
                  random_bits("m", DType::kU8, {experts, cols / 2, rows}, random),
                  random_bits("m_weight_scale", DType::kF8E4M3, {experts, cols / 16, rows}, random),
                  filled<float>("m_weight_scale_2", DType::kF32, {}, 0.00123F)};
  for (char& byte : made.scales.bytes) byte = (byte & 0x7F) == 0x7F ? '\x38' : byte;
  return made;
}

class ModeloptExperts : public ImportFixture {
 protected:
  ModeloptState& modelopt() { return said_by<ModeloptState>(modelopt_flavour); }

  void SetUp() override { modelopt().weights = {ModeloptWeights::kNvfp4}; }
};

TEST_F(ModeloptExperts, mean_what_the_layout_says) {
  for (const auto& [experts, rows, cols] :
       {std::tuple(1, 1, 16), {3, 10, 48}, {2, 17, 256}, {4, 32, 64}}) {
    const Experts made = random_experts(experts, rows, cols);
    open({made.codes, made.scales, made.factor});
    const auto matrices = import_experts(context(), "m");
    ASSERT_TRUE(matrices.ok()) << matrices.error().message;
    ASSERT_EQ(matrices->size(), static_cast<std::size_t>(experts));
    for (int64_t e = 0; e < experts; ++e) {
      const MatrixView& view = (*matrices)[static_cast<std::size_t>(e)].view;
      ASSERT_EQ(view.rows, rows);
      ASSERT_EQ(view.cols, cols);
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t k = 0; k < cols; ++k) {
          ASSERT_EQ(weight_at(view, n, k), made.weight(e, n, k)) << e << " " << n << " " << k;
        }
      }
    }
  }
}

TEST_F(ModeloptExperts, are_one_module_with_the_scale_of_activations) {
  const Experts made = random_experts(2, 8, 32);
  open({made.codes, made.scales, made.factor,
        filled<float>("m_input_scale", DType::kF32, {}, 0.5F)});
  const auto modules = find_modules(context());
  ASSERT_EQ(modules.size(), 1u);
  EXPECT_EQ(modules[0].name, "m");
  ASSERT_TRUE(modules[0].info.ok()) << modules[0].info.error().message;
  EXPECT_EQ(modules[0].info->importer, "modelopt_experts");
  EXPECT_EQ(modules[0].info->experts, 2);
  EXPECT_EQ(modules[0].info->tensors.size(), 4u);
}

TEST_F(ModeloptExperts, factors_of_inputs_make_them_floats) {
  const Experts made = random_experts(2, 10, 48);
  Random random(7);
  for (const char* const name : {"m_pre_quant_scale", "m.pre_quant_scale"}) {
    const TestTensor factors = random_floats(name, DType::kBF16, {48}, random);
    open({made.codes, made.scales, made.factor, factors});
    EXPECT_EQ(describe_module(context(), "m")->experts, 2);
    const auto matrices = import_experts(context(), "m");
    ASSERT_TRUE(matrices.ok()) << matrices.error().message;
    ASSERT_EQ(matrices->size(), 2u);
    for (int64_t e = 0; e < 2; ++e) {
      const MatrixView& view = (*matrices)[static_cast<std::size_t>(e)].view;
      EXPECT_EQ(to_string(view.format), "f32");
      for (int64_t n = 0; n < 10; ++n) {
        for (int64_t k = 0; k < 48; ++k) {
          const auto weight = static_cast<float>(made.weight(e, n, k) * float_at(factors, k));
          ASSERT_EQ(weight_at(view, n, k), weight) << e << " " << n << " " << k;
        }
      }
    }
  }
  open({made.codes, made.scales, made.factor,
        filled<float>("m_pre_quant_scale", DType::kF32, {2, 48}, 1)});
  EXPECT_EQ(describe_module(context(), "m").error().code, "import.shape");
}

TEST_F(ModeloptExperts, factors_of_inputs_with_two_names_are_equal) {
  const Experts made = random_experts(2, 8, 32);
  Random random(8);
  TestTensor of_module = random_floats("m.pre_quant_scale", DType::kF32, {32}, random);
  TestTensor of_stack = of_module;
  of_stack.name = "m_pre_quant_scale";
  const auto describe = [&] {
    open({made.codes, made.scales, made.factor, of_module, of_stack});
    return describe_module(context(), "m");
  };
  const auto equal = describe();
  ASSERT_TRUE(equal.ok()) << equal.error().message;
  EXPECT_EQ(equal->tensors.size(), 5u);  // nobody misses the second
  of_stack.set(31, of_module.at<float>(31) + 1);
  const auto different = describe();
  ASSERT_FALSE(different.ok());
  EXPECT_EQ(different.error().code, "import.config");
  EXPECT_NE(different.error().message.find("tensor \"m_pre_quant_scale\": expected the numbers of "
                                           "\"m.pre_quant_scale\", which mean the same"),
            std::string::npos)
      << different.error().message;
  EXPECT_EQ(import_experts(context(), "m").error().code, "import.config");
}

TEST_F(ModeloptExperts, refuse_what_contradicts_itself) {
  const Experts made = random_experts(2, 8, 32);
  const auto code = [&](const Experts& experts) {
    open({experts.codes, experts.scales, experts.factor});
    const auto matrices = import_experts(context(), "m");
    return matrices.ok() ? std::string("ok") : std::string(matrices.error().code);
  };
  EXPECT_EQ(code(made), "ok");
  Experts other = made;
  other.scales = random_experts(2, 8, 48).scales;
  EXPECT_EQ(code(other), "import.shape");
  other = made;
  other.codes = random_bits("m", DType::kU8, {2, 12, 8}, *std::make_unique<Random>(1));
  EXPECT_EQ(code(other), "import.shape");
  other = made;
  other.factor.set(0, -1.0F);
  EXPECT_EQ(code(other), "import.scale_not_finite");
  other = made;
  other.scales.set<uint8_t>(5, 0x7F);
  EXPECT_EQ(code(other), "import.scale_not_finite");
  other = made;
  other.factor.name = "m_weight_scale_3";
  EXPECT_EQ(code(other), "import.missing");
  say({{"quant_method", "mxfp4"}, {"modules_to_not_convert", nullptr}});
  EXPECT_EQ(code(made), "import.config");
}

}  // namespace
}  // namespace subbyte
