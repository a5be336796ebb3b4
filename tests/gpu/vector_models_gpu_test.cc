// Models of vectors of weights, rotated and not, on the GPU and on the CPU.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model_on_gpu.h"
#include "support/temp_dir.h"
#include "support/test_context.h"
#include "transform/quantize_model.h"

namespace subbyte {
namespace {

using testing::decibels;
using testing::kBF16Decibels;
using testing::kF16Decibels;

/// Inputs are rounded once more than those of other products, after their rotation: each product
/// has four roundings to 16 bits instead of three.
constexpr double kOfRotation = 1.25;

class GpuVectorModels : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuVectorModels, have_the_logits_of_the_cpu) {
  const TempDir folder;
  ThreadPool pool(2);
  QuantizeOptions options;
  options.format = GetParam();
  options.allow_lossy = true;
  const auto directory = folder / "model";
  const auto report = quantize_model(testing::golden("qwen3-bf16"), directory, options, pool);
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto cpu = testing::load(directory, {.device = "cpu", .num_threads = 2});
  const int64_t layers = cpu.model->config().num_layers;
  const std::vector<int32_t> tokens = testing::random_tokens(cpu, 40, 3);
  const std::vector<float> expected = testing::logits_of(*cpu.model, *cpu.backend, tokens);
  for (const Activations activations : {Activations::kF32, Activations::kBF16}) {
    const bool is_f16 = activations == Activations::kF32;  // the GPU has f16 for them
    const auto gpu = testing::load(directory, testing::gpu(activations));
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

}  // namespace
}  // namespace subbyte
