#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "base/random.h"
#include "engine/generate.h"
#include "support/failing_backend.h"
#include "support/goldens.h"
#include "support/lagging_backend.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

struct Output {
  std::vector<int32_t> tokens;
  std::vector<Logprobs> logprobs;
  std::optional<StopReason> stop;
};
using Outputs = std::map<std::pair<RequestId, int64_t>, Output>;

/// A golden, how many steps may be on their way, and ranks.
class Scheduling : public ::testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  void SetUp() override {
    const auto& [golden, steps_in_flight, ranks] = GetParam();
    auto backend = make_backend({.device = "cpu",
                                 .num_threads = 2,
                                 .batch_invariant = true,
                                 .tensor_parallel_size = ranks});
    ASSERT_TRUE(backend.ok());
    machine_ = std::move(backend).value();
    lagging_.emplace(*machine_);
    backend_ = steps_in_flight == 2 ? &*lagging_ : machine_.get();
    auto model =
        load_model(std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens" / golden, *machine_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  void start(int64_t pages, const SchedulerOptions& options) {
    scheduler_.reset();
    auto pool = model_->make_kv_pool(*backend_, Element::kF32, {pages * kPagePositions, 16});
    ASSERT_TRUE(pool.ok());
    pool_.emplace(std::move(pool).value());
    scheduler_.emplace(*model_, *backend_, *pool_, options);
  }

  ScheduledRequest request(int64_t prompt, int64_t max_tokens, uint64_t seed = 0) {
    ScheduledRequest made;
    made.prompt.resize(prompt);
    for (int32_t& token : made.prompt) {
      token = static_cast<int32_t>(random_.below(model_->config().vocab_size));
    }
    made.options.max_tokens = max_tokens;
    made.options.sampling = {.temperature = 1.5, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
    return made;
  }

  RequestId add(const ScheduledRequest& request) {
    const auto id = scheduler_->add(request);
    EXPECT_TRUE(id.ok()) << id.error().message;
    return id.ok() ? *id : 0;
  }

  void step(Outputs& outputs) { ASSERT_TRUE(try_step(outputs)); }

  /// Whether the machine computed the step.
  bool try_step(Outputs& outputs) {
    auto events = scheduler_->step();
    if (!events.ok()) return false;
    take(*events, outputs);
    return true;
  }

  void take(std::vector<SampleEvent>& events, Outputs& outputs) {
    for (SampleEvent& event : events) {
      ASSERT_FALSE(event.error.has_value()) << event.error->message;
      Output& output = outputs[{event.request, event.sample}];
      EXPECT_FALSE(output.stop.has_value()) << "nothing comes after the end";
      if (event.token) output.tokens.push_back(*event.token);
      if (event.logprobs) output.logprobs.push_back(std::move(*event.logprobs));
      output.stop = event.stop;
    }
  }

  Outputs run() {
    Outputs outputs;
    while (!scheduler_->idle()) {
      step(outputs);
      if (HasFatalFailure()) break;
    }
    for (const KvGroup& group : pool_->groups()) EXPECT_EQ(group.num_held(), 0);
    return outputs;
  }

  /// What generate() makes of a sample, by itself.
  Output alone(const ScheduledRequest& request, int64_t sample) {
    Output output;
    const int64_t length = request.max_length > 0 ? request.max_length : 1024;
    testing::TestContext context(*model_, *machine_, length);
    GenerateOptions options = request.options;
    options.sampling.seed += sample;
    const auto stats = generate(*model_, *machine_, context.sequence(), request.prompt, options,
                                [&](int32_t token) {
                                  output.tokens.push_back(token);
                                  return true;
                                });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    output.stop = stats->reason;
    return output;
  }

  /// All samples of requests with ids from 1 on.
  Outputs each_alone(const std::vector<ScheduledRequest>& requests) {
    Outputs outputs;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      for (int64_t sample = 0; sample < requests[i].num_samples; ++sample) {
        outputs[{i + 1, sample}] = alone(requests[i], sample);
      }
    }
    return outputs;
  }

  static void expect_same(const Outputs& outputs, const Outputs& expected) {
    for (const auto& [key, one] : expected) {
      const auto found = outputs.find(key);
      ASSERT_NE(found, outputs.end()) << "request " << key.first << ", sample " << key.second;
      EXPECT_EQ(found->second.tokens, one.tokens) << "request " << key.first << "." << key.second;
      EXPECT_EQ(found->second.stop, one.stop) << "request " << key.first << "." << key.second;
    }
    EXPECT_EQ(outputs.size(), expected.size());
  }

  /// All requests are added with ids from 1 on.
  void expect_as_alone(const std::vector<ScheduledRequest>& requests, const Outputs& outputs) {
    expect_same(outputs, each_alone(requests));
  }

  Random random_{5};
  std::unique_ptr<Backend> machine_;
  std::optional<testing::LaggingBackend> lagging_;
  Backend* backend_ = nullptr;
  std::unique_ptr<Model> model_;
  std::optional<KvPool> pool_;
  std::optional<Scheduler> scheduler_;
};

TEST_P(Scheduling, gives_the_tokens_of_single_runs) {
  std::vector<ScheduledRequest> requests;
  for (const auto& [prompt, tokens] : {std::pair{1, 9}, {5, 1}, {300, 4}, {129, 30}, {64, 70}}) {
    requests.push_back(request(prompt, tokens, requests.size()));
  }
  const Outputs expected = each_alone(requests);
  for (const SchedulerOptions& options :
       {SchedulerOptions{1, 512}, SchedulerOptions{3, 40}, SchedulerOptions{8, 2}}) {
    start(20, options);
    for (const ScheduledRequest& one : requests) add(one);
    expect_same(run(), expected);
    EXPECT_EQ(scheduler_->num_preemptions(), 0);
  }
}

TEST_P(Scheduling, parts_of_prompts_that_the_time_decides_change_no_token) {
  std::vector<ScheduledRequest> requests;
  for (const auto& [prompt, tokens] : {std::pair{5, 80}, {64, 70}, {300, 9}, {129, 30}, {400, 4}}) {
    requests.push_back(request(prompt, tokens, requests.size()));
  }
  double time = 0;
  Random clock(3);
  start(20, {.max_sequences = 3, .step_tokens = 100, .max_slowdown = 2, .seconds = [&] {
               return time += 1e-3 * static_cast<double>(clock.below(9));
             }});
  for (const ScheduledRequest& one : requests) add(one);
  expect_as_alone(requests, run());
}

TEST_P(Scheduling, a_step_has_no_more_sequences_and_tokens_than_allowed) {
  start(40, {.max_sequences = 3, .step_tokens = 50});
  for (int i = 0; i < 7; ++i) add(request(120, 5 + i));
  int64_t before = 0;
  Outputs outputs;
  while (!scheduler_->idle()) {
    step(outputs);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_LE(scheduler_->num_computed_tokens() - before, 50);
    EXPECT_LE(scheduler_->num_running(), 3);
    before = scheduler_->num_computed_tokens();
  }
  EXPECT_EQ(outputs.size(), 7u);
}

TEST_P(Scheduling, who_ends_makes_room_in_the_next_step) {
  start(20, {.max_sequences = 2, .step_tokens = 512});
  add(request(3, 2));
  add(request(3, 50));
  add(request(3, 1));
  Outputs outputs;
  step(outputs);
  step(outputs);  // the first has ended
  EXPECT_EQ(scheduler_->num_running(), 1);
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  for (int i = 0; i < std::get<1>(GetParam()); ++i) step(outputs);  // one may be on its way
  EXPECT_TRUE((outputs[{3, 0}].stop.has_value()));
  EXPECT_FALSE((outputs[{2, 0}].stop.has_value()));
}

TEST_P(Scheduling, requests_may_come_at_any_time) {
  const std::vector<ScheduledRequest> requests = {request(200, 20, 1), request(7, 40, 2),
                                                  request(130, 3, 3)};
  start(20, {.max_sequences = 4, .step_tokens = 64});
  Outputs outputs;
  for (const ScheduledRequest& one : requests) {
    add(one);
    for (int i = 0; i < 5; ++i) step(outputs);
  }
  while (!scheduler_->idle()) step(outputs);
  expect_as_alone(requests, outputs);
}

TEST_P(Scheduling, samples_share_the_pages_of_their_prompt) {
  ScheduledRequest shared = request(300, 10, 7);  // two whole pages and a part of one
  shared.num_samples = 4;
  start(20, {.max_sequences = 4, .step_tokens = 512});
  add(shared);
  Outputs outputs;
  step(outputs);  // the first sample has computed all of the prompt, and the others hold it
  EXPECT_EQ(scheduler_->num_computed_tokens(), 300);
  EXPECT_EQ(pool_->groups().back().num_held(), 3);
  const int on_their_way = std::get<1>(GetParam());
  for (int i = 0; i < on_their_way; ++i) step(outputs);
  // Each has a copy of the last page, but the one that has computed it.
  EXPECT_EQ(scheduler_->num_computed_tokens(), 300 + 4 + on_their_way - 1);
  EXPECT_EQ(pool_->groups().back().num_held(), 2 + 4);
  while (!scheduler_->idle()) step(outputs);
  expect_as_alone({shared}, outputs);
  EXPECT_NE((outputs[{1, 0}].tokens), (outputs[{1, 1}].tokens));
  EXPECT_EQ(pool_->groups().back().num_held(), 0);
}

TEST_P(Scheduling, more_samples_than_places_still_compute_their_prompt_once) {
  ScheduledRequest shared = request(200, 6, 3);
  shared.num_samples = 5;
  const std::vector<ScheduledRequest> requests = {shared, request(9, 4, 1)};
  start(20, {.max_sequences = 1, .step_tokens = 512});
  for (const ScheduledRequest& one : requests) add(one);
  expect_as_alone(requests, run());
  // Each sample computes the last token of the prompt, and all that it generated but the last.
  EXPECT_EQ(scheduler_->num_computed_tokens(), 199 + 5 * 6 + 9 + 3);
}

TEST_P(Scheduling, an_exhausted_pool_waits_and_changes_no_token) {
  std::vector<ScheduledRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request(100, 60, i));  // two pages each
  requests.push_back(request(250, 100, 9));                             // three pages
  requests.back().num_samples = 3;
  const Outputs expected = each_alone(requests);
  for (const int64_t pages : {3, 4, 5}) {
    start(pages, {.max_sequences = 8, .step_tokens = 300});
    for (const ScheduledRequest& one : requests) add(one);
    expect_same(run(), expected);
    EXPECT_GT(scheduler_->num_preemptions(), 0) << pages;
  }
}

TEST_P(Scheduling, cancelling_frees_pages_and_ends_the_events) {
  std::vector<ScheduledRequest> requests = {request(200, 50, 1), request(140, 40, 2),
                                            request(30, 20, 3)};
  requests[1].num_samples = 3;
  start(20, {.max_sequences = 3, .step_tokens = 512});
  std::vector<RequestId> ids;
  for (const ScheduledRequest& one : requests) ids.push_back(add(one));
  Outputs outputs;
  for (int i = 0; i < 4; ++i) step(outputs);
  const Outputs before = outputs;
  const int64_t held = pool_->groups().back().num_held();
  scheduler_->cancel(ids[0]);
  EXPECT_EQ(pool_->groups().back().num_held(), held - 2);
  scheduler_->cancel(ids[1], 1);
  scheduler_->cancel(ids[0]);      // a second time: nothing
  scheduler_->cancel(ids[1], 99);  // no such sample
  scheduler_->cancel(12345);
  while (!scheduler_->idle()) step(outputs);
  EXPECT_EQ((outputs[{1, 0}].tokens), (before.at({1, 0}).tokens));
  EXPECT_FALSE((outputs[{1, 0}].stop.has_value()));
  EXPECT_FALSE((outputs[{2, 1}].stop.has_value()));
  for (const auto& [request, sample] : {std::pair{1, 0}, {1, 2}, {2, 0}}) {
    const Output expected = alone(requests[request], sample);
    EXPECT_EQ((outputs[{RequestId(request + 1), sample}].tokens), expected.tokens);
  }
  EXPECT_EQ(pool_->groups().back().num_held(), 0);
}

TEST_P(Scheduling, samples_go_on_when_the_one_that_computes_their_prompt_is_cancelled) {
  ScheduledRequest shared = request(200, 6, 3);
  shared.num_samples = 3;
  start(20, {.max_sequences = 3, .step_tokens = 50});
  add(shared);
  Outputs outputs;
  step(outputs);  // a quarter of the prompt
  scheduler_->cancel(1, 0);
  while (!scheduler_->idle()) step(outputs);
  for (const int64_t sample : {1, 2}) {
    EXPECT_EQ((outputs[{1, sample}].tokens), alone(shared, sample).tokens);
  }
  EXPECT_EQ(outputs.size(), 2u);
}

TEST_P(Scheduling, ends_at_stop_tokens_and_at_the_end_of_the_context) {
  std::vector<ScheduledRequest> requests = {request(20, 30, 4), request(20, -1, 5)};
  requests[0].options.stop_tokens = {alone(requests[0], 0).tokens[6]};
  requests[1].max_length = 33;
  start(20, {});
  for (const ScheduledRequest& one : requests) add(one);
  Outputs outputs = run();
  expect_as_alone(requests, outputs);
  EXPECT_EQ((outputs[{1, 0}].stop), StopReason::kStopToken);
  EXPECT_EQ((outputs[{2, 0}].stop), StopReason::kContextFull);
}

TEST_P(Scheduling, log_probabilities_are_those_of_a_softmax_in_double_precision) {
  ScheduledRequest wanted = request(30, 12, 6);
  wanted.num_top_logprobs = 5;
  wanted.options.sampling.repetition_penalty = 1.5;  // is not part of them
  start(20, {});
  add(request(10, 20, 1));
  add(wanted);
  Outputs outputs = run();
  const Output& output = outputs[{2, 0}];
  EXPECT_TRUE((outputs[{1, 0}].logprobs.empty()));
  ASSERT_EQ(output.logprobs.size(), 12u);
  EXPECT_EQ(output.tokens, alone(wanted, 0).tokens);
  std::vector<int32_t> all = wanted.prompt;
  all.insert(all.end(), output.tokens.begin(), output.tokens.end());
  const std::vector<float> logits = testing::logits_of(*model_, *backend_, all);
  const int64_t vocab = model_->config().vocab_size;
  for (std::size_t i = 0; i < 12; ++i) {
    const auto row = std::span(logits).subspan((29 + i) * vocab, vocab);
    std::vector<std::pair<double, int32_t>> expected;
    long double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<long double>(logit));
    for (int32_t id = 0; id < vocab; ++id) {
      expected.emplace_back(-static_cast<double>(std::log(std::exp((long double)row[id]) / sum)),
                            id);
    }
    EXPECT_EQ(output.logprobs[i].chosen.token, output.tokens[i]);
    // Both are rounded some times in 53 bits, and no logit is beyond 100.
    EXPECT_NEAR(output.logprobs[i].chosen.logprob, -expected[output.tokens[i]].first, 1e-12);
    std::ranges::sort(expected);
    ASSERT_EQ(output.logprobs[i].top.size(), 5u);
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(output.logprobs[i].top[k].token, expected[k].second);
      EXPECT_NEAR(output.logprobs[i].top[k].logprob, -expected[k].first, 1e-12);
    }
  }
}

TEST_P(Scheduling, refuses_requests_that_cannot_run_and_keeps_the_others) {
  start(2, {});
  const auto code = [&](const std::function<void(ScheduledRequest&)>& change) {
    ScheduledRequest changed = request(4, 4);
    change(changed);
    const auto id = scheduler_->add(changed);
    return id.ok() ? "" : std::string(id.error().code);
  };
  add(request(5, 3, 1));
  EXPECT_EQ(code([](auto& r) { r.prompt.clear(); }), "generate.empty_prompt");
  EXPECT_EQ(code([](auto& r) { r.prompt[2] = 1 << 30; }), "model.token_range");
  EXPECT_EQ(code([](auto& r) { r.num_samples = 0; }), "scheduler.request");
  EXPECT_EQ(code([](auto& r) { r.num_samples = kMaxSamples + 1; }), "scheduler.request");
  EXPECT_EQ(code([](auto& r) { r.options.max_tokens = 0; }), "scheduler.request");
  EXPECT_EQ(code([](auto& r) { r.max_length = -1; }), "scheduler.request");
  EXPECT_EQ(code([](auto& r) { r.max_length = 3; }), "model.context_full");
  EXPECT_EQ(code([](auto& r) { r.prompt.assign(257, 1); }), "model.context_full");  // of the pool
  EXPECT_EQ(code([](auto& r) { r.options.sampling.top_p = 2; }), "sampling.range");
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  EXPECT_EQ(run().size(), 1u);
}

TEST_P(Scheduling, goes_on_after_a_step_has_failed) {
  const std::vector<ScheduledRequest> requests = {request(20, 30, 4), request(9, 12, 5),
                                                  request(40, 20, 6)};
  const Outputs expected = each_alone(requests);
  for (int after = 0; after < 27; after += 2) {
    start(20, {});
    testing::FailingBackend failing(*backend_);
    scheduler_.emplace(*model_, failing, *pool_, SchedulerOptions{});
    for (const ScheduledRequest& one : requests) add(one);
    failing.fail_after(after);
    Outputs outputs;
    int num_failed = 0;
    while (!scheduler_->idle()) num_failed += try_step(outputs) ? 0 : 1;
    EXPECT_EQ(num_failed, 1);
    expect_same(outputs, expected);
    scheduler_.reset();  // before `failing`
  }
}

TEST_P(Scheduling, goes_a_step_ahead_where_every_token_follows_from_the_step_before) {
  start(20, {});
  add(request(20, 30, 4));
  add(request(9, 12, 5));
  run();
  EXPECT_EQ(lagging_->max_on_their_way(), std::get<1>(GetParam()) == 2 ? 2 : 0);
}

INSTANTIATE_TEST_SUITE_P(Goldens, Scheduling,
                         ::testing::Combine(::testing::ValuesIn(testing::goldens(testing::kFew)),
                                            ::testing::Values(1, 2), ::testing::Values(1)),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(Ranks, Scheduling,
                         ::testing::Combine(::testing::Values("qwen3-bf16"), ::testing::Values(1),
                                            ::testing::Values(2)),
                         NamedByValue());

TEST(Logprobs, likeliest_first_and_the_lower_id_on_ties) {
  const std::vector<float> logits = {1, 3, -INFINITY, 3, 2};
  const Logprobs logprobs = logprobs_of(logits, 2, 9);
  EXPECT_EQ(logprobs.chosen.logprob, -INFINITY);
  std::vector<int32_t> ids;
  for (const TokenLogprob& one : logprobs.top) ids.push_back(one.token);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 4, 0, 2}));
  EXPECT_TRUE(logprobs_of(logits, 0, 0).top.empty());
}

}  // namespace
}  // namespace subbyte
