// Latent attention with its matrices absorbed, beside keys and values of every head in double
// precision.

#include <gtest/gtest.h>

#include "model_on_gpu.h"
#include "support/attributes_model.h"
#include "support/latent_model.h"

namespace subbyte::testing {
namespace {

std::vector<int32_t> some_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * i % 47));
  return tokens;
}

struct Case {
  LatentSizes sizes;
  int64_t tokens;
};

/// Single tokens are split from 512 keys on; 20 heads are one tile of rows and a part of another.
const Case kCases[] = {{kLatentSizes, 700},
                       {{.heads = 20, .rank = 512, .turning = 64, .nope = 192, .value = 256}, 40},
                       {{.heads = 128, .rank = 512, .turning = 64, .nope = 128, .value = 128}, 9},
                       {{.heads = 1, .rank = 32, .turning = 16, .nope = 24, .value = 8}, 70}};

void expect_near(const LatentModel& model, std::span<const int32_t> tokens, Backend& backend,
                 Element type, double decibels) {
  const std::vector<float> expected = model.expected(tokens);
  for (const int64_t piece : {int64_t{1}, int64_t{5}, std::ssize(tokens)}) {
    const auto logits = logits_with(model, backend, type, tokens, piece);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    EXPECT_GT(noise_decibels(*logits, expected), decibels) << "pieces of " << piece;
  }
}

TEST(GpuLatentAttention, gives_what_keys_and_values_of_every_head_give) {
  for (const bool is_bf16 : {false, true}) {
    const auto backend =
        std::move(make_backend(gpu(is_bf16 ? Activations::kBF16 : Activations::kF32))).value();
    const Element type = is_bf16 ? Element::kBF16 : Element::kF16;
    for (const Case& one : kCases) {
      SCOPED_TRACE(one.sizes.heads);
      for (const Format weights : {Format::kF32, is_bf16 ? Format::kBF16 : Format::kF16}) {
        expect_near(LatentModel(one.sizes, {weights}), some_tokens(one.tokens), *backend, type,
                    is_bf16 ? kF16Decibels - 18 : kF16Decibels);
      }
    }
  }
}

TEST(GpuLatentAttention, reads_a_cache_in_e4m3) {
  const auto backend = std::move(make_backend(gpu())).value();
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.sizes.heads);
    expect_near(LatentModel(one.sizes), some_tokens(one.tokens), *backend, Element::kE4M3, 20);
  }
}

/// Many tokens at once expand latents, few read them as they are; and both in one step.
TEST(GpuLatentAttention, gives_the_same_by_expanded_latents_and_by_absorbed_matrices) {
  const Case deepseek = {{.heads = 16, .rank = 512, .turning = 64, .nope = 128, .value = 128}, 600};
  const Case small = {{.heads = 64, .rank = 64, .turning = 16, .nope = 32, .value = 48}, 900};
  for (const bool is_bf16 : {false, true}) {
    const auto backend =
        std::move(make_backend(gpu(is_bf16 ? Activations::kBF16 : Activations::kF32))).value();
    const Element type = is_bf16 ? Element::kBF16 : Element::kF16;
    const double least = (is_bf16 ? kF16Decibels - 18 : kF16Decibels) - kOfDifferences;
    for (const Case& one : {deepseek, small}) {
      SCOPED_TRACE(one.sizes.heads);
      const LatentModel model(one.sizes, {is_bf16 ? Format::kBF16 : Format::kF16});
      const std::vector<int32_t> tokens = some_tokens(one.tokens);
      const auto absorbed = logits_with(model, *backend, type, tokens, 50);
      EXPECT_EQ(backend->last_step(), "launches");
      const auto expanded = logits_with(model, *backend, type, tokens, one.tokens);
      EXPECT_EQ(backend->last_step(), "launches, latents expanded");
      ASSERT_TRUE(absorbed.ok() && expanded.ok());
      EXPECT_GT(noise_decibels(*expanded, *absorbed), least);
      const auto after = logits_with(model, *backend, type, tokens, one.tokens - 20);
      ASSERT_TRUE(after.ok());
      EXPECT_GT(noise_decibels(*after, *absorbed), least);
    }
  }
}

TEST(GpuLatentAttention, gives_the_same_bits_however_a_text_is_cut_in_batch_invariant_mode) {
  DeviceOptions options = gpu();
  options.batch_invariant = true;
  const auto backend = std::move(make_backend(options)).value();
  const LatentModel model(kLatentSizes, {Format::kF16});
  const std::vector<int32_t> tokens = some_tokens(600);
  const auto whole = logits_with(model, *backend, Element::kF16, tokens, 600);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  for (const int64_t piece : {1, 33}) {
    const auto logits = logits_with(model, *backend, Element::kF16, tokens, piece);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    EXPECT_EQ(*logits, *whole) << piece;
  }
}

}  // namespace
}  // namespace subbyte::testing
