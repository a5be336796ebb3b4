// Tokens that ranks choose among the candidates of each, or of logits that the first one is given:
// those of one rank, however they are chosen.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "on_ranks.h"
#include "support/goldens.h"

namespace subbyte {
namespace {

using testing::OnRanks;

constexpr int64_t kTokens = 24;

SamplingOptions sampled(int64_t top_k, double top_p, double min_p, double temperature = 1.2) {
  return {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = 3};
}

/// Everything that a request may ask for, alone and with others.
std::map<std::string, SamplingOptions> all_options() {
  std::map<std::string, SamplingOptions> all = {
      {"greedy", {.temperature = 0}},
      {"defaults", {}},
      {"all tokens", sampled(0, 1, 0)},
      {"top-k 1", sampled(1, 1, 0)},
      {"top-k", sampled(40, 1, 0)},
      {"top-k of nearly all", sampled(500, 1, 0)},
      {"top-k of more than there are", sampled(1000, 1, 0)},
      {"top-k beyond candidates", sampled(2000, 1, 0)},
      {"top-p", sampled(0, 0.8, 0)},
      {"min-p", sampled(0, 1, 0.1)},
      {"all three", sampled(30, 0.9, 0.02)},
      {"cold", sampled(40, 0.95, 0, 0.05)},
      {"hot", sampled(40, 0.95, 0, 20)},
  };
  for (const char* const name : {"greedy", "all tokens", "top-k", "all three"}) {
    SamplingOptions penalties = all.at(name);
    penalties.repetition_penalty = 1.3;
    all[name + std::string(", repetition")] = penalties;
    penalties.frequency_penalty = 0.5;
    penalties.presence_penalty = -0.3;
    all[name + std::string(", penalties")] = penalties;
    SamplingOptions biases = all.at(name);
    for (int32_t token = 0; token < 500; token += 5) {
      biases.biases.push_back({token, token % 2 == 0 ? -100.0F : 3.0F});
    }
    all[name + std::string(", biases")] = biases;
  }
  return all;
}

class SamplingOnRanks : public ::testing::TestWithParam<int> {};

TEST_P(SamplingOnRanks, takes_the_tokens_of_one_rank) {
  const auto folder = testing::golden_folder("qwen3-bf16");
  const std::vector<int32_t> prompt = testing::prompt_of(folder);
  OnRanks one(folder, 1);
  OnRanks several(folder, GetParam());
  ASSERT_EQ(several.error(), "");
  for (const auto& [name, sampling] : all_options()) {
    GenerateOptions options;
    options.sampling = sampling;
    options.max_tokens = kTokens;
    EXPECT_EQ(several.tokens(prompt, options), one.tokens(prompt, options)) << name;
  }
}

/// Requests of all kinds in the same steps: rows of candidates, of all logits, and both results.
TEST_P(SamplingOnRanks, takes_them_in_steps_of_many_requests) {
  const auto folder = testing::golden_folder("qwen3-bf16");
  const std::vector<int32_t> prompt = testing::prompt_of(folder);
  const auto answers_on = [&](int ranks) {
    OnRanks on(folder, ranks);
    KvPool pool = std::move(on.model().make_kv_pool(on.backend(), Element::kF32, {8192})).value();
    Scheduler scheduler(on.model(), on.backend(), pool, {.max_sequences = 32, .step_tokens = 50});
    int64_t i = 0;
    for (const auto& [name, sampling] : all_options()) {
      ScheduledRequest request;
      request.prompt = prompt;
      request.prompt.push_back(static_cast<int32_t>(++i));
      request.options.sampling = sampling;
      request.options.max_tokens = kTokens;
      if (i % 3 == 0) request.num_top_logprobs = 2;
      request.scores_prompt = i % 6 == 0;
      EXPECT_TRUE(scheduler.add(request).ok()) << name;
    }
    std::map<RequestId, std::vector<int32_t>> answers;
    std::vector<double> scores;
    while (!scheduler.idle()) {
      const auto events = scheduler.step();
      EXPECT_TRUE(events.ok()) << events.error().message;
      if (!events.ok()) break;
      for (const SampleEvent& event : *events) {
        if (event.token) answers[event.request].push_back(*event.token);
        if (event.logprobs) scores.push_back(event.logprobs->chosen.logprob);
        for (const Logprobs& score : event.prompt_logprobs) scores.push_back(score.chosen.logprob);
      }
    }
    return std::pair(answers, scores);
  };
  const auto [expected, expected_scores] = answers_on(1);
  const auto [found, scores] = answers_on(GetParam());
  EXPECT_EQ(found, expected);
  ASSERT_EQ(scores.size(), expected_scores.size());
  // Sums in another order: 2e-3 of the largest logit, which is below 10 (ranks_test.cc).
  for (std::size_t i = 0; i < scores.size(); ++i) EXPECT_NEAR(scores[i], expected_scores[i], 4e-2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SamplingOnRanks, ::testing::Values(2, 3));

}  // namespace
}  // namespace subbyte
