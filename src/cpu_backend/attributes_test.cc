// Attributes of operations, each by itself, beside the formulas in double precision.

#include <gtest/gtest.h>

#include "cpu_backend/cpu_backend.h"
#include "support/attributes_model.h"

namespace subbyte {
namespace {

const std::vector<int32_t> kTokens = {3, 41, 5, 26, 5, 35, 8, 9, 7, 9, 32, 38, 46, 2, 6, 43, 38};

/// Sums of 128 products in float32, some dozen of them one after the other: 2^-24 sqrt(128) is -117
/// dB, and a layer adds a few of those.
constexpr double kF32Decibels = 100;

class OfOperations : public ::testing::TestWithParam<testing::Attributes> {
 protected:
  std::vector<float> found(const testing::AttributesModel& model, int64_t piece) {
    auto logits = testing::logits_with(model, *backend_, KvType::kF32, kTokens, piece);
    EXPECT_TRUE(logits.ok()) << (logits.ok() ? "" : logits.error().message);
    return logits.ok() ? std::move(logits).value() : std::vector<float>();
  }

  std::unique_ptr<Backend> backend_ = std::move(make_cpu_backend({.num_threads = 2})).value();
};

TEST_P(OfOperations, give_what_the_formulas_give) {
  const testing::AttributesModel model(GetParam());
  const std::vector<float> expected = model.expected(kTokens);
  for (const int64_t piece : {1, 5, 17}) {
    const std::vector<float> logits = found(model, piece);
    ASSERT_EQ(logits.size(), expected.size());
    EXPECT_GT(testing::noise_decibels(logits, expected), kF32Decibels) << piece;
  }
  if (GetParam().name == "none") return;
  // What the bound has to see: the attribute.
  const std::vector<float> without = testing::AttributesModel({}).expected(kTokens);
  EXPECT_LT(testing::noise_decibels(without, expected), 35);
}

INSTANTIATE_TEST_SUITE_P(Attributes, OfOperations, ::testing::ValuesIn(testing::all_attributes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace subbyte
