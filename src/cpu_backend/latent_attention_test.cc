// Latent attention with its matrices absorbed, beside keys and values of every head in double
// precision.

#include <gtest/gtest.h>

#include "cpu_backend/cpu_backend.h"
#include "support/attributes_model.h"
#include "support/isa_of.h"
#include "support/isa_test.h"
#include "support/latent_model.h"

namespace subbyte {
namespace {

std::vector<int32_t> some_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * i % 47));
  return tokens;
}

TEST(LatentAttention, gives_what_keys_and_values_of_every_head_give) {
  const testing::LatentSizes all_sizes[] = {
      {}, {.heads = 20, .nope = 24, .rope = 8, .rank = 64, .value = 32}, {.heads = 1, .rank = 24}};
  const std::vector<int32_t> tokens = some_tokens(150);
  for (const testing::LatentSizes& sizes : all_sizes) {
    const testing::LatentModel model(sizes);
    const std::vector<float> expected = model.expected(tokens);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
      for (const int64_t piece : {1, 5, 150}) {
        const auto logits = testing::logits_with(model, *backend, Element::kF32, tokens, piece);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        // As for other attributes, and 1e-4 of the largest.
        EXPECT_GT(testing::noise_decibels(*logits, expected), isa == "amx" ? 86 : 95)
            << isa << ", heads " << sizes.heads << ", pieces of " << piece;
      }
    }
  }
}

TEST(LatentAttention, keeps_one_run_of_a_position) {
  const testing::LatentSizes sizes;
  const auto backend = std::move(make_cpu_backend({.num_threads = 1})).value();
  const auto plan = testing::LatentModel(sizes).plan(*backend);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(cache_position_bytes(plan->cache, Element::kF16), 2 * (sizes.rank + sizes.rope));
}

/// Rounded keys are off by up to 2^-9 of themselves in bf16, by 2^-4 in e4m3.
TEST(LatentAttention, reads_every_type_of_cache) {
  const testing::LatentModel model({});
  const std::vector<int32_t> tokens = some_tokens(140);
  const std::vector<float> expected = model.expected(tokens);
  for (const std::string& isa : testing::isas_of_this_machine()) {
    const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
    for (const auto& [type, decibels] :
         {std::pair(Element::kF16, 55), {Element::kBF16, 40}, {Element::kE4M3, 20}}) {
      for (const int64_t piece : {1, 140}) {
        const auto logits = testing::logits_with(model, *backend, type, tokens, piece);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        EXPECT_GT(testing::noise_decibels(*logits, expected), decibels) << isa;
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
