// Models of vectors of weights, rotated and not, on the GPU and on the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model_on_gpu.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

using testing::decibels;
using testing::kBF16Decibels;
using testing::kF16Decibels;

/// Inputs are rounded once more than those of other products, after their rotation: each product
/// has four roundings to 16 bits instead of three.
constexpr double kOfRotation = 1.25;

/// A golden in that format, on both devices.
struct Quantized {
  TempDir folder;
  std::filesystem::path directory = folder / "model";
  Status made;

  Quantized(const char* golden, const char* format) {
    ThreadPool pool(2);
    QuantizeOptions options;
    options.format = format;
    options.allow_lossy = true;
    const auto report = quantize_model(testing::golden(golden), directory, options, pool);
    if (!report.ok()) made = report.error();
  }
  testing::LoadedModel on_cpu() const {
    return testing::load(directory, {.device = "cpu", .num_threads = 2});
  }
  testing::LoadedModel on_gpu(Activations activations) const {
    return testing::load(directory, testing::gpu(activations));
  }
};

class GpuVectorModels : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuVectorModels, have_the_logits_of_the_cpu) {
  const Quantized model("qwen3-bf16", GetParam());
  ASSERT_TRUE(model.made.ok()) << model.made.error().message;
  const auto cpu = model.on_cpu();
  const int64_t layers = cpu.model->config().num_layers;
  const std::vector<int32_t> tokens = testing::random_tokens(cpu, 40, 3);
  const std::vector<float> expected = testing::logits_of(*cpu.model, *cpu.backend, tokens);
  for (const Activations activations : {Activations::kF32, Activations::kBF16}) {
    const bool is_f16 = activations == Activations::kF32;  // the GPU has f16 for them
    const auto gpu = model.on_gpu(activations);
    const Element cache = is_f16 ? Element::kF16 : Element::kBF16;
    const double stated =
        testing::of_layers(is_f16 ? kF16Decibels : kBF16Decibels, layers) - kOfRotation;
    const auto found = testing::logits_of(*gpu.model, *gpu.backend, tokens, cache);
    EXPECT_GT(decibels(found, expected), stated);
    // One token, by its own kernel.
    const auto of_one =
        testing::logits_of(*gpu.model, *gpu.backend, std::span(tokens).first(1), Element::kF16);
    EXPECT_GT(decibels(of_one, std::span(expected).first(of_one.size())), stated);
  }
}

INSTANTIATE_TEST_SUITE_P(all, GpuVectorModels, ::testing::Values("vq2", "vq4"),
                         [](const auto& param) { return std::string(param.param); });

/// Tokens whose experts are so near that rounding chooses others are few, so the median is
/// compared.
TEST(GpuVectorExperts, have_the_logits_of_the_cpu) {
  for (const char* format : {"vq2", "vq4"}) {
    const Quantized model("qwen3-moe-bf16", format);
    ASSERT_TRUE(model.made.ok()) << model.made.error().message;
    const auto cpu = model.on_cpu();
    const std::vector<int32_t> tokens = testing::random_tokens(cpu, 40, 3);
    const std::vector<float> expected = testing::logits_of(*cpu.model, *cpu.backend, tokens);
    const auto gpu = model.on_gpu(Activations::kF32);
    const auto found = testing::logits_of(*gpu.model, *gpu.backend, tokens, Element::kF16);
    ASSERT_EQ(found.size(), expected.size());
    const std::size_t vocab = found.size() / tokens.size();
    std::vector<double> of_tokens;
    for (std::size_t at = 0; at < found.size(); at += vocab) {
      of_tokens.push_back(
          decibels(std::span(found).subspan(at, vocab), std::span(expected).subspan(at, vocab)));
    }
    std::ranges::sort(of_tokens);
    const double stated =
        testing::of_layers(kF16Decibels, cpu.model->config().num_layers) - kOfRotation;
    EXPECT_GT(of_tokens[of_tokens.size() / 2], stated) << format;
  }
}

}  // namespace
}  // namespace subbyte
