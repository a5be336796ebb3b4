// Golden models on several ranks of tensor parallelism beside one: of every family and format of
// weights, whatever of a model is divided and whatever each rank has as a whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "on_ranks.h"

namespace subbyte {
namespace {

using testing::OnRanks;

constexpr double kBound = 2e-3;  // of the largest logit
constexpr int kTokens = 12;      // that are chosen

/// The largest difference over the largest logit.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double one = std::abs(double{a[i]} - b[i]);
    most = one <= most ? most : one;  // NaN becomes the most
    largest = std::max(largest, std::abs(double{a[i]}));
  }
  return a.size() == b.size() ? most / largest : 1;
}

class RanksOfGoldens : public ::testing::TestWithParam<int> {};

TEST_P(RanksOfGoldens, answer_as_one_does) {
  int answered = 0;
  int rounded = 0;  // other bits: sums of several ranks
  for (const auto& folder : testing::folders()) {
    SCOPED_TRACE(folder.filename().string());
    const std::vector<int32_t> prompt = testing::prompt_of(folder);
    if (prompt.empty()) continue;
    OnRanks one(folder, 1);
    OnRanks several(folder, GetParam());
    ASSERT_EQ(one.error(), "");
    EXPECT_EQ(several.error(), "");
    if (!several.error().empty()) continue;
    const std::vector<float> expected = one.logits(prompt);
    const std::vector<float> found = several.logits(prompt);
    EXPECT_LE(difference(expected, found), kBound);
    GenerateOptions greedy;
    greedy.sampling.temperature = 0;
    greedy.max_tokens = kTokens;
    EXPECT_EQ(several.tokens(prompt, greedy), one.tokens(prompt, greedy));
    ++answered;
    if (expected != found) ++rounded;
    EXPECT_EQ(several.logits(prompt), found) << "not the same bits again";
  }
  EXPECT_GT(answered, 150);
  EXPECT_GT(rounded, answered / 2) << "of " << answered;
}

INSTANTIATE_TEST_SUITE_P(Sizes, RanksOfGoldens, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace subbyte
