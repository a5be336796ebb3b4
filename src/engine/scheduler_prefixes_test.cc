// Requests that begin alike, on models with pages of all positions, of a window and with states:
// what is computed, and that answers are those without any prefix known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "base/random.h"
#include "engine/scheduler.h"
#include "support/goldens.h"
#include "support/lagging_backend.h"
#include "support/random_cases.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;  // of these tokens, and before of those of a prompt that is scored
  int64_t cached_tokens = 0;
  bool operator==(const Answer& other) const {
    return tokens == other.tokens && logprobs == other.logprobs;
  }
};
using Answers = std::map<std::pair<RequestId, int64_t>, Answer>;

/// A golden of each family, how many steps may be on their way, and ranks.
class SharedPrefixes : public ::testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  void SetUp() override {
    const auto& [golden, steps_in_flight, ranks] = GetParam();
    machine_ = std::move(make_backend({.device = "cpu",
                                       .num_threads = ranks,
                                       .batch_invariant = true,
                                       .tensor_parallel_size = ranks}))
                   .value();
    lagging_.emplace(*machine_);
    backend_ = steps_in_flight == 2 ? &*lagging_ : machine_.get();
    auto model = load_model(testing::golden_folder(golden), *machine_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  bool has_states() const {
    return std::ranges::any_of(model_->plan().cache.groups, &CacheGroup::is_state);
  }

  void start(int64_t pages, const SchedulerOptions& options = {}, int64_t checkpoints = 40) {
    scheduler_.reset();
    pool_.reset();
    const CacheSize size = {.positions = pages * kPagePositions,
                            .sequences = options.max_sequences,
                            .step_tokens = options.step_tokens,
                            .keeps_prefixes = true,
                            .checkpoints = checkpoints};
    pool_.emplace(std::move(model_->make_kv_pool(*backend_, Element::kF32, size)).value());
    scheduler_.emplace(*model_, *backend_, *pool_, options);
  }

  std::vector<int32_t> text(int64_t length) {
    std::vector<int32_t> made(length);
    for (int32_t& token : made) {
      token = static_cast<int32_t>(random_.below(model_->config().vocab_size));
    }
    return made;
  }

  ScheduledRequest request(std::vector<int32_t> prompt, int64_t max_tokens = 8, uint64_t seed = 0) {
    ScheduledRequest made;
    made.prompt = std::move(prompt);
    made.options.max_tokens = max_tokens;
    made.options.sampling = {.temperature = 1.5, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
    made.num_top_logprobs = 0;
    return made;
  }

  RequestId add(const ScheduledRequest& one) {
    const auto id = scheduler_->add(one);
    EXPECT_TRUE(id.ok()) << id.error().message;
    return *id;
  }

  void step(Answers& answers) {
    const auto events = scheduler_->step();
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const SampleEvent& event : *events) {
      ASSERT_FALSE(event.error) << event.error->message;
      Answer& answer = answers[{event.request, event.sample}];
      answer.cached_tokens = event.cached_tokens;
      for (const Logprobs& one : event.prompt_logprobs) {
        answer.logprobs.push_back(one.chosen.logprob);
      }
      if (event.token) answer.tokens.push_back(*event.token);
      if (event.logprobs) answer.logprobs.push_back(event.logprobs->chosen.logprob);
    }
  }

  Answers run(const std::vector<ScheduledRequest>& requests) {
    for (const ScheduledRequest& one : requests) add(one);
    Answers answers;
    while (!scheduler_->idle() && !HasFatalFailure()) step(answers);
    for (const KvGroup& group : pool_->groups()) EXPECT_EQ(group.num_held(), 0);
    return answers;
  }

  int64_t computed(const std::vector<ScheduledRequest>& requests) {
    const int64_t before = scheduler_->num_computed_tokens();
    run(requests);
    return scheduler_->num_computed_tokens() - before;
  }

  Random random_{7};
  std::unique_ptr<Backend> machine_;
  std::optional<testing::LaggingBackend> lagging_;
  Backend* backend_ = nullptr;
  std::unique_ptr<Model> model_;
  std::optional<KvPool> pool_;
  std::optional<Scheduler> scheduler_;
};

std::size_t num_tokens(const Answers& answers) {
  std::size_t count = 0;
  for (const auto& [key, answer] : answers) count += answer.tokens.size();
  return count;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_P(SharedPrefixes, are_computed_once_by_those_that_come_together) {
  start(60, {.max_sequences = 10, .step_tokens = 64});
  const std::vector<int32_t> system = text(400);
  std::vector<ScheduledRequest> requests;
  for (int i = 0; i < 10; ++i) requests.push_back(request(joined(system, text(10)), 1));
  EXPECT_EQ(computed(requests), 400 + 10 * 10);
  EXPECT_EQ(scheduler_->num_prompt_tokens(), 10 * 410);
  EXPECT_EQ(scheduler_->num_cached_tokens(), 9 * 400);
}

TEST_P(SharedPrefixes, are_waited_for_in_places_that_others_keep_until_they_end) {
  start(60, {.max_sequences = 2, .step_tokens = 64});
  const std::vector<int32_t> system = text(400);
  const RequestId leader = add(request(joined(system, text(10)), 40));
  const RequestId led = add(request(joined(system, text(10)), 4));
  const RequestId other = add(request(text(20), 30));  // in the place of the one before
  Answers answers;
  std::size_t num_steps = 0;
  for (std::size_t before = 0; before < 30; ++num_steps) {
    step(answers);
    const std::size_t now = answers[{other, 0}].tokens.size();
    EXPECT_TRUE(before == 0 || now == before + 1) << num_steps;
    EXPECT_TRUE((answers[{led, 0}].tokens.empty()));
    before = now;
    if (now == 30) break;
    EXPECT_EQ(scheduler_->num_running(), 2);
    EXPECT_EQ(scheduler_->num_waiting(), 1);
  }
  EXPECT_GT((answers[{leader, 0}].tokens.size()), 5u);
  while (!scheduler_->idle() && !HasFatalFailure()) step(answers);
  EXPECT_EQ((answers[{led, 0}].cached_tokens), 400);
}

TEST_P(SharedPrefixes, are_not_waited_for_where_those_that_compute_them_come_later) {
  start(60, {.max_sequences = 4, .step_tokens = 64});
  ScheduledRequest late = request(text(400), 1);
  late.priority = 2;
  add(late);
  Answers answers;
  step(answers);
  ScheduledRequest between = request(text(300), 1);  // it has all that is left of steps
  between.priority = 1;
  add(between);
  const RequestId urgent =
      add(request(joined({late.prompt.begin(), late.prompt.begin() + 100}, text(10)), 1));
  for (int i = 0; i < 5; ++i) step(answers);
  EXPECT_EQ(std::ssize((answers[{urgent, 0}].tokens)), 1);
}

TEST_P(SharedPrefixes, are_waited_for_without_a_place) {
  std::vector<ScheduledRequest> requests;
  const std::vector<int32_t> system = text(400);
  for (int i = 0; i < 2; ++i) requests.push_back(request(joined(system, text(10)), 30, i));
  for (int i = 0; i < 4; ++i) requests.push_back(request(text(10), 30, i));
  start(60, {.max_sequences = 8, .step_tokens = 64});
  const Answers expected = run(requests);
  start(60, {.max_sequences = 2, .step_tokens = 64});
  for (const ScheduledRequest& one : requests) add(one);
  Answers answers;
  for (int i = 0; i < 4; ++i) step(answers);
  EXPECT_TRUE((answers[{1, 0}].tokens.empty())) << "its prompt is still computed";
  EXPECT_FALSE((answers[{3, 0}].tokens.empty())) << "the second has nothing to compute meanwhile";
  while (!scheduler_->idle() && !HasFatalFailure()) {
    const std::size_t before = num_tokens(answers);
    step(answers);
    EXPECT_LE(num_tokens(answers), before + 2) << "a step has so many";
  }
  EXPECT_EQ(answers, expected);
}

TEST_P(SharedPrefixes, of_who_comes_later_are_known_and_the_third_goes_on_from_where_two_part) {
  start(60, {.max_sequences = 4, .step_tokens = 64});
  const std::vector<int32_t> system = text(300);
  EXPECT_EQ(computed({request(joined(system, text(10)), 1)}), 310);
  EXPECT_EQ(computed({request(joined(system, text(10)), 1)}), has_states() ? 310 : 10);
  EXPECT_EQ(computed({request(joined(system, text(10)), 1)}), 10);
}

/// A conversation whose template shows what is before the last message as it was, and then another
/// text; a request for its title comes between.
TEST_P(SharedPrefixes, of_a_conversation_are_known_and_a_title_evicts_none) {
  start(30, {.max_sequences = 2, .step_tokens = 64});
  ScheduledRequest first = request(text(200), 8);
  first.boundary = 195;
  const Answer answer = run({first})[{1, 0}];
  run({request(joined({first.prompt.begin(), first.prompt.begin() + 50}, text(60)), 20)});
  ScheduledRequest second = request(joined(joined(first.prompt, answer.tokens), text(30)), 8);
  second.boundary = 230;
  EXPECT_LE(computed({second}), 1 + 30 + 7) << "the last token of the answer was not computed";
  ScheduledRequest other = second;
  other.prompt[196] += other.prompt[196] == 0 ? 1 : -1;
  EXPECT_LE(computed({other}), 8 + 5 + 30 + 7);
  EXPECT_EQ(scheduler_->prefix_counts().evicted_pages, 0);
  EXPECT_EQ(scheduler_->prefix_counts().evicted_checkpoints, 0);
}

TEST_P(SharedPrefixes, of_who_is_preempted_are_there_when_it_goes_on) {
  std::vector<ScheduledRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(request(text(120), 60, i));
  start(20, {.max_sequences = 3, .step_tokens = 64});
  Answers expected = run(requests);
  const int64_t alone = scheduler_->num_computed_tokens();
  start(4, {.max_sequences = 3, .step_tokens = 64});
  EXPECT_EQ(run(requests), expected);
  EXPECT_GT(scheduler_->num_preemptions(), 0);
  EXPECT_LE(scheduler_->num_computed_tokens(), alone + 2 * 140);
}

TEST_P(SharedPrefixes, of_a_scored_prompt_are_there_when_it_goes_on) {
  ScheduledRequest scored = request(text(500), 4);
  scored.scores_prompt = true;
  scored.priority = 1;
  start(20, {.max_sequences = 4, .step_tokens = 64});
  const Answer expected = run({scored})[{1, 0}];
  start(9, {.max_sequences = 4, .step_tokens = 64});
  for (int i = 0; i < 3; ++i) add(request(text(100), 60));  // which want a second page soon
  Answers answers;
  while (answers[{3, 0}].tokens.size() < 24) step(answers);
  const RequestId id = add(scored);
  while (!scheduler_->idle() && !HasFatalFailure()) step(answers);
  EXPECT_EQ((answers[{id, 0}]), expected);
  EXPECT_GT(scheduler_->num_preemptions(), 0);
  EXPECT_LT(scheduler_->num_computed_tokens(), 3 * 160 + 504 + 100);
}

/// Conversations that branch, several at a time: in a cache that holds all of them, and in some
/// that hold a few pages and states, so that both are evicted all the time.
TEST_P(SharedPrefixes, change_no_bit_of_random_conversations_that_branch) {
  const char* const rounds = std::getenv("SUBBYTE_TEST_CONVERSATIONS");
  const int num_conversations =
      rounds == nullptr ? testing::num_random_cases(20, 60) : std::atoi(rounds);
  std::vector<std::vector<int32_t>> texts = {text(150)};
  std::vector<ScheduledRequest> all;
  std::vector<Answer> answers;
  int64_t num_cached = 0;
  int64_t num_evicted = 0;
  while (std::ssize(all) < num_conversations) {
    const bool is_small = all.size() % 20 >= 10;
    start(is_small ? 6 : 200, {.max_sequences = 3, .step_tokens = 48}, is_small ? 2 : 40);
    for (int wave = 0; wave < 5; ++wave) {
      std::vector<ScheduledRequest> requests;
      for (int i = 0; i < 2; ++i) {
        const auto& from =
            texts[texts.size() - 1 - random_.below(std::min<size_t>(texts.size(), 8))];
        const std::size_t most = std::min<std::size_t>(from.size(), 380);
        const std::size_t common = random_.below(4) == 0 ? random_.below(most) : most;
        ScheduledRequest one =
            request(joined({from.begin(), from.begin() + common}, text(1 + random_.below(40))),
                    1 + random_.below(30), random_.next());
        one.boundary = std::ssize(one.prompt) - 1 - random_.below(5);
        one.num_samples = 1 + static_cast<int64_t>(random_.below(4) == 0);
        one.scores_prompt = random_.below(10) == 0;
        if (random_.below(5) == 0) one.options.sampling.repetition_penalty = 1.2;
        requests.push_back(std::move(one));
      }
      for (auto& [key, answer] : run(requests)) {
        const ScheduledRequest& one = requests[(key.first - 1) % 2];
        texts.push_back(joined(one.prompt, answer.tokens));
        if (key.second == 0) all.push_back(one);
        if (key.second == 0) answers.push_back(answer);
      }
      ASSERT_FALSE(HasFatalFailure());
    }
    num_cached += scheduler_->num_cached_tokens();
    num_evicted += scheduler_->prefix_counts().evicted_pages;
  }
  EXPECT_GT(num_cached, 50 * num_conversations / 2);
  EXPECT_GT(num_evicted, 0);
  start(500, {.max_sequences = 8, .step_tokens = 512, .shares_prefixes = false});
  const Answers expected = run(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(answers[i].tokens, (expected.at({i + 1, 0}).tokens)) << i;
    EXPECT_EQ(answers[i].logprobs, (expected.at({i + 1, 0}).logprobs)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SharedPrefixes,
                         ::testing::Combine(::testing::Values("qwen3-bf16", "qwen3_5-bf16",
                                                              "gpt-oss-mxfp4", "llama3-bf16"),
                                            ::testing::Values(1, 2), ::testing::Values(1)),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(Ranks, SharedPrefixes,
                         ::testing::Combine(::testing::Values("qwen3-bf16", "qwen3_5-bf16",
                                                              "gpt-oss-mxfp4"),
                                            ::testing::Values(1), ::testing::Values(2)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
