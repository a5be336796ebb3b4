// Models with experts whose steps are one kernel, beside launches.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "base/thread_pool.h"
#include "gpu_linear.h"
#include "kernels/cuda/step/layout.h"
#include "model_on_gpu.h"
#include "near_experts.h"
#include "support/test_context.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

struct Tokens {
  std::vector<float> logits;  // [tokens][vocabulary]
  std::vector<bool> may_have_other_experts;
  std::string last_step;
};

Tokens token_by_token(const std::filesystem::path& folder, int step_tokens, int64_t count,
                      double stated) {
  DeviceOptions options = gpu();
  options.step_kernel_tokens = step_tokens;
  const LoadedModel on = load(folder, options);
  TestContext context(*on.model, *on.backend, count, Element::kF16);
  const std::vector<int32_t> ids = random_tokens(on, count, 3);
  Tokens tokens;
  for (const int32_t& id : ids) append(tokens.logits, context.forward({&id, 1}));
  tokens.last_step = on.backend->last_step();
  tokens.may_have_other_experts = near_ties(on, ids, stated, Element::kF16);
  return tokens;
}

void expect_near(const Tokens& found, const Tokens& expected, int64_t count, double stated,
                 const std::string& what) {
  ASSERT_EQ(found.logits.size(), expected.logits.size());
  const std::size_t vocab = expected.logits.size() / count;
  int64_t others = 0;
  for (int64_t token = 0; token < count; ++token) {
    const double near = decibels(std::span(found.logits).subspan(token * vocab, vocab),
                                 std::span(expected.logits).subspan(token * vocab, vocab));
    const bool may_be_another = expected.may_have_other_experts[token];
    std::printf("%s, token %d: %.1f dB of %.1f%s\n", what.c_str(), static_cast<int>(token), near,
                stated, may_be_another ? ", near experts" : "");
    if (near >= stated) continue;
    EXPECT_TRUE(may_be_another) << what << ", token " << token << ": " << near << " dB";
    ++others;
  }
  EXPECT_LE(others, count / 8) << what;
}

/// Both round activations between operations, one to 16 bits, one to 16 of significand. Tokens
/// whose experts are so near that this decides may be others; they are few.
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
    const double stated = of_layers(kF16Decibels, 2) - kOfDifferences;
    const Tokens one = token_by_token(folder, 8, kTokens, stated);
    if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
    EXPECT_EQ(one.last_step, "one kernel");
    const Tokens launched = token_by_token(folder, 0, kTokens, stated);
    EXPECT_EQ(launched.last_step, "a graph");
    expect_near(one, launched, kTokens, stated, format + (" g" + std::to_string(group)));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace subbyte::testing
