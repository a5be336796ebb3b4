// A model of which most layers keep states instead of positions, by the scheduler: samples that
// share a prompt, steps ahead that are taken back, sequences that are pre-empted and resumed.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "support/goldens.h"
#include "support/lagging_backend.h"
#include "support/test_context.h"

namespace subbyte {
namespace {

using Outputs = std::map<std::pair<RequestId, int64_t>, std::vector<int32_t>>;

/// How many steps may be on their way, and ranks.
class SchedulingStates : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  SchedulingStates() {
    if (GetParam().first == 2) backend_ = &lagging_;
    auto model = load_model(testing::golden_folder("qwen3-next-bf16"), *machine_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  ScheduledRequest request(int64_t prompt, int64_t num_samples) {
    ScheduledRequest made;
    const auto vocab = static_cast<uint64_t>(model_->config().vocab_size);
    for (int64_t i = 0; i < prompt; ++i) {
      made.prompt.push_back(static_cast<int32_t>(random_.below(vocab)));
    }
    made.options.max_tokens = 40;
    made.options.stop_tokens = {7};
    made.options.sampling = {.temperature = 9, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 5};
    made.num_samples = num_samples;
    return made;
  }

  Outputs run(Scheduler& scheduler) {
    Outputs outputs;
    while (!scheduler.idle()) {
      const auto events = scheduler.step();
      EXPECT_TRUE(events.ok()) << events.error().message;
      if (!events.ok()) break;
      for (const SampleEvent& event : *events) {
        if (event.token) outputs[{event.request, event.sample}].push_back(*event.token);
      }
    }
    return outputs;
  }

  std::vector<int32_t> alone(const ScheduledRequest& request, int64_t sample) {
    testing::TestContext context(*model_, *machine_, 1024);
    GenerateOptions options = request.options;
    options.sampling.seed += static_cast<uint64_t>(sample);
    std::vector<int32_t> tokens;
    const auto stats = generate(*model_, *machine_, context.sequence(), request.prompt, options,
                                [&](int32_t token) {
                                  tokens.push_back(token);
                                  return true;
                                });
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    return tokens;
  }

  std::unique_ptr<Backend> machine_ =
      std::move(make_backend({.device = "cpu",
                              .num_threads = GetParam().second,
                              .batch_invariant = true,
                              .tensor_parallel_size = GetParam().second}))
          .value();
  testing::LaggingBackend lagging_{*machine_};
  Backend* backend_ = machine_.get();
  std::unique_ptr<Model> model_;
  Random random_{11};
};

TEST_P(SchedulingStates, gives_every_sample_the_tokens_of_a_run_alone) {
  const std::vector<ScheduledRequest> requests = {request(30, 3), request(5, 1), request(50, 2)};
  for (const int64_t sequences : {6, 2}) {  // with few states sequences are pre-empted
    KvPool pool =
        std::move(model_->make_kv_pool(*backend_, Element::kF32, {1024, sequences})).value();
    Scheduler scheduler(*model_, *backend_, pool, {.max_sequences = 6, .step_tokens = 16});
    for (const ScheduledRequest& one : requests) ASSERT_TRUE(scheduler.add(one).ok());
    const Outputs outputs = run(scheduler);
    ASSERT_EQ(outputs.size(), 6u);
    for (const auto& [key, tokens] : outputs) {
      EXPECT_EQ(tokens, alone(requests[key.first - 1], key.second)) << key.first << key.second;
    }
    EXPECT_EQ(scheduler.num_preemptions() > 0, sequences == 2);
    for (const KvGroup& group : pool.groups()) EXPECT_EQ(group.num_held(), 0);
  }
}

/// The prompt of three samples is computed once, and each goes on from its own last token.
TEST_P(SchedulingStates, samples_share_the_state_of_their_prompt) {
  const ScheduledRequest one = request(100, 3);
  KvPool pool = std::move(model_->make_kv_pool(*backend_, Element::kF32, {1024, 3})).value();
  Scheduler scheduler(*model_, *backend_, pool, {.max_sequences = 3, .step_tokens = 64});
  ASSERT_TRUE(scheduler.add(one).ok());
  const Outputs outputs = run(scheduler);
  int64_t generated = 0;
  for (const auto& [key, tokens] : outputs) generated += std::ssize(tokens);
  const int64_t in_vain = 3 * (GetParam().first - 1);  // steps ahead of a stop token, one a sample
  EXPECT_LE(scheduler.num_computed_tokens(), 100 + 3 + generated + in_vain);
}

INSTANTIATE_TEST_SUITE_P(StepsAndRanks, SchedulingStates,
                         ::testing::Values(std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)),
                         [](const auto& one) {
                           return "steps_" + std::to_string(one.param.first) + "_ranks_" +
                                  std::to_string(one.param.second);
                         });

}  // namespace
}  // namespace subbyte
