// Attributes of operations, each by itself, beside the formulas in double precision.

#include <gtest/gtest.h>

#include "cpu_backend/cpu_backend.h"
#include "support/attributes_model.h"
#include "support/isa_of.h"
#include "support/isa_test.h"

namespace subbyte {
namespace {

const std::vector<int32_t> kTokens = {3, 41, 5, 26, 5, 35, 8, 9, 7, 9, 32, 38, 46, 2, 6, 43, 38};

/// Sums of 128 products in float32, some dozen of them one after the other: 2^-24 sqrt(128) is -117
/// dB, and a layer adds a few of those. The tiles of AMX multiply numbers of 17 bits (two of bf16),
/// 2^-17 is -102 dB, and a dozen of such roundings add up to 11 dB.
double f32_decibels(const Backend& backend) {
  return testing::isa_of(backend) == "amx" ? 91 : 100;
}

class OfOperations : public ::testing::TestWithParam<testing::Attributes> {};

TEST_P(OfOperations, give_what_the_formulas_give) {
  const testing::AttributesModel model(GetParam());
  const std::vector<float> expected = model.expected(kTokens);
  for (const std::string& isa : testing::isas_of_this_machine()) {
    const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
    for (const int64_t piece : {1, 5, 17}) {
      const auto logits = testing::logits_with(model, *backend, Element::kF32, kTokens, piece);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      ASSERT_EQ(logits->size(), expected.size());
      EXPECT_GT(testing::noise_decibels(*logits, expected), f32_decibels(*backend))
          << isa << ", pieces of " << piece;
    }
  }
  if (GetParam().name == "none") return;
  // What the bound has to see: the attribute.
  const std::vector<float> without = testing::AttributesModel({}).expected(kTokens);
  EXPECT_LT(testing::noise_decibels(without, expected), 35);
}

INSTANTIATE_TEST_SUITE_P(Attributes, OfOperations, ::testing::ValuesIn(testing::all_attributes()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace subbyte
