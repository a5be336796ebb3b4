// Models on several GPUs of this process beside one: ranks of tensor parallelism. There are two
// ranks, or as many as SUBBYTE_TEST_GPUS says (./dev gpu-test --gpus N).

#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "divided_model.h"
#include "model_on_gpu.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

DeviceOptions several_gpus() {
  const char* const wanted = std::getenv("SUBBYTE_TEST_GPUS");
  DeviceOptions options = testing::gpu();
  options.tensor_parallel_size = wanted == nullptr ? 2 : std::atoi(wanted);
  return options;
}

class RanksOnGpus : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto backend = make_backend(several_gpus());
    const bool is_one_gpu = !backend.ok() && backend.error().code == "device.ranks";
    if (is_one_gpu) GTEST_SKIP() << backend.error().message;
    ASSERT_TRUE(backend.ok()) << backend.error().message;
  }
};

TEST_P(RanksOnGpus, logits_are_those_of_one_gpu) {
  expect_as_on_one_gpu(GetParam(), several_gpus());
}

/// Every rank runs the same launches in a step that is observed, too.
TEST_P(RanksOnGpus, observed_steps_give_the_same) {
  class Counter : public StepObserver {
   public:
    void observe(const Op&, ValueId, std::span<const float>) override { ++results; }
    int results = 0;
  } counter;
  const LoadedModel several = load(golden(GetParam()), several_gpus());
  const std::vector<int32_t> tokens = random_tokens(several, 2, 6);
  TestContext plain(*several.model, *several.backend, 2, Element::kF16);
  TestContext observed(*several.model, *several.backend, 2, Element::kF16);
  const std::vector<float> expected = plain.forward(tokens);
  EXPECT_EQ(observed.forward(tokens, &counter), expected);
  EXPECT_GT(counter.results, 0);
}

class OneModelOnGpus : public RanksOnGpus {
 protected:
  /// The token that is chosen after a prompt, and the logits that it is chosen of, if they are
  /// wanted.
  static std::pair<int32_t, std::vector<float>> choose(const LoadedModel& on,
                                                       std::span<const int32_t> tokens,
                                                       const TokenChoice& choice, bool has_logits) {
    TestContext context(*on.model, *on.backend, kTokensOfText, Element::kF16);
    Logits found;
    const Part part = {&context.sequence(), tokens, has_logits ? 1 : 0, choice};
    value_of(on.model->forward(*on.backend, {{&part, 1}}, found));
    return {found.tokens.empty() ? kNoToken : found.tokens.front(), found.values};
  }
};

TEST_P(OneModelOnGpus, tokens_are_those_of_all_logits) {
  const LoadedModel several = load(golden(GetParam()), several_gpus());
  const std::vector<int32_t> tokens = random_tokens(several, 6, 5);
  std::vector<LogitBias> biases;
  for (int32_t i = 0; i < 60; ++i) biases.push_back({7 * i, i % 2 == 0 ? 2.5F : -4.0F});
  TokenChooser chooser;
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    TokenChoice choice;
    choice.temperature = i % 4 == 0 ? 0 : 0.5 + 2 * random.uniform();
    choice.top_k = i % 5 == 1 ? 0 : 1 + static_cast<int64_t>(random.below(100));
    choice.top_p = i % 3 == 0 ? 1 : 0.7;
    choice.min_p = i % 7 == 0 ? 0.02 : 0;
    choice.uniform = random.uniform();
    if (i % 6 == 0) choice.repetition_penalty = 1.4;
    choice.history = tokens;
    if (i % 8 == 0) choice.biases = biases;
    const auto [of_all, logits] = choose(several, tokens, choice, true);
    const auto [of_candidates, none] = choose(several, tokens, choice, false);
    EXPECT_EQ(of_candidates, of_all) << i;
    EXPECT_EQ(of_all, chooser.choose(logits, choice).value()) << i;
    EXPECT_TRUE(none.empty());
  }
}

/// Steps of single tokens, which repeat: as graphs, or as the kernel of a step.
TEST_P(OneModelOnGpus, tokens_of_repeated_steps_are_those_of_all_logits) {
  const LoadedModel several = load(golden(GetParam()), several_gpus());
  const std::vector<int32_t> prompt = random_tokens(several, 6, 7);
  const auto tokens_with = [&](int64_t num_logits) {
    TestContext context(*several.model, *several.backend, kTokensOfText, Element::kF16);
    std::vector<int32_t> all = prompt;
    Random random(9);
    std::span<const int32_t> next = prompt;
    while (std::ssize(all) < kTokensOfText) {
      const TokenChoice choice = {
          .temperature = 1.5, .top_k = 40, .top_p = 0.9, .uniform = random.uniform()};
      const Part part = {&context.sequence(), next, num_logits, choice};
      Logits found;
      value_of(several.model->forward(*several.backend, {{&part, 1}}, found));
      all.push_back(found.tokens.front());
      next = std::span(all).last(1);
    }
    return all;
  };
  EXPECT_EQ(tokens_with(0), tokens_with(1));
}

INSTANTIATE_TEST_SUITE_P(Goldens, OneModelOnGpus, ::testing::Values("qwen3-bf16", "gpt-oss-mxfp4"),
                         NamedByValue());
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnGpus, ::testing::ValuesIn(goldens(kGpu)), NamedByValue());
INSTANTIATE_TEST_SUITE_P(States, RanksOnGpus, ::testing::ValuesIn(goldens(kStates)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
