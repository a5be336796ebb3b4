// Models by stages, on the CPU and a GPU after it and on two GPUs, beside one GPU.

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

/// The logits of these tokens, the first half as a prompt and the others one by one.
std::vector<float> logits_of_text(const LoadedModel& on, std::span<const int32_t> tokens) {
  TestContext context(*on.model, *on.backend, kTokens, Element::kF16);
  std::vector<float> all = context.forward(tokens.first(kTokens / 2));
  for (int64_t i = kTokens / 2; i < kTokens; ++i) {
    append(all, context.forward(tokens.subspan(i, 1)));
  }
  return all;
}

void expect_as_one_gpu(const char* name, const DeviceOptions& options) {
  const LoadedModel one = load(golden(name), gpu());
  const LoadedModel stages = load(golden(name), options);
  const LoadedModel cpu = load(golden(name), {.device = "cpu"});
  const std::vector<int32_t> tokens = random_tokens(one, kTokens, 5);
  const std::vector<float> expected = logits_of_text(one, tokens);
  const std::vector<float> found = logits_of_text(stages, tokens);
  const double stated = of_layers(kF16Decibels, one.model->config().num_layers) - kOfDifferences;
  expect_decibels(found, expected, near_ties(cpu, tokens, stated), stated);
  EXPECT_EQ(logits_of_text(stages, tokens), found) << "not the same bits again";
}

class StagesOnGpus : public ::testing::TestWithParam<const char*> {};

TEST_P(StagesOnGpus, logits_of_some_layers_on_a_gpu_are_those_of_all) {
  DeviceOptions options = gpu();
  options.gpu_layers = 2;  // the last one and lm_head
  expect_as_one_gpu(GetParam(), options);
}

TEST_P(StagesOnGpus, logits_of_two_gpus_are_those_of_one) {
  DeviceOptions options = gpu();
  options.pipeline_parallel_size = 2;
  const auto backend = make_backend(options);
  if (!backend.ok()) GTEST_SKIP() << backend.error().message;
  expect_as_one_gpu(GetParam(), options);
}

INSTANTIATE_TEST_SUITE_P(Goldens, StagesOnGpus, ::testing::ValuesIn(goldens(kFew)), NamedByValue());
INSTANTIATE_TEST_SUITE_P(States, StagesOnGpus, ::testing::ValuesIn(goldens(kEveryBorder)),
                         NamedByValue());

}  // namespace
}  // namespace subbyte
