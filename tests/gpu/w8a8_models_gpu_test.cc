// Models in FP8 blocks with `--activations fp8`: prompts in 8 bits, few tokens in 16.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/thread_pool.h"
#include "kernels/cuda/linear.h"
#include "model_on_gpu.h"
#include "support/test_context.h"
#include "support/value_of.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

class GpuW8A8Models : public ::testing::Test {
 protected:
  static constexpr int64_t kLayers = 2;

  void SetUp() override {
    if (value_of(cuda::query_device()).compute_capability != 90) {
      GTEST_SKIP() << "products in 8 bits need compute capability 9.0";
    }
    folder_ = std::filesystem::temp_directory_path() / "subbyte_w8a8_models";
    std::filesystem::remove_all(folder_);
    ThreadPool pool(4);
    const Status made = synthesize(
        folder_, {.arch = "qwen3", .shape = "0.6b", .format = "fp8", .layers = kLayers}, pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

/// bf16 has 8 bits of significand and E4M3 has 4, so that rounding to it is off by 16 times as
/// much.
/// With bf16 activations all inputs of products are rounded, those to E4M3 among them, and results
/// between products are, too; so the error of E4M3 is at most 16 times that of bf16.
TEST_F(GpuW8A8Models, long_prompts_are_in_8_bits_and_short_ones_are_not) {
  const LoadedModel plain = load(folder_, gpu());
  const LoadedModel fp8 = load(folder_, gpu(Activations::kFp8));
  const auto logits = [](const LoadedModel& on, const std::vector<int32_t>& ids) {
    return logits_of(*on.model, *on.backend, ids, Element::kF16);
  };
  const std::vector<int32_t> longer = random_tokens(plain, 300, 1);
  const std::vector<int32_t> shorter(longer.begin(), longer.begin() + 200);
  EXPECT_EQ(logits(fp8, shorter), logits(plain, shorter));
  const std::vector<float> found = logits(fp8, longer);
  const std::vector<float> expected = logits(plain, longer);
  EXPECT_NE(found, expected);
  const LoadedModel bf16 = load(folder_, gpu(Activations::kBF16));
  const double stated = decibels(logits(bf16, longer), expected) - 20 * std::log10(16);
  std::printf("%.1f dB, stated %.1f\n", decibels(found, expected), stated);
  EXPECT_GT(decibels(found, expected), stated);
}

}  // namespace
}  // namespace subbyte::testing
