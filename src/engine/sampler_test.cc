#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// No cut of any kind.
SamplingOptions plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  options.repetition_penalty = 1;
  options.seed = 1;
  return options;
}

/// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

constexpr int kDraws = 20'000;

/// How often each token comes, by the frequencies `expected`; five standard deviations either way,
/// and never a token of probability 0.
void expect_frequencies(const SamplingOptions& options, const std::vector<float>& logits,
                        const std::vector<double>& expected,
                        const std::vector<int32_t>& history = {}) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    const auto token = sampler.sample(logits, history);
    ASSERT_TRUE(token.ok()) << token.error().message;
    ++counts[*token];
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double p = expected[i];
    const double deviation = std::sqrt(kDraws * p * (1 - p));
    EXPECT_NEAR(counts[static_cast<int32_t>(i)], kDraws * p, 5 * deviation) << "token " << i;
  }
}

TEST(Sampler, draws_by_softmax) {
  expect_frequencies(plain(), logits_of({0.1, 0.4, 0.2, 0.3}), {0.1, 0.4, 0.2, 0.3});
}

TEST(Sampler, temperature_divides_logits) {
  SamplingOptions options = plain();
  options.temperature = 0.5;  // squares the probabilities
  expect_frequencies(options, logits_of({0.5, 0.25, 0.25}), {4.0 / 6, 1.0 / 6, 1.0 / 6});
  options.temperature = 2;  // square roots
  expect_frequencies(options, logits_of({0.64, 0.36}), {0.8 / 1.4, 0.6 / 1.4});
  options.temperature = 1e-9;
  expect_frequencies(options, logits_of({0.3, 0.31, 0.39}), {0, 0, 1});
}

TEST(Sampler, top_k_keeps_the_best) {
  SamplingOptions options = plain();
  options.top_k = 2;
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 4.0 / 7, 0, 3.0 / 7});
  options.top_k = 1;
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 1, 0, 0});
  options.top_k = 100;  // more than there are
  expect_frequencies(options, logits_of({0.5, 0.5}), {0.5, 0.5});
}

TEST(Sampler, top_k_takes_the_lower_tokens_of_a_tie) {
  SamplingOptions options = plain();
  options.top_k = 2;
  expect_frequencies(options, {1, 1, 1, 1}, {0.5, 0.5, 0, 0});
}

TEST(Sampler, top_p_keeps_the_smallest_set_that_reaches_it) {
  SamplingOptions options = plain();
  options.top_p = 0.6;  // 0.4 is not enough, 0.4 + 0.3 is
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 4.0 / 7, 0, 3.0 / 7});
  options.top_p = 0.75;
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  options.top_p = 1e-6;  // one always stays
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 1, 0, 0});
}

TEST(Sampler, top_p_counts_what_top_k_left) {
  SamplingOptions options = plain();
  options.top_k = 2;
  options.top_p = 0.55;  // 0.4 of 0.7 is 0.571
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 1, 0, 0});
}

TEST(Sampler, min_p_is_relative_to_the_best) {
  SamplingOptions options = plain();
  options.min_p = 0.6;  // 0.24 of the best 0.4
  expect_frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), {0, 4.0 / 7, 0, 3.0 / 7});
  options.min_p = 1;
  expect_frequencies(options, {0, 2, 1}, {0, 1, 0});
}

TEST(Sampler, penalty_divides_positive_and_multiplies_negative_logits) {
  SamplingOptions options = plain();
  options.repetition_penalty = 2;
  // 4, -1, 0 become 2, -2, 0: each once, however often a token occurred. 99 and -1 are no tokens
  // of this vocabulary.
  const double sum = std::exp(2.0) + std::exp(-2.0) + 1 + std::exp(1.0);
  expect_frequencies(options, {4, -1, 0, 1},
                     {std::exp(2.0) / sum, std::exp(-2.0) / sum, 1 / sum, std::exp(1.0) / sum},
                     {0, 1, 2, 0, 0, 99, -1});
  options.temperature = 0;
  Sampler greedy(options);
  EXPECT_EQ(*greedy.sample(std::vector<float>{4, 3}, std::vector<int32_t>{0}), 1);
  EXPECT_EQ(*greedy.sample(std::vector<float>{4, 3}, std::vector<int32_t>{}), 0);
}

TEST(Sampler, greedy_takes_the_lowest_of_a_tie_and_needs_no_draw) {
  SamplingOptions options = plain();
  options.temperature = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options.seed = seed;
    Sampler sampler(options);
    EXPECT_EQ(*sampler.sample(std::vector<float>{1, 5, 5, 2, 5}, {}), 1);
    EXPECT_EQ(*sampler.sample(std::vector<float>{-kInfinity, -3, -3}, {}), 1);
  }
}

TEST(Sampler, a_seed_gives_the_same_tokens_again) {
  const auto run = [](uint64_t seed) {
    SamplingOptions options = plain();
    options.seed = seed;
    Sampler sampler(options);
    std::vector<int32_t> tokens;
    const std::vector<float> logits(50, 0.0f);
    for (int i = 0; i < 100; ++i) tokens.push_back(*sampler.sample(logits, {}));
    return tokens;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

/// The k best tokens by sorting all, those of `history` with a penalty of 2.
std::set<int32_t> best_of(const std::vector<float>& logits, const std::vector<int32_t>& history,
                          std::size_t k) {
  std::vector<double> values(logits.begin(), logits.end());
  for (const int32_t token : history) values[token] = logits[token] * (logits[token] > 0 ? 0.5 : 2);
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::ranges::stable_sort(tokens, std::greater(), [&](int32_t token) { return values[token]; });
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(k)};
}

TEST(Sampler, the_best_of_a_large_vocabulary_are_those_of_a_full_sort) {
  Random random(1);
  for (const int levels : {5, 1000, 1'000'000}) {  // few levels: many ties
    std::vector<float> logits(5000);
    for (float& logit : logits)
      logit = static_cast<float>(random.below(levels)) * 9.0F / static_cast<float>(levels) - 4;
    const std::set<int32_t> largest = best_of(logits, {}, 6);
    std::vector<int32_t> history(largest.begin(), largest.end());
    history.insert(history.end(), {0, 4999, 4999});
    SamplingOptions options = plain();
    options.repetition_penalty = 2;
    options.temperature = 0;
    EXPECT_EQ(*Sampler(options).sample(logits, history), *best_of(logits, history, 1).begin());
    options.temperature = 100;  // all of the best are about as likely
    for (const int64_t k : {1, 3, 60}) {
      options.top_k = k;
      Sampler sampler(options);
      std::set<int32_t> drawn;
      for (int i = 0; i < 1500; ++i) drawn.insert(*sampler.sample(logits, history));
      EXPECT_EQ(drawn, best_of(logits, history, k)) << levels << " levels, k " << k;
    }
  }
}

TEST(Sampler, never_draws_what_is_excluded) {
  expect_frequencies(plain(), {-kInfinity, 1, -kInfinity, 1, -kInfinity}, {0, 0.5, 0, 0.5, 0});
  SamplingOptions options = plain();
  options.top_k = 1;
  expect_frequencies(options, {-kInfinity, -100, -kInfinity}, {0, 1, 0});
}

TEST(Sampler, logits_that_are_not_finite_are_an_error) {
  for (const double temperature : {0.0, 1.0}) {
    SamplingOptions options = plain();
    options.temperature = temperature;
    const auto code = [&](const std::vector<float>& logits) {
      Sampler sampler(options);
      const auto token = sampler.sample(logits, {});
      return token.ok() ? "" : std::string(token.error().code);
    };
    EXPECT_EQ(code({1, NAN, 2}), "sampling.not_finite");
    EXPECT_EQ(code({NAN, 1}), "sampling.not_finite");
    EXPECT_EQ(code({1, kInfinity}), "sampling.not_finite");
    EXPECT_EQ(code({-kInfinity, -kInfinity}), "sampling.not_finite");
    EXPECT_EQ(code({-kInfinity, 0}), "");
    std::vector<float> many(300, 1);
    for (const std::size_t at : {0, 100, 255, 256, 299}) {
      for (const float value : {NAN, kInfinity}) {
        many[at] = value;
        EXPECT_EQ(code(many), "sampling.not_finite") << at;
        many[at] = -kInfinity;
      }
    }
    EXPECT_EQ(code(many), "");
  }
}

TEST(SamplingOptions, ranges_are_checked) {
  const auto code = [](void (*change)(SamplingOptions&)) {
    SamplingOptions options;
    change(options);
    const Status status = check_sampling(options);
    return status.ok() ? "" : std::string(status.error().code);
  };
  EXPECT_EQ(code([](SamplingOptions&) {}), "");
  EXPECT_EQ(code([](SamplingOptions& o) { o.temperature = 0; }), "");
  EXPECT_EQ(code([](SamplingOptions& o) { o.temperature = -0.1; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.temperature = NAN; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.top_k = -1; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.top_p = 0; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.top_p = 1.01; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.min_p = -1; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.min_p = 2; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.repetition_penalty = 0; }), "sampling.range");
  EXPECT_EQ(code([](SamplingOptions& o) { o.repetition_penalty = INFINITY; }), "sampling.range");
}

TEST(SamplingOptions, ranges_of_penalties_and_biases_are_checked) {
  SamplingOptions options;
  options.presence_penalty = 2.1;
  EXPECT_FALSE(check_sampling(options).ok());
  options.presence_penalty = -2;
  options.frequency_penalty = -2.1;
  EXPECT_FALSE(check_sampling(options).ok());
  options.frequency_penalty = 2;
  options.biases = {{5, 100.5f}};
  EXPECT_FALSE(check_sampling(options).ok());
  options.biases = {{5, -100}};
  EXPECT_TRUE(check_sampling(options).ok());
}

TEST(SamplingOptions, say_what_is_sampled_with) {
  SamplingOptions options = {.temperature = 0.6, .top_k = 20, .top_p = 0.95, .min_p = 0, .seed = 7};
  EXPECT_EQ(to_string(options), "temperature 0.6, top-k 20, top-p 0.95, min-p 0, seed 7");
  options.presence_penalty = 1.5;
  options.biases = {{1, 2}};
  EXPECT_EQ(
      to_string(options),
      "temperature 0.6, top-k 20, top-p 0.95, min-p 0, seed 7, presence penalty 1.5, 1 biases");
  options = {.temperature = 0};
  EXPECT_EQ(to_string(options), "greedy (temperature 0)");
  EXPECT_EQ(to_json(options)["top_k"], 40);
}

TEST(SamplingDefaults, what_nobody_says_is_neutral_beside_a_part_that_a_model_or_request_says) {
  const SamplingDefaults ours = SamplingDefaults::of({.seed = 3}, {});
  EXPECT_EQ(to_json(ours.with({})), to_json({.seed = 3}));
  EXPECT_EQ(ours.with({.top_p = 0.5}).top_k, 0);
  EXPECT_EQ(ours.with({.top_p = 0.5}).temperature, 1);
  const SamplingDefaults model =
      SamplingDefaults::of({.seed = 3}, {.temperature = 0.6, .top_k = 20});
  EXPECT_EQ(model.alone.min_p, 0);
  EXPECT_EQ(model.alone.top_p, 1);
  EXPECT_EQ(model.with({.min_p = 0.1}).top_k, 20);
  // An option of the command line stands beside our defaults, as it always did.
  const SamplingDefaults options = SamplingDefaults::of({.temperature = 0.3, .seed = 3}, {});
  EXPECT_EQ(options.alone.top_k, 40);
  EXPECT_EQ(options.with({.top_p = 1}).temperature, 0.3);
  EXPECT_EQ(options.with({.top_p = 1}).top_k, 0);
}

TEST(Sampler, holds_tokens_back_until_there_are_enough) {
  SamplingOptions options = plain();
  options.temperature = 0;
  options.biases = {{0, 1}, {2, -5}};
  const std::vector<int32_t> held_back = {1, 2, 900};
  Sampler sampler(options, 2, held_back);
  const std::vector<float> logits = {1, 9, 8, 3};
  EXPECT_EQ(*sampler.sample(logits, {}, 0), 3);
  EXPECT_EQ(*sampler.sample(logits, {}, 1), 3);
  EXPECT_EQ(*sampler.sample(logits, {}, 2), 1);
  EXPECT_EQ(sampler.choice_after(0).biases.size(), 4u);
  EXPECT_EQ(sampler.choice_after(1).biases.size(), 2u);
  const auto none = Sampler(options, 1, std::vector<int32_t>{0, 1, 2, 3}).sample(logits, {}, 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, "sampling.no_token");
}

}  // namespace
}  // namespace subbyte
