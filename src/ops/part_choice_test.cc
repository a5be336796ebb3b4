#include "ops/part_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace subbyte {
namespace {

/// What is chosen of candidates of parts that begin at these tokens.
int32_t chosen_of_parts(const std::vector<float>& logits, const std::vector<std::size_t>& begins,
                        const TokenChoice& choice) {
  std::vector<PartCandidate> all;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : logits.size();
    std::vector<PartCandidate> best(static_cast<std::size_t>(candidates_of_part(choice)));
    PartChooser part;
    part.find(std::span(logits).subspan(begins[i], end - begins[i]),
              static_cast<int64_t>(begins[i]), choice, best);
    all.insert(all.end(), best.begin(), best.end());
  }
  TokenChooser chooser;
  return choose_of_parts(chooser, choice, all);
}

int32_t chosen_of_all(const std::vector<float>& logits, const TokenChoice& choice) {
  TokenChooser chooser;
  const Result<int32_t> token = chooser.choose(logits, choice);
  return token.ok() ? *token : kNoToken;
}

/// Some of everything that a request can ask for.
TokenChoice random_choice(Random& random, const std::vector<int32_t>& history,
                          const std::vector<LogitBias>& biases) {
  const auto or_none = [&](double none, double some) { return random.below(2) == 0 ? none : some; };
  TokenChoice choice;
  choice.temperature = or_none(0, 0.2 + 2 * random.uniform());
  choice.top_k = 1 + static_cast<int64_t>(random.below(random.below(2) == 0 ? 60 : 1024));
  choice.top_p = or_none(1, 0.1 + 0.9 * random.uniform());
  choice.min_p = or_none(0, 0.3 * random.uniform());
  choice.uniform = random.uniform();
  choice.repetition_penalty = or_none(1, 0.5 + random.uniform());
  choice.frequency_penalty = or_none(0, random.uniform() - 0.5);
  choice.presence_penalty = or_none(0, random.uniform() - 0.5);
  choice.history = std::span(history).first(random.below(history.size() + 1));
  choice.num_generated = static_cast<int64_t>(random.below(choice.history.size() + 1));
  choice.biases = std::span(biases).first(random.below(biases.size() + 1));
  return choice;
}

TEST(PartChoice, takes_the_token_that_is_chosen_of_all_logits) {
  Random random(7);
  std::vector<int32_t> history = {-1, 5000};  // of no token
  for (int i = 0; i < 300; ++i) history.push_back(static_cast<int32_t>(random.below(1500)));
  std::vector<LogitBias> biases;
  for (int32_t i = 0; i < 90; ++i) {
    const auto bias = i % 7 == 0 ? -INFINITY : static_cast<float>(4 * random.normal());
    biases.push_back({17 * i, bias});
  }
  const std::vector<std::vector<std::size_t>> parts = {{0, 752}, {0, 496, 1008}, {0, 3, 4, 1490}};
  int drawn_elsewhere = 0;  // than on the best
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> logits(1500);
    for (float& logit : logits) logit = static_cast<float>(3 * random.normal());
    // Few different ones, so that many are equal.
    for (float& logit : logits) logit = i % 3 == 0 ? std::round(logit) : logit;
    if (i % 11 == 0) std::fill_n(logits.begin(), 800, -INFINITY);
    const TokenChoice choice = random_choice(random, history, biases);
    const int32_t expected = chosen_of_all(logits, choice);
    for (const auto& begins : parts) ASSERT_EQ(chosen_of_parts(logits, begins, choice), expected);
    TokenChoice greedy = choice;
    greedy.temperature = 0;
    drawn_elsewhere += expected != chosen_of_all(logits, greedy) ? 1 : 0;
  }
  EXPECT_GT(drawn_elsewhere, 300);
}

TEST(PartChoice, has_no_token_where_the_whole_has_none) {
  const std::vector<float> ordinary(300, 1.0f);
  const std::vector<std::size_t> begins = {0, 100, 200};
  for (const float wrong : {NAN, INFINITY}) {
    for (const std::size_t at : {0, 150, 299}) {
      std::vector<float> logits = ordinary;
      logits[at] = wrong;
      EXPECT_EQ(chosen_of_parts(logits, begins, {}), kNoToken) << wrong << " at " << at;
      EXPECT_EQ(chosen_of_parts(logits, begins, {.temperature = 1, .top_k = 4}), kNoToken);
    }
  }
  EXPECT_EQ(chosen_of_parts(std::vector<float>(300, -INFINITY), begins, {}), kNoToken);
  std::vector<LogitBias> all;
  for (int32_t i = 0; i < 300; ++i) all.push_back({i, -INFINITY});
  EXPECT_EQ(chosen_of_parts(ordinary, begins, {.biases = all}), kNoToken);
  EXPECT_EQ(chosen_of_parts(ordinary, begins, {.biases = std::span(all).first(250)}), 250);
}

TEST(PartChoice, a_draw_among_all_tokens_or_nearly_all_takes_all_logits) {
  EXPECT_EQ(candidates_of_part({.temperature = 0, .top_k = 0}), 1);
  EXPECT_EQ(candidates_of_part({.temperature = 1, .top_k = 40}), 40);
  EXPECT_EQ(candidates_of_part({.temperature = 1, .top_k = 1024}), 1024);
  EXPECT_EQ(candidates_of_part({.temperature = 1, .top_k = 1025}), 0);
  EXPECT_EQ(candidates_of_part({.temperature = 1, .top_k = 0}), 0);
}

}  // namespace
}  // namespace subbyte
