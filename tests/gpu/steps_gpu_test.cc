// Steps that are enqueued ahead, and steps that are graphs: they change no bit.

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "engine/scheduler.h"
#include "model_on_gpu.h"
#include "ops/forwarding_backend.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

constexpr int64_t kPage = kPagePositions;

/// Counts the steps that were graphs; `in_flight` steps may be on their way.
class Counting : public ForwardingBackend {
 public:
  Counting(Backend& backend, int64_t in_flight)
      : ForwardingBackend(backend), in_flight_(in_flight) {}

  int64_t steps_in_flight() const override { return in_flight_; }
  void submit(const CompiledStep& step, const Batch& batch) override {
    backend_.submit(step, batch);
    if (backend_.last_step() == "a graph") ++num_graphs_;
    if (++num_on_their_way_ == 2) ++num_ahead_;
  }
  Status wait(Logits& logits) override {
    --num_on_their_way_;
    return backend_.wait(logits);
  }
  int64_t num_graphs() const { return num_graphs_; }
  int64_t num_ahead() const { return num_ahead_; }

 private:
  int64_t in_flight_;
  int64_t num_graphs_ = 0;
  int64_t num_ahead_ = 0;
  int64_t num_on_their_way_ = 0;
};

/// Requests may be in other steps where steps go ahead.
DeviceOptions launches(bool has_graphs) {
  DeviceOptions options = gpu();
  options.batch_invariant = true;
  options.step_kernel_tokens = 0;
  options.step_graphs = has_graphs;
  return options;
}

/// What requests of unequal lengths draw, with log probabilities of one of them.
std::vector<std::vector<int32_t>> scheduled_tokens(const LoadedModel& on, Backend& backend) {
  auto pool = value_of(on.model->make_kv_pool(backend, Element::kF16, {40 * kPage, 16}));
  Scheduler scheduler(*on.model, backend, pool, {.max_sequences = 5, .step_tokens = 64});
  std::vector<std::vector<int32_t>> tokens(6);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ScheduledRequest request;
    request.prompt = random_tokens(on, 5 + 90 * static_cast<int64_t>(i), 50 + i);
    request.options.max_tokens = 400 - 60 * static_cast<int64_t>(i);
    request.options.sampling = {.temperature = 1.2, .top_k = 0, .top_p = 1, .min_p = 0, .seed = i};
    if (i == 3) request.options.sampling.repetition_penalty = 1.1;
    if (i == 4) request.num_top_logprobs = 2;
    EXPECT_TRUE(scheduler.add(request).ok());
  }
  while (!scheduler.idle()) {
    const auto events = scheduler.step();
    EXPECT_TRUE(events.ok());
    if (!events.ok()) break;
    for (const SampleEvent& event : *events) {
      if (event.token) tokens[event.request - 1].push_back(*event.token);
    }
  }
  return tokens;
}

TEST(GpuSteps, steps_ahead_and_graphs_change_no_token) {
  for (const char* name : testing::goldens(testing::kFew)) {
    const LoadedModel graphs = load(golden(name), launches(true));
    const LoadedModel plain = load(golden(name), launches(false));
    Counting ahead(*graphs.backend, 2);
    Counting one_by_one(*plain.backend, 1);
    const auto tokens = scheduled_tokens(graphs, ahead);
    EXPECT_EQ(tokens, scheduled_tokens(plain, one_by_one)) << name;
    EXPECT_EQ(tokens[0].size(), 400u);
    EXPECT_GT(ahead.num_graphs(), 100) << name;
    EXPECT_GT(ahead.num_ahead(), 50) << name;
    EXPECT_EQ(one_by_one.num_graphs(), 0);
    EXPECT_EQ(one_by_one.num_ahead(), 0);
  }
}

/// Two models of one shape on one backend, each with two pools: none takes the graphs of another.
TEST(GpuSteps, graphs_know_their_model_and_their_pool) {
  constexpr int64_t kLength = 2 * kPage + 40;
  std::vector<std::vector<float>> logits;
  for (const bool has_graphs : {true, false}) {
    const LoadedModel first = load(golden("qwen3-awq"), launches(has_graphs));
    auto second = load_model(golden("qwen3-gptq-v1"), *first.backend);
    ASSERT_TRUE(second.ok()) << second.error().message;
    TestContext contexts[] = {{*first.model, *first.backend, kLength, Element::kF16},
                              {**second, *first.backend, kLength, Element::kF16},
                              {*first.model, *first.backend, kLength, Element::kF16},
                              {**second, *first.backend, kLength, Element::kF16}};
    const std::vector<int32_t> tokens = random_tokens(first, kLength, 60);
    std::vector<float>& all = logits.emplace_back();
    for (int64_t i = 0; i < kLength; ++i) {
      for (TestContext& context : contexts) append(all, context.forward({&tokens[i], 1}));
    }
    EXPECT_EQ(first.backend->last_step(), has_graphs ? "a graph" : "launches");
  }
  EXPECT_EQ(logits[0], logits[1]);
}

}  // namespace
}  // namespace subbyte
