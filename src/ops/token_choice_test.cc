#include "ops/token_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace subbyte {
namespace {

/// Tokens best first with their probabilities, of a full sort in long double.
struct Distribution {
  std::vector<int32_t> tokens;
  std::vector<long double> kept;  // [i] of tokens[i], not normalised
};

Distribution distribution_of(const std::vector<float>& logits, const TokenChoice& choice) {
  std::vector<long double> values(logits.begin(), logits.end());
  for (const LogitBias& bias : choice.biases) {
    if (bias.token < std::ssize(values)) values[bias.token] += bias.bias;
  }
  const auto generated = choice.history.last(choice.num_generated);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (std::ranges::find(choice.history, token) == choice.history.end()) continue;
    values[i] *= values[i] > 0 ? 1 / static_cast<long double>(choice.repetition_penalty)
                               : static_cast<long double>(choice.repetition_penalty);
    const auto count = std::ranges::count(generated, token);
    if (count > 0)
      values[i] -= choice.presence_penalty + static_cast<double>(count) * choice.frequency_penalty;
  }
  Distribution all;
  all.tokens.resize(logits.size());
  std::iota(all.tokens.begin(), all.tokens.end(), 0);
  std::ranges::stable_sort(all.tokens, std::greater(),
                           [&](int32_t token) { return values[token]; });
  if (choice.top_k > 0 && choice.top_k < std::ssize(logits)) all.tokens.resize(choice.top_k);
  long double total = 0;
  for (const int32_t token : all.tokens) {
    all.kept.push_back(std::exp((values[token] - values[all.tokens[0]]) / choice.temperature));
    total += all.kept.back();
  }
  long double reached = 0;
  for (long double& weight : all.kept) {
    const bool is_kept = reached < choice.top_p * total && weight >= choice.min_p;
    reached += weight;
    if (!is_kept) weight = 0;
  }
  return all;
}

TEST(TokenChooser, the_draw_falls_on_the_token_of_the_full_distribution) {
  // Of 700 tokens each weight is off by half of 2^-38 of the best one at most, and that of a
  // logit of less than 32 that a bias, a factor and a difference change, each rounded to float, by
  // three times 32 * 2^-25 / 0.5 of its own, and so is the best one.
  const long double bound = 700 * 0x1p-38L;
  const long double bound_changed = bound + 2 * 3 * 64 * 0x1p-25L;
  const std::vector<LogitBias> biases = {{1, 2.5f}, {5, -3}, {42, 6}, {300, -INFINITY}, {900, 4}};
  Random random(1);
  TokenChooser chooser;
  const std::vector<int32_t> history = {3, 5, 699, 5, 100, 101, 102, 103};
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> logits(700);
    for (float& logit : logits) logit = static_cast<float>(3 * random.normal());
    TokenChoice choice;
    choice.temperature = 0.5 + 2 * random.uniform();
    choice.top_k = random.below(2) == 0 ? 0 : 1 + static_cast<int64_t>(random.below(60));
    choice.top_p = random.below(2) == 0 ? 1 : 0.1 + 0.9 * random.uniform();
    choice.min_p = random.below(2) == 0 ? 0 : 0.3 * random.uniform();
    choice.uniform = random.uniform();
    const bool changes = random.below(2) == 0;
    if (changes) {
      choice.history = history;
      choice.num_generated = static_cast<int64_t>(random.below(history.size() + 1));
      if (random.below(2) == 0) choice.repetition_penalty = 1.2;
      if (random.below(2) == 0) choice.presence_penalty = 4 * random.uniform() - 2;
      if (random.below(2) == 0) choice.frequency_penalty = 4 * random.uniform() - 2;
      if (random.below(2) == 0) choice.biases = biases;
    }
    const Result<int32_t> token = chooser.choose(logits, choice);
    ASSERT_TRUE(token.ok());
    const Distribution all = distribution_of(logits, choice);
    const auto at = std::ranges::find(all.tokens, *token) - all.tokens.begin();
    ASSERT_LT(at, std::ssize(all.tokens));
    const long double sum = std::accumulate(all.kept.begin(), all.kept.end(), 0.0L);
    const long double before = std::accumulate(all.kept.begin(), all.kept.begin() + at, 0.0L) / sum;
    const long double here = all.kept[at] / sum;
    const long double slack = changes ? bound_changed : bound;
    ASSERT_GT(here, 0);
    ASSERT_GE(choice.uniform, before - slack);
    ASSERT_LE(choice.uniform, before + here + slack);
  }
}

TEST(TokenChooser, the_ends_of_the_draw_are_the_best_and_the_last_kept_token) {
  const std::vector<float> logits = {1, 3, 2, 0};
  TokenChoice choice = {.temperature = 1, .top_k = 3};
  TokenChooser chooser;
  EXPECT_EQ(*chooser.choose(logits, choice), 1);
  choice.uniform = 1 - 0x1p-53;
  EXPECT_EQ(*chooser.choose(logits, choice), 0);
  choice.min_p = 0.3;  // exp(-1) of the best stays, exp(-2) does not
  EXPECT_EQ(*chooser.choose(logits, choice), 2);
}

TEST(TokenChooser, changes_logits_in_the_order_of_vllm) {
  TokenChooser chooser;
  // The bias makes a negative logit positive, so the repetition penalty divides it; then the token
  // that was generated twice loses 2 * 0.5 + 0.25.
  const std::vector<int32_t> history = {1, 0, 0};
  const std::vector<LogitBias> biases = {{0, 5}};
  TokenChoice choice = {.repetition_penalty = 2,
                        .frequency_penalty = 0.5,
                        .presence_penalty = 0.25,
                        .history = history,
                        .num_generated = 2,
                        .biases = biases};
  // (-1 + 5) / 2 - 1.25 = 0.75; 1 of the prompt: 1.4 / 2 = 0.7
  EXPECT_EQ(*chooser.choose(std::vector<float>{-1, 1.4f, 0.74f}, choice), 0);
  EXPECT_EQ(*chooser.choose(std::vector<float>{-1, 1.4f, 0.76f}, choice), 2);
  EXPECT_EQ(*chooser.choose(std::vector<float>{-1, 1.54f, 0.76f}, choice), 1);
  // What was changed for one choice is not for the next.
  EXPECT_EQ(*chooser.choose(std::vector<float>{-1, 1.4f, 0.76f}, {}), 1);
}

TEST(TokenChooser, a_bias_leaves_what_is_not_finite) {
  TokenChooser chooser;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<LogitBias> biases = {{0, -infinity}, {1, 100}};
  EXPECT_EQ(*chooser.choose(std::vector<float>{5, -infinity, 1}, {.biases = biases}), 2);
  EXPECT_EQ(chooser.choose(std::vector<float>{infinity, 1}, {.biases = biases}).error().code,
            "sampling.not_finite");
  EXPECT_EQ(chooser.choose(std::vector<float>{1}, {.biases = biases}).error().code,
            "sampling.no_token");
}

TEST(TokenChooser, says_which_logit_is_not_finite) {
  TokenChooser chooser;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto token = chooser.choose(std::vector<float>{1, infinity}, {});
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code, "sampling.not_finite");
  EXPECT_EQ(token.error().message, "the model gave inf as the logit of token 1");
}

}  // namespace
}  // namespace subbyte
