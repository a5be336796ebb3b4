// Who is computed when: priorities, long prompts and short ones, rows that wait for the host, and
// what a queue costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "engine/scheduler.h"
#include "support/goldens.h"
#include "support/lagging_backend.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

/// Steps that take a time of their own.
class Timed : public testing::LaggingBackend {
 public:
  using LaggingBackend::LaggingBackend;
  struct Step {
    int64_t num_answers = 0;
    int64_t prompt_tokens = 0;
    double end = 0;  // when it is done
    /// Like a GPU: 4 ms of weights, and more for each token.
    double seconds() const {
      return 1e-3 * (4.0 + 0.1 * static_cast<double>(num_answers) +
                     0.2 * static_cast<double>(prompt_tokens));
    }
  };

  void submit(const CompiledStep& compiled, const Batch& batch) override {
    Step& step = steps.emplace_back();
    for (const Part& part : batch.parts) {
      const int64_t size = std::ssize(part.tokens);
      (size == 1 ? step.num_answers : step.prompt_tokens) += size;
    }
    last_end = std::max(last_end, time) + step.seconds();
    step.end = last_end;
    LaggingBackend::submit(compiled, batch);
  }
  Status wait(Logits& logits) override {
    time = std::max(time, steps.at(num_done++).end);
    return LaggingBackend::wait(logits);
  }

  std::vector<Step> steps;
  double time = 0;

 private:
  std::size_t num_done = 0;
  double last_end = 0;
};

class SchedulingOrder : public ::testing::Test {
 protected:
  void start(const SchedulerOptions& options, int64_t pages = 60) {
    scheduler_.reset();  // before the pool
    pool_.emplace(
        std::move(model_->make_kv_pool(backend_, Element::kF32, {pages * kPagePositions})).value());
    scheduler_.emplace(*model_, backend_, *pool_, options);
  }

  RequestId add(int64_t prompt, int64_t max_tokens, int64_t priority = 0, float penalty = 1) {
    ScheduledRequest request;
    for (int64_t i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<int32_t>((7 * i + 31 * ++num_added_) % 200));
    }
    request.options.max_tokens = max_tokens;
    request.options.sampling.temperature = 0;
    request.options.sampling.repetition_penalty = penalty;
    request.priority = priority;
    return scheduler_->add(request).value();
  }

  /// Four samples answer, beside which steps take 2.5 times as long at most.
  void answer_beside_prompts(float penalty) {
    SchedulerOptions options = {.max_sequences = 8, .step_tokens = 256, .shares_prefixes = false};
    options.max_slowdown = 2.5;
    options.seconds = [this] { return backend_.time; };
    start(options);
    for (int i = 0; i < 4; ++i) add(60, 400, 0, penalty);
    step();
    EXPECT_EQ(backend_.steps[0].prompt_tokens, 240) << "nobody answers yet";
    for (int i = 0; i < 10; ++i) step();
  }

  /// Steps that two prompts took, `late` seconds after each third of which the next one is asked
  /// for.
  std::size_t read_prompts(int64_t size, double late = 0) {
    const std::size_t begin = backend_.steps.size();
    const RequestId first = add(size, 1);
    const RequestId second = add(size, 1);
    for (int i = 0; tokens_[first] + tokens_[second] < 2; ++i) {
      step();
      backend_.time += i % 3 == 2 ? late : 0;
    }
    const double alone = Timed::Step{.num_answers = 4}.seconds();
    int64_t prompt_tokens = 0;
    for (std::size_t i = begin; i < backend_.steps.size(); ++i) {
      const Timed::Step& one = backend_.steps[i];
      EXPECT_LE(one.seconds(), 1.01 * alone * (1 + 1.5 * 6 / 4)) << i;
      prompt_tokens += one.prompt_tokens;
    }
    EXPECT_EQ(prompt_tokens, 2 * size);
    return backend_.steps.size() - begin;
  }

  /// The number of tokens of each request after a step.
  void step() {
    const auto events = scheduler_->step();
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const SampleEvent& event : *events) {
      tokens_[event.request] += event.token ? 1 : 0;
      if (event.is_end()) ended_.push_back(event.request);
    }
  }

  std::unique_ptr<Backend> machine_ =
      std::move(make_backend({.device = "cpu", .num_threads = 1})).value();
  Timed backend_{*machine_};
  std::unique_ptr<Model> model_ =
      std::move(load_model(testing::golden_folder("qwen3-bf16"), *machine_)).value();
  std::optional<KvPool> pool_;
  std::optional<Scheduler> scheduler_;
  std::map<RequestId, int64_t> tokens_;
  std::vector<RequestId> ended_;
  int64_t num_added_ = 0;
};

TEST_F(SchedulingOrder, a_short_prompt_does_not_wait_for_a_long_one_that_goes_on) {
  start({.max_sequences = 4, .step_tokens = 64});
  const RequestId first = add(480, 1);
  const RequestId other = add(480, 1);
  const RequestId last = add(20, 1);
  for (int i = 0; i < 2 && tokens_[last] == 0; ++i) step();
  EXPECT_EQ(tokens_[last], 1);
  int num_steps = 0;
  while (tokens_[first] == 0) {
    add(30, 1);  // others come all the time
    step();
    ++num_steps;
  }
  EXPECT_LE(num_steps, 480 / 32 + 2);
  EXPECT_EQ(tokens_[other], 0);
  while (!scheduler_->idle()) step();
}

TEST_F(SchedulingOrder, answers_go_on_while_prompts_are_read) {
  answer_beside_prompts(1);
  const auto num_steps = static_cast<double>(read_prompts(480));
  // They have what is allowed: they take 192 ms, of 9.9 ms a step of two and 8.25 of one.
  EXPECT_LE(num_steps, 192 / 8.25 + 4);
}

/// They have no part in every second step, as a penalty waits for the token before.
TEST_F(SchedulingOrder, answers_with_penalties_go_on_while_prompts_are_read) {
  answer_beside_prompts(1.1F);
  read_prompts(480);
}

TEST_F(SchedulingOrder, prompts_go_on_where_this_thread_comes_late) {
  answer_beside_prompts(1);
  const auto num_steps = static_cast<double>(read_prompts(480, 0.02));
  EXPECT_LE(num_steps, 192 / 8.25 + 4);
}

TEST_F(SchedulingOrder, prompts_shorter_than_a_step_have_whole_ones) {
  answer_beside_prompts(1);
  const std::size_t begin = backend_.steps.size();
  const RequestId prompt = add(240, 1);
  while (tokens_[prompt] < 1) step();
  int64_t most = 0;
  for (std::size_t i = begin; i < backend_.steps.size(); ++i) {
    most = std::max(most, backend_.steps[i].prompt_tokens);
  }
  EXPECT_EQ(most, 240);
}

TEST_F(SchedulingOrder, the_lower_priority_comes_first_and_gives_its_pages_last) {
  start({.max_sequences = 1, .step_tokens = 64});
  const RequestId running = add(5, 8);
  step();
  const RequestId late = add(5, 2, 3);
  const RequestId usual = add(5, 2);
  const RequestId first = add(5, 2, -1);
  while (!scheduler_->idle()) step();
  EXPECT_EQ(ended_, (std::vector{running, first, usual, late}));
  // Both want two pages of three in the end.
  ended_.clear();
  start({.max_sequences = 2, .step_tokens = 64}, 3);
  const RequestId older = add(100, 100, 1);
  step();
  const RequestId urgent = add(100, 100);
  while (!scheduler_->idle()) step();
  EXPECT_EQ(scheduler_->num_preemptions(), 1);
  EXPECT_EQ(ended_, (std::vector{urgent, older}));
}

TEST_F(SchedulingOrder, one_that_needs_the_host_takes_no_step_ahead_from_others) {
  start({.max_sequences = 4, .step_tokens = 64});
  const RequestId with_penalty = add(5, 40, 0, 1.3F);
  const RequestId others[] = {add(5, 40), add(5, 40)};
  while (tokens_[others[0]] < 30) step();
  EXPECT_EQ(backend_.max_on_their_way(), 2);
  EXPECT_GE(tokens_[with_penalty], 14) << "every other step has it";
  while (!scheduler_->idle()) step();
  EXPECT_EQ(tokens_[with_penalty], 40);
}

TEST_F(SchedulingOrder, the_end_of_one_takes_nothing_back_from_others) {
  start({.max_sequences = 4, .step_tokens = 64, .shares_prefixes = false});
  add(5, 60);
  const RequestId cancelled = add(5, 60);
  for (int i = 0; i < 10; ++i) add(5, 1 + i);
  for (int i = 0; i < 12; ++i) step();
  scheduler_->cancel(cancelled);
  while (!scheduler_->idle()) step();
  int64_t wanted = 0;
  for (const auto& [id, tokens] : tokens_) wanted += 5 + tokens - 1;
  EXPECT_GE(scheduler_->num_computed_tokens(), wanted);
  EXPECT_LE(scheduler_->num_computed_tokens(), wanted + 2) << "steps that were on their way";
}

TEST_F(SchedulingOrder, ten_thousand_that_wait_cost_a_step_little) {
  using Clock = std::chrono::steady_clock;
  const auto cost = [&] {
    std::vector<double> times;
    for (int i = 0; i < 100; ++i) {
      const Clock::time_point begin = Clock::now();
      step();
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    std::ranges::nth_element(times, times.begin() + 50);
    return times[50];
  };
  start({.max_sequences = 2, .step_tokens = 64});
  add(5, 500);
  add(5, 500);
  step();
  const double alone = cost();
  std::vector<RequestId> waiting;
  for (int i = 0; i < 10'000; ++i) waiting.push_back(add(5, 1));
  EXPECT_EQ(scheduler_->num_waiting(), 10'000);
  EXPECT_LT(cost(), 1.5 * alone + 50);
  const Clock::time_point begin = Clock::now();
  for (const RequestId id : waiting) scheduler_->cancel(id);
  const double cancels = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_LT(cancels, 1) << "each is found by its id";
  EXPECT_EQ(scheduler_->num_waiting(), 0);
}

}  // namespace
}  // namespace subbyte
