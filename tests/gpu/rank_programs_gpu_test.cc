// The kernel of a step on two GPUs of this process, beside launches on them and beside one GPU.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gpu_linear.h"
#include "kernels/cuda/step/layout.h"
#include "model_on_gpu.h"
#include "ops/kv_pool.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

constexpr int64_t kPrompt = 200;  // keys of some tokens are split then
constexpr int64_t kSteps = 12;

DeviceOptions ranks(int count, int kernel_tokens) {
  DeviceOptions options = gpu();
  options.tensor_parallel_size = count;
  options.step_kernel_tokens = kernel_tokens;
  return options;
}

/// Logits of steps of a token of each sequence, after prompts, and how the last one ran.
struct Steps {
  std::vector<float> logits;
  std::string ran_as;
};

Steps single_tokens(const LoadedModel& on, int sequences) {
  constexpr int64_t kLength = kPrompt + kSteps;
  KvPool pool = value_of(on.model->make_kv_pool(
      *on.backend, Element::kF16, {sequences * kv_pages(kLength) * kPagePositions, sequences}));
  std::vector<std::vector<int32_t>> texts;
  std::vector<Sequence> all;
  for (int i = 0; i < sequences; ++i) {
    texts.push_back(random_tokens(on, kLength - 10 * i, 3 + i));
    all.emplace_back(pool, kLength);
  }
  Steps steps;
  for (int64_t step = 0; step <= kSteps; ++step) {
    std::vector<Part> parts;
    for (int i = 0; i < sequences; ++i) {
      const auto text = std::span<const int32_t>(texts[i]);
      const int64_t prompt = std::ssize(text) - kSteps;
      parts.push_back(
          {&all[i], step == 0 ? text.first(prompt) : text.subspan(prompt + step - 1, 1)});
    }
    Logits logits;
    value_of(on.model->forward(*on.backend, {parts}, logits));
    append(steps.logits, logits.values);
  }
  steps.ran_as = on.backend->last_step();
  return steps;
}

class GpuRankPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
    const auto backend = make_backend(ranks(2, 8));
    const bool is_one_gpu = !backend.ok() && backend.error().code == "device.ranks";
    if (is_one_gpu) GTEST_SKIP() << backend.error().message;
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    std::filesystem::remove_all(folder_);
    ThreadPool pool(4);
    const Status made = synthesize(
        folder_, {.arch = "qwen3", .shape = "0.6b", .format = "awq", .layers = 2, .group_size = 64},
        pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / "subbyte_rank_programs";
};

/// Of one sequence and of two, whose rows are short enough for the kernel.
TEST_F(GpuRankPrograms, steps_of_single_tokens_are_one_kernel_and_give_the_logits_of_one_gpu) {
  const LoadedModel one = load(folder_, ranks(1, 8));
  const LoadedModel two = load(folder_, ranks(2, 8));
  const LoadedModel launched = load(folder_, ranks(2, 0));
  const double stated = of_layers(kF16Decibels, 2) - kOfDifferences;
  for (const int sequences : {1, 2}) {
    const Steps expected = single_tokens(one, sequences);
    const Steps found = single_tokens(two, sequences);
    const Steps by_launches = single_tokens(launched, sequences);
    EXPECT_EQ(expected.ran_as, "one kernel") << sequences;
    EXPECT_EQ(found.ran_as, "one kernel") << sequences;
    EXPECT_NE(by_launches.ran_as, "one kernel") << sequences;
    EXPECT_GE(decibels(found.logits, expected.logits), stated) << sequences;
    EXPECT_GE(decibels(found.logits, by_launches.logits), stated) << sequences;
    EXPECT_EQ(single_tokens(two, sequences).logits, found.logits) << "not the same bits again";
  }
}

}  // namespace
}  // namespace subbyte::testing
