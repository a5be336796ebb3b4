// Golden models on several stages of a pipeline beside one machine: the same bits, as no sum is
// divided.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "cpu_backend/cpu_backend.h"
#include "engine/scheduler.h"
#include "on_ranks.h"
#include "parallel/stage_backend.h"
#include "parallel/stages.h"
#include "support/refusing_gpu.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using testing::OnMachine;

/// On so many stages; 1: on one machine.
OnMachine on_stages(const std::filesystem::path& folder, int stages, bool is_invariant = false) {
  DeviceOptions options = testing::on_cpu(stages);
  options.pipeline_parallel_size = stages;
  options.batch_invariant = is_invariant;
  return {folder, make_backend(options)};
}

void expect_same(OnMachine& found, OnMachine& expected, const std::vector<int32_t>& prompt) {
  GenerateOptions greedy;
  greedy.sampling.temperature = 0;
  greedy.max_tokens = 12;
  EXPECT_EQ(found.logits(prompt), expected.logits(prompt));
  EXPECT_EQ(found.tokens(prompt, greedy), expected.tokens(prompt, greedy));
}

class StagesOfGoldens : public ::testing::TestWithParam<int> {};

TEST_P(StagesOfGoldens, answer_as_one_machine_does) {
  int answered = 0;
  for (const auto& folder : testing::folders()) {
    SCOPED_TRACE(folder.filename().string());
    const std::vector<int32_t> prompt = testing::prompt_of(folder);
    if (prompt.empty()) continue;
    OnMachine stages = on_stages(folder, GetParam());
    OnMachine one = on_stages(folder, 1);
    ASSERT_EQ(one.error(), "");
    if (!stages.error().empty()) {
      const bool has_too_few = one.model().config().num_layers < GetParam();
      const char* const why = has_too_few ? "a layer each at least" : "both are in one stage";
      EXPECT_NE(stages.error().find(why), std::string::npos) << stages.error();
      continue;
    }
    expect_same(stages, one, prompt);
    ++answered;
  }
  EXPECT_GT(answered, GetParam() == 2 ? 110 : 20);
}

INSTANTIATE_TEST_SUITE_P(Sizes, StagesOfGoldens, ::testing::Values(2, 3));

/// Two machines of which the second one has the last layers, as the CPU and a GPU have them.
OnMachine with_last(const std::string& golden, int64_t layers) {
  auto exchanges = make_thread_exchanges(2);
  std::vector<StageMember> both;
  for (int stage = 0; stage < 2; ++stage) {
    both.push_back({std::move(make_cpu_backend({.num_threads = 1})).value(),
                    std::move(exchanges[rank_of_stage(stage, 2)])});
  }
  return {testing::golden_folder(golden.c_str()),
          make_stage_backend(std::move(both), {.last = layers}, std::make_shared<ThreadPool>(1))};
}

class LastLayers : public ::testing::TestWithParam<const char*> {};

TEST_P(LastLayers, of_any_number_answer_as_all_do) {
  const auto folder = testing::golden_folder(GetParam());
  const std::vector<int32_t> prompt = testing::prompt_of(folder);
  OnMachine one = on_stages(folder, 1);
  ASSERT_EQ(one.error(), "");
  for (int64_t layers = 1; layers <= one.model().config().num_layers; ++layers) {
    SCOPED_TRACE(layers);
    OnMachine two = with_last(GetParam(), layers);
    ASSERT_EQ(two.error(), "");
    expect_same(two, one, prompt);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, LastLayers, ::testing::ValuesIn(testing::goldens(testing::kFew)),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(States, LastLayers,
                         ::testing::ValuesIn(testing::goldens(testing::kEveryBorder)),
                         NamedByValue());

/// Memory of its own for so many numbers of weights.
class SmallMemory : public testing::EndlessMemory {
 public:
  explicit SmallMemory(int64_t weights) : weights_(weights) {}
  Status reserve(const MemoryNeed& need, const StepPlan&, const StepSize&) override {
    if (need.weights <= weights_) return {};
    return Error{"memory.device", "too much"};
  }

 private:
  int64_t weights_;
};

/// A GPU that the CPU plays.
class SmallGpu : public ForwardingBackend {
 public:
  SmallGpu(std::unique_ptr<Backend> cpu, int64_t weights)
      : ForwardingBackend(*cpu), own_(std::move(cpu)), memory_(weights) {}
  std::string description() const override { return "a GPU"; }
  MachineMemory* memory() override { return &memory_; }

 private:
  std::unique_ptr<Backend> own_;
  SmallMemory memory_;
};

/// The CPU, and a GPU after it that has what fits.
OnMachine with_small_gpu(const std::filesystem::path& folder, int64_t weights) {
  auto exchanges = make_thread_exchanges(2);
  std::vector<StageMember> both(2);
  for (int stage = 0; stage < 2; ++stage) {
    both[stage].machine = std::move(make_cpu_backend({.num_threads = 1})).value();
    both[stage].exchange = std::move(exchanges[rank_of_stage(stage, 2)]);
  }
  both[1].machine = std::make_unique<SmallGpu>(std::move(both[1].machine), weights);
  return {folder, make_stage_backend(std::move(both), {.fills_last = true},
                                     std::make_shared<ThreadPool>(1))};
}

/// Numbers of a layer of a Qwen3 model, and of its head with the final norm.
int64_t numbers_of_layer(const ModelConfig& c) {
  return c.hidden_size * (2 * c.num_heads + 2 * c.num_kv_heads) * c.head_dim +
         3 * c.hidden_size * c.intermediate_size;
}

TEST(LayersThatFit, are_those_that_the_gpu_has_room_for) {
  const auto folder = testing::golden_folder("qwen3-bf16");
  const std::vector<int32_t> prompt = testing::prompt_of(folder);
  OnMachine one = on_stages(folder, 1);
  ASSERT_EQ(one.error(), "");
  const ModelConfig& config = one.model().config();
  const int64_t layer = numbers_of_layer(config);
  const int64_t vectors =
      config.num_layers * 2 * (config.hidden_size + config.head_dim) + config.hidden_size;
  const int64_t head = config.vocab_size * config.hidden_size;
  OnMachine none = with_small_gpu(folder, head + vectors - 1);
  EXPECT_NE(none.error().find("memory.device"), std::string::npos) << none.error();
  for (int64_t layers = 0; layers <= config.num_layers; ++layers) {
    SCOPED_TRACE(layers);
    OnMachine both = with_small_gpu(folder, head + vectors + layers * layer);
    ASSERT_EQ(both.error(), "");
    // The CPU has one layer at least.
    const int64_t first = config.num_layers - std::min(layers, config.num_layers - 1);
    const Stage last = {
        .first_layer = first, .last_layer = config.num_layers, .num_layers = config.num_layers};
    EXPECT_NE(both.backend().description().find(to_string(last) + " on a GPU"), std::string::npos)
        << both.backend().description();
    EXPECT_EQ(both.logits(prompt), one.logits(prompt));
  }
}

/// Counts steps on their way, whose sequences are different ones.
class CountedSteps : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void submit(const CompiledStep& step, const Batch& batch) override {
    std::set<const Sequence*>& own = on_their_way_.emplace_back();
    for (const Part& part : batch.parts) own.insert(part.sequence);
    std::size_t sum = 0;
    std::set<const Sequence*> all;
    for (const auto& one : on_their_way_) {
      sum += one.size();
      all.insert(one.begin(), one.end());
    }
    EXPECT_EQ(all.size(), sum);
    most_ = std::max(most_, std::ssize(on_their_way_));
    backend_.submit(step, batch);
  }
  Status wait(Logits& logits) override {
    on_their_way_.pop_front();
    return backend_.wait(logits);
  }

  int64_t most() const { return most_; }

 private:
  std::deque<std::set<const Sequence*>> on_their_way_;
  int64_t most_ = 0;
};

/// The tokens of each sample of requests whose prompts begin alike, some of them longer than a
/// piece of a step.
std::map<std::pair<RequestId, int64_t>, std::vector<int32_t>> samples_of(const Model& model,
                                                                         Backend& backend) {
  auto pool = model.make_kv_pool(backend, Element::kF32, {4096, 8, 1024, true, 4});
  EXPECT_TRUE(pool.ok());
  std::map<std::pair<RequestId, int64_t>, std::vector<int32_t>> tokens;
  Scheduler scheduler(model, backend, *pool, {.max_sequences = 4, .step_tokens = 1024});
  Random random(7);
  // More than a piece of a step.
  const int64_t longest = std::min<int64_t>(model.config().max_positions, 512) - 10;
  std::vector<int32_t> text(static_cast<std::size_t>(longest));
  for (int32_t& token : text) {
    token = static_cast<int32_t>(random.below(model.config().vocab_size));
  }
  for (const int64_t length : {longest, longest / 2, int64_t{40}, longest - 30, int64_t{1}}) {
    ScheduledRequest request;
    request.prompt.assign(text.begin(), text.begin() + length);
    request.prompt.push_back(static_cast<int32_t>(length % 100));
    request.options.max_tokens = 6;
    request.options.sampling = {.temperature = 1.5, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 3};
    request.num_samples = 2;
    request.num_top_logprobs = length == 40 ? std::optional<int64_t>(2) : std::nullopt;
    request.scores_prompt = length == longest / 2;
    EXPECT_TRUE(scheduler.add(request).ok());
  }
  while (!scheduler.idle()) {
    const auto events = scheduler.step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      return tokens;
    }
    for (const SampleEvent& event : *events) {
      if (event.token) tokens[{event.request, event.sample}].push_back(*event.token);
    }
  }
  EXPECT_GT(scheduler.num_cached_tokens(), longest);
  return tokens;
}

class RequestsOnStages : public ::testing::TestWithParam<const char*> {};

TEST_P(RequestsOnStages, have_the_tokens_of_one_machine) {
  const auto folder = testing::golden_folder(GetParam());
  OnMachine one = on_stages(folder, 1, true);
  OnMachine stages = on_stages(folder, 2, true);
  ASSERT_EQ(one.error(), "");
  ASSERT_EQ(stages.error(), "");
  const auto expected = samples_of(one.model(), one.backend());
  EXPECT_EQ(expected.size(), 10u);
  CountedSteps counted(stages.backend());
  EXPECT_EQ(samples_of(stages.model(), counted), expected);
  EXPECT_EQ(counted.most(), 2);
}

INSTANTIATE_TEST_SUITE_P(Goldens, RequestsOnStages,
                         ::testing::ValuesIn(testing::goldens(testing::kFew)), NamedByValue());
INSTANTIATE_TEST_SUITE_P(States, RequestsOnStages,
                         ::testing::ValuesIn(testing::goldens(testing::kEveryBorder)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
