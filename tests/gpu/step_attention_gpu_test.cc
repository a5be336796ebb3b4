// Attention in the kernel of a step after texts of many lengths, beside that of launches.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/thread_pool.h"
#include "gpu_linear.h"
#include "kernels/cuda/step/layout.h"
#include "model_on_gpu.h"
#include "support/test_context.h"
#include "synth/synth.h"

namespace subbyte::testing {
namespace {

constexpr int64_t kSteps = 3;

/// The last `kSteps` of so many tokens, one by one, after all others at once: logits of the last.
std::vector<float> last_logits(const LoadedModel& on, std::span<const int32_t> ids) {
  TestContext context(*on.model, *on.backend, std::ssize(ids), Element::kF16);
  const auto before = ids.first(ids.size() - kSteps);
  Logits logits;
  const Part part = {&context.sequence(), before, 1};
  value_of(on.model->forward(*on.backend, {{&part, 1}, nullptr}, logits));
  std::vector<float> last;
  for (const int32_t& id : ids.last(kSteps)) last = context.forward({&id, 1});
  return last;
}

LoadedModel with_step_tokens(const std::filesystem::path& folder, int tokens) {
  DeviceOptions options = gpu();
  options.step_kernel_tokens = tokens;
  return load(folder, options);
}

/// Every layer of a Mistral sees so many tokens.
void set_window(const std::filesystem::path& folder, int window) {
  const std::filesystem::path path = folder / "config.json";
  std::stringstream config;
  config << std::ifstream(path).rdbuf();
  std::string text = config.str();
  const std::string none = "\"sliding_window\": null";
  ASSERT_NE(text.find(none), std::string::npos);
  text.replace(text.find(none), none.size(), "\"sliding_window\": " + std::to_string(window));
  std::ofstream(path) << text;
}

struct Shape {
  const char* arch;
  const char* shape;
  int64_t longest;  // text
};

/// Heads of 128 and of 64 elements, and windows. Keys are split from 193 on, into at most 16.
TEST(GpuStepAttention, is_near_that_of_launches_after_texts_of_any_length) {
  if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no kernel of a step";
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "subbyte_step_attention";
  for (const auto& [arch, shape, longest] :
       {Shape{"qwen3", "0.6b", 9000}, {"llama", "tiny", 2000}, {"mistral", "tiny", 2000}}) {
    std::filesystem::remove_all(folder);
    ThreadPool pool(4);
    const Status made = synthesize(
        folder, {.arch = arch, .shape = shape, .format = "awq", .layers = 2, .group_size = 64},
        pool);
    ASSERT_TRUE(made.ok()) << made.error().message;
    if (std::string(arch) == "mistral") set_window(folder, 250);
    const LoadedModel step = with_step_tokens(folder, 8);
    const LoadedModel launched = with_step_tokens(folder, 0);
    const double stated = of_layers(kF16Decibels, 2) - kOfDifferences;
    for (const int64_t count :
         {4, 15, 16, 17, 18, 33, 128, 191, 192, 193, 194, 257, 300, 513, 1040, 1900, 4100, 9000}) {
      if (count > longest) continue;
      const std::vector<int32_t> ids = random_tokens(step, count, count);
      const std::vector<float> found = last_logits(step, ids);
      EXPECT_EQ(step.backend->last_step(), "one kernel");
      const std::vector<float> expected = last_logits(launched, ids);
      EXPECT_GE(decibels(found, expected), stated) << arch << " after " << count;
    }
  }
  std::filesystem::remove_all(folder);
}

/// Layers with windows of their own pages, and sinks; steps are graphs of launches.
TEST(GpuStepAttention, by_itself_is_near_that_of_several_launches) {
  if (!cuda::StepLayout::supports(this_device(), 1)) GTEST_SKIP() << "no such kernel";
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "subbyte_token_attention";
  std::filesystem::remove_all(folder);
  ThreadPool pool(4);
  const Status made =
      synthesize(folder, {.arch = "gpt-oss", .shape = "tiny", .format = "mxfp4"}, pool);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const LoadedModel joined = with_step_tokens(folder, 8);
  const LoadedModel apart = with_step_tokens(folder, 0);
  for (const int64_t count : {4, 8, 9, 16, 17, 128, 129, 193, 194, 300, 1040, 1900}) {
    const std::vector<int32_t> ids = random_tokens(joined, count, count);
    const std::vector<float> found = last_logits(joined, ids);
    const std::string way = joined.backend->last_step();
    EXPECT_TRUE(way.ends_with(", attention at once")) << way;
    EXPECT_GE(decibels(found, last_logits(apart, ids)), of_layers(kF16Decibels, 4) - kOfDifferences)
        << "after " << count;
    EXPECT_EQ(apart.backend->last_step().find("at once"), std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace subbyte::testing
