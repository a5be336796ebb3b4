// Models on two GPUs of this process beside one: ranks of tensor parallelism.

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "model_on_gpu.h"
#include "near_experts.h"
#include "support/test_context.h"
#include "support/test_names.h"

namespace subbyte {
namespace {

using namespace testing;  // of tests/gpu/model_on_gpu.h

constexpr int64_t kTokens = 24;

DeviceOptions two_gpus() {
  DeviceOptions options = gpu();
  options.tensor_parallel_size = 2;
  return options;
}

/// The logits of these tokens, the first half as a prompt and the others one by one.
std::vector<float> logits_of_text(const LoadedModel& on, std::span<const int32_t> tokens) {
  TestContext context(*on.model, *on.backend, kTokens, Element::kF16);
  std::vector<float> all = context.forward(tokens.first(kTokens / 2));
  for (int64_t i = kTokens / 2; i < kTokens; ++i) {
    append(all, context.forward(tokens.subspan(i, 1)));
  }
  return all;
}

class RanksOnGpus : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto backend = make_backend(two_gpus());
    const bool is_one_gpu = !backend.ok() && backend.error().code == "device.ranks";
    if (is_one_gpu) GTEST_SKIP() << backend.error().message;
    ASSERT_TRUE(backend.ok()) << backend.error().message;
  }
};

TEST_P(RanksOnGpus, logits_are_those_of_one_gpu) {
  const LoadedModel one = load(golden(GetParam()), gpu());
  const LoadedModel two = load(golden(GetParam()), two_gpus());
  const LoadedModel cpu = load(golden(GetParam()), {.device = "cpu"});
  const std::vector<int32_t> tokens = random_tokens(one, kTokens, 5);
  const std::vector<float> expected = logits_of_text(one, tokens);
  const std::vector<float> found = logits_of_text(two, tokens);
  const double stated = of_layers(kF16Decibels, one.model->config().num_layers) - kOfDifferences;
  expect_decibels(found, expected, near_ties(cpu, tokens, stated), stated);
  EXPECT_EQ(logits_of_text(two, tokens), found) << "not the same bits again";
}

/// Every rank runs the same launches in a step that is observed, too.
TEST_P(RanksOnGpus, observed_steps_give_the_same) {
  class Counter : public StepObserver {
   public:
    void observe(const Op&, ValueId, std::span<const float>) override { ++results; }
    int results = 0;
  } counter;
  const LoadedModel two = load(golden(GetParam()), two_gpus());
  const std::vector<int32_t> tokens = random_tokens(two, 2, 6);
  TestContext plain(*two.model, *two.backend, 2, Element::kF16);
  TestContext observed(*two.model, *two.backend, 2, Element::kF16);
  const std::vector<float> expected = plain.forward(tokens);
  EXPECT_EQ(observed.forward(tokens, &counter), expected);
  EXPECT_GT(counter.results, 0);
}

INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnGpus, ::testing::ValuesIn(goldens(kGpu)), NamedByValue());
INSTANTIATE_TEST_SUITE_P(States, RanksOnGpus, ::testing::ValuesIn(goldens(kStates)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
