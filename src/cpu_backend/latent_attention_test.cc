// Latent attention, absorbed and expanded, beside keys and values of every head in double
// precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

// The last ones have no room for queries of heads.
constexpr LatentSizes kAllSizes[] = {
    testing::kLatentSizes,
    {.heads = 20, .rank = 64, .turning = 8, .nope = 24, .value = 40},
    {.heads = 3, .rank = 40, .turning = 8, .nope = 16, .value = 12},
    {.heads = 1, .rank = 24, .turning = 16, .nope = 32, .value = 40}};

TEST(LatentAttention, gives_what_keys_and_values_of_every_head_give) {
  const std::vector<int32_t> tokens = some_tokens(150);
  for (const LatentSizes& sizes : kAllSizes) {
    const testing::LatentModel model(sizes);
    const std::vector<float> expected = model.expected(tokens);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      const auto backend = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
      for (const int64_t piece : {1, 5, 60, 150}) {
        const auto logits = testing::logits_with(model, *backend, Element::kF32, tokens, piece);
        ASSERT_TRUE(logits.ok()) << logits.error().message;
        // As for other attributes, and 1e-4 of the largest.
        EXPECT_GT(testing::noise_decibels(*logits, expected), isa == "amx" ? 86 : 95)
            << isa << ", heads " << sizes.heads << ", pieces of " << piece;
      }
    }
  }
}

TEST(LatentAttention, gives_the_same_of_absorbed_and_of_expanded_latents) {
  const std::vector<int32_t> tokens = some_tokens(700);  // of two pages
  for (const LatentSizes& sizes : kAllSizes) {
    EXPECT_EQ(sizes.is_expanded(300, 0), sizes.nope <= sizes.rank);
    const testing::LatentModel model(sizes);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      const auto expanding = std::move(make_cpu_backend({.num_threads = 2, .isa = isa})).value();
      // Here what is done with a token may not depend on others: nothing is expanded.
      const auto absorbing =
          std::move(make_cpu_backend({.num_threads = 2, .isa = isa, .batch_invariant = true}))
              .value();
      for (const int64_t piece : {300, 700}) {
        const auto logits =
            testing::logits_with(model, *expanding, Element::kF16, tokens, piece).value();
        const auto absorbed =
            testing::logits_with(model, *absorbing, Element::kF16, tokens, piece).value();
        double largest = 0;
        double difference = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
          largest = std::max<double>(largest, std::abs(absorbed[i]));
          difference = std::max<double>(difference, std::abs(logits[i] - absorbed[i]));
        }
        EXPECT_LT(difference, 1e-4 * largest) << isa << ", heads " << sizes.heads;
      }
    }
  }
}

TEST(LatentAttention, expands_some_parts_of_a_batch) {
  const testing::LatentModel model;
  const auto backend = std::move(make_cpu_backend({.num_threads = 2})).value();
  const auto step = backend->compile(model.plan(*backend).value()).value();
  const std::vector<int32_t> tokens = some_tokens(120);
  KvPool pool = backend->make_kv_pool(step->plan().cache, Element::kF32, {8192}).value();
  const auto run = [&](std::vector<Sequence>& sequences, const std::vector<int64_t>& counts) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      EXPECT_TRUE(sequences[i].reserve(counts[i]).ok());
      parts.push_back({&sequences[i], std::span(tokens).first(counts[i]), counts[i]});
    }
    backend->submit(*step, {parts});
    Logits logits;
    EXPECT_TRUE(backend->wait(logits).ok());
    for (std::size_t i = 0; i < counts.size(); ++i) sequences[i].advance(counts[i]);
    return logits.values;
  };
  const auto begun = [&] {
    std::vector<Sequence> one;
    one.emplace_back(pool, 512);
    run(one, {40});
    return std::move(one.front());
  };
  // Prompts, single tokens and prompts after a context.
  const std::vector<int64_t> counts = {1, 90, 1, 1, 120, 60, 2};
  std::vector<float> alone;
  std::vector<Sequence> together;
  for (const int64_t count : counts) {
    std::vector<Sequence> one;
    one.push_back(begun());
    const std::vector<float> logits = run(one, {count});
    alone.insert(alone.end(), logits.begin(), logits.end());
    together.push_back(begun());
  }
  const std::vector<float> logits = run(together, counts);
  ASSERT_EQ(logits.size(), alone.size());
  EXPECT_GT(testing::noise_decibels(logits, alone), 110);
}

TEST(LatentSizes, are_expanded_where_that_saves_products) {
  constexpr LatentSizes glm = {.heads = 20, .rank = 512, .turning = 64, .nope = 192, .value = 256};
  EXPECT_FALSE(glm.is_expanded(1, 0));
  EXPECT_FALSE(glm.is_expanded(1, 4096));
  EXPECT_TRUE(glm.is_expanded(16, 0));
  EXPECT_TRUE(glm.is_expanded(4096, 0));
  // 512 (192 + 256) products of each cached key; each pair saves 2 (576 - 256).
  EXPECT_FALSE(glm.is_expanded(350, 1'000'000));
  EXPECT_TRUE(glm.is_expanded(360, 1'000'000));
  LatentSizes other = glm;
  other.top = 2048;
  EXPECT_TRUE(other.is_expanded(1024, 1024));
  EXPECT_FALSE(other.is_expanded(1024, 1025));
  other = glm;
  other.value = 513;
  EXPECT_FALSE(other.is_expanded(4096, 0));
  EXPECT_FALSE(LatentSizes().is_expanded(4096, 0));
}

TEST(LatentAttention, keeps_one_run_of_a_position) {
  const LatentSizes sizes = testing::kLatentSizes;
  const auto backend = std::move(make_cpu_backend({.num_threads = 1})).value();
  const auto plan = testing::LatentModel(sizes).plan(*backend);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(cache_position_bytes(plan->cache, Element::kF16), 2 * (sizes.rank + sizes.turning));
}

/// Rounded keys are off by up to 2^-9 of themselves in bf16, by 2^-4 in e4m3.
TEST(LatentAttention, reads_every_type_of_cache) {
  const testing::LatentModel model;
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
