// Models with experts whose steps are one kernel, beside launches.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/thread_pool.h"
#include "gpu_linear.h"
#include "kernels/cuda/step/layout.h"
#include "model_on_gpu.h"
#include "support/test_context.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

std::vector<float> token_by_token(const std::filesystem::path& folder, int step_tokens,
                                  int64_t count, std::string& last_step) {
  DeviceOptions options = gpu();
  options.step_kernel_tokens = step_tokens;
  const LoadedModel on = load(folder, options);
  TestContext context(*on.model, *on.backend, count, Element::kF16);
  std::vector<float> logits;
  for (const int32_t& id : random_tokens(on, count, 3)) append(logits, context.forward({&id, 1}));
  last_step = on.backend->last_step();
  return logits;
}

/// Both round activations between operations, one to 16 bits, one to 16 of significand. Tokens
/// whose experts are so near that this decides are few, so the median is compared.
TEST(GpuProgramExperts, are_near_those_that_are_launched) {
  constexpr int64_t kTokens = 24;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "subbyte_program_experts";
  for (const auto& [format, group] : {std::pair{"awq", 128}, {"awq", 64}, {"fp8", 128}}) {
    std::filesystem::remove_all(folder);
    ThreadPool pool(4);
    const Status made = synthesize(folder,
                                   {.arch = "qwen3-moe",
                                    .shape = "30b-a3b",
                                    .format = format,
                                    .layers = 2,
                                    .group_size = group},
                                   pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
    std::string step;
    const std::vector<float> one = token_by_token(folder, 8, kTokens, step);
    if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
    EXPECT_EQ(step, "one kernel");
    const std::vector<float> launched = token_by_token(folder, 0, kTokens, step);
    EXPECT_EQ(step, "a graph");
    ASSERT_EQ(one.size(), launched.size());
    const std::size_t vocab = one.size() / kTokens;
    std::vector<double> all;
    for (std::size_t at = 0; at < one.size(); at += vocab) {
      all.push_back(
          decibels(std::span(one).subspan(at, vocab), std::span(launched).subspan(at, vocab)));
    }
    std::ranges::sort(all);
    const double stated = of_layers(kF16Decibels, 2) - kOfDifferences;
    std::printf("%s g%d: %.1f dB, the worst of %d tokens %.1f, stated %.1f\n", format, group,
                all[all.size() / 2], static_cast<int>(kTokens), all.front(), stated);
    EXPECT_GE(all[all.size() / 2], stated) << format << " g" << group;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace subbyte::testing
