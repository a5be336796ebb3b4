// Attributes of operations, each by itself, beside the formulas in double precision.

#include <gtest/gtest.h>

#include "model_on_gpu.h"
#include "support/attributes_model.h"

namespace subbyte::testing {
namespace {

const std::vector<int32_t> kTokens = {3, 41, 5, 26, 5, 35, 8, 9, 7, 9, 32, 38, 46, 2, 6, 43, 38};

/// Norms of 3 make errors of a product's inputs three times as large, and those of scores, products
/// of two such inputs, nine times: three products of a layer and one, whose mean counts.
const double kDecibels = kF16Decibels - 10 * std::log10((3 * 9 + 81) / 4.0);

class GpuAttributes : public ::testing::TestWithParam<Attributes> {};

TEST_P(GpuAttributes, give_what_the_formulas_give) {
  const auto backend = std::move(make_backend(gpu())).value();
  for (const WeightFormat& format :
       {WeightFormat{Format::kF32}, WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32}}) {
    const AttributesModel model(GetParam(), format);
    const std::vector<float> expected = model.expected(kTokens);
    const std::vector<float> without = AttributesModel({}, format).expected(kTokens);
    const bool is_plain = GetParam().name == "none";
    for (const int64_t piece : {1, 5, 17}) {
      const auto logits = logits_with(model, *backend, Element::kF16, kTokens, piece);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      ASSERT_EQ(logits->size(), expected.size());
      const double found = noise_decibels(*logits, expected);
      EXPECT_GT(found, kDecibels) << to_string(format) << " " << piece;
      // Nearer by half of the error at least than what has not the attribute.
      if (!is_plain) EXPECT_GT(found, noise_decibels(without, expected) + 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, GpuAttributes, ::testing::ValuesIn(all_attributes()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace subbyte::testing
