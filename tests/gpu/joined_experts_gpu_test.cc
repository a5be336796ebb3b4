// The expert that every token goes to as one more of a mixture, in steps of few tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <tuple>

#include "base/thread_pool.h"
#include "model_on_gpu.h"
#include "support/test_context.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

/// Tokens one by one, and where `step_tokens` is 0 by launches that leave that expert apart.
std::vector<float> token_by_token(const std::filesystem::path& folder, int step_tokens,
                                  int64_t count) {
  DeviceOptions options = gpu();
  options.step_kernel_tokens = step_tokens;
  const LoadedModel on = load(folder, options);
  TestContext context(*on.model, *on.backend, count, Element::kF16);
  std::vector<float> logits;
  for (const int32_t& id : random_tokens(on, count, 3)) append(logits, context.forward({&id, 1}));
  return logits;
}

/// Both round the results of each expert once and add them in float32, the one with the others'
/// weights, the other after them and once more: that is what is stated for 16 bits, for each of
/// two. Tokens whose experts are so near that this decides are few, so the median is compared.
TEST(GpuJoinedExperts, are_near_those_apart_and_not_the_same_bits) {
  constexpr int64_t kTokens = 24;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "subbyte_joined_experts";
  // The shared expert of the last has no gate.
  for (const auto& [arch, format, group] : {std::tuple{"qwen3.5-moe", "fp8", 128},
                                            {"qwen3.5-moe", "awq", 64},
                                            {"glm4-moe", "awq", 64}}) {
    std::filesystem::remove_all(folder);
    ThreadPool pool(4);
    const Status made = synthesize(
        folder, {.arch = arch, .shape = "tiny", .format = format, .group_size = group}, pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const std::vector<float> joined = token_by_token(folder, 8, kTokens);
    const std::vector<float> apart = token_by_token(folder, 0, kTokens);
    ASSERT_EQ(joined.size(), apart.size());
    EXPECT_NE(joined, apart) << format << ": nothing was joined";
    const std::size_t vocab = joined.size() / kTokens;
    std::vector<double> all;
    for (std::size_t at = 0; at < joined.size(); at += vocab) {
      all.push_back(
          decibels(std::span(joined).subspan(at, vocab), std::span(apart).subspan(at, vocab)));
    }
    std::ranges::sort(all);
    const double stated = of_layers(kF16Decibels, 4) - kOfDifferences;
    std::printf("%s: %.1f dB, the worst of %d tokens %.1f, stated %.1f\n", format,
                all[all.size() / 2], static_cast<int>(kTokens), all.front(), stated);
    EXPECT_GE(all[all.size() / 2], stated) << format;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace subbyte::testing
