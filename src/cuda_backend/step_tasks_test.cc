// Which kernels the prompts of a step take, and what they may not follow from.

#include "cuda_backend/step_tasks.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/attention/paged_hopper.h"

namespace subbyte {
namespace {

using Parts = std::vector<cuda::AttentionPart>;

constexpr TaskRules kRules = {.split_ctas = 264, .gpu = {true, 132}};

AttentionKind heads_of_128() {
  AttentionKind kind;
  kind.layers.q_per_kv = 4;
  kind.layers.kv_heads = 8;
  kind.head_dim = 128;
  return kind;
}

/// Latents of GLM-4.7-Flash, whose matrices have 16 bits.
AttentionKind latents() {
  AttentionKind kind;
  kind.layers.q_per_kv = 20;
  kind.latents = {.heads = 20, .rank = 512, .turning = 64, .nope = 192, .value = 256};
  return kind;
}

/// Sequences of so many tokens each, after `position` others.
Parts parts_of(const std::vector<int32_t>& tokens, int32_t position = 0) {
  Parts parts;
  int32_t first = 0;
  int32_t pages = 0;
  for (const int32_t count : tokens) {
    parts.push_back({first, count, position, pages});
    first += count;
    pages += (position + count) / static_cast<int32_t>(kPagePositions) + 1;
  }
  return parts;
}

DividedAttention divide(const Parts& parts, const AttentionKind& kind, const TaskRules& rules) {
  const std::vector<int32_t> pages(1000);
  return divide_attention({parts, pages}, kind, rules);
}

bool takes_wgmma(const std::vector<int32_t>& tokens, const AttentionKind& kind = heads_of_128(),
                 const TaskRules& rules = kRules) {
  return divide(parts_of(tokens), kind, rules).has_wgmma;
}

TEST(DividedAttention, prompts_take_wgmma_where_half_of_the_rows_of_their_tasks_are_theirs) {
  EXPECT_TRUE(takes_wgmma({128}));
  EXPECT_TRUE(takes_wgmma({64}));
  EXPECT_FALSE(takes_wgmma({63}));
  EXPECT_TRUE(takes_wgmma({512, 20, 20})) << "768 rows for 552 tokens";
  EXPECT_FALSE(takes_wgmma({20, 20, 20}));
  EXPECT_TRUE(takes_wgmma({300, 1, 1, 1})) << "single tokens have other tasks";
}

TEST(DividedAttention, tasks_of_wgmma_are_of_so_many_tokens) {
  const DividedAttention divided = divide(parts_of({300}), heads_of_128(), kRules);
  ASSERT_TRUE(divided.has_wgmma);
  std::vector<int32_t> first_rows;
  for (const cuda::AttentionTask& task : divided.tasks.prompt) first_rows.push_back(task.first_row);
  constexpr int32_t kRows = cuda::kPagedTokens * 4;
  EXPECT_EQ(first_rows, (std::vector<int32_t>{2 * kRows, kRows, 0})) << "the most keys first";
  EXPECT_TRUE(divided.tasks.split.empty());
}

TEST(DividedAttention, what_the_kernel_by_wgmma_has_not_keeps_it_from_being_taken) {
  AttentionKind kind = heads_of_128();
  kind.has_sinks = true;
  EXPECT_FALSE(takes_wgmma({512}, kind)) << "sinks";
  kind = heads_of_128();
  kind.layers.window = 4096;
  EXPECT_FALSE(takes_wgmma({512}, kind)) << "a window";
  kind = heads_of_128();
  kind.layers.top = 2048;
  EXPECT_FALSE(takes_wgmma({512}, kind)) << "keys that were selected";
  kind = heads_of_128();
  kind.head_dim = 64;
  EXPECT_FALSE(takes_wgmma({512}, kind)) << "other heads";
  TaskRules rules = kRules;
  rules.gpu.has_wgmma = false;
  EXPECT_FALSE(takes_wgmma({512}, heads_of_128(), rules)) << "another GPU";
  for (const Element cache : {Element::kBF16, Element::kE4M3}) {
    rules = kRules;
    rules.cache = cache;
    EXPECT_FALSE(takes_wgmma({512}, heads_of_128(), rules)) << "a cache of another type";
  }
  rules = kRules;
  rules.activations = rules.cache = Element::kBF16;
  EXPECT_TRUE(takes_wgmma({512}, heads_of_128(), rules));
}

/// The keys that rows are divided into, without the places of partials, which depend on neighbours.
std::vector<std::vector<int32_t>> splits_of(const DividedAttention& divided, int32_t first_token) {
  std::vector<std::vector<int32_t>> all;
  for (const cuda::AttentionTask& task : divided.tasks.split) {
    if (task.first_token < first_token) continue;
    all.push_back({task.num_tokens, task.position, task.first_row, task.begin, task.end});
  }
  return all;
}

/// Whatever the other sequences are, and where that is a kernel by wgmma or expands latents
/// otherwise.
TEST(DividedAttention, of_batch_invariant_mode_follow_from_the_sequence_alone) {
  TaskRules invariant = kRules;
  invariant.batch_invariant = true;
  for (const AttentionKind& kind : {heads_of_128(), latents()}) {
    const DividedAttention usual = divide(parts_of({1000}), kind, kRules);
    EXPECT_TRUE(usual.has_wgmma || !usual.prompts.expanded.empty());
    const DividedAttention alone = divide(parts_of({1000}), kind, invariant);
    const auto expected = splits_of(alone, 0);
    ASSERT_FALSE(expected.empty());
    for (const int32_t other : {1, 7, 128, 4000}) {
      const DividedAttention divided = divide(parts_of({other, 1000}), kind, invariant);
      EXPECT_FALSE(divided.has_wgmma) << other;
      EXPECT_TRUE(divided.prompts.expanded.empty()) << other;
      EXPECT_TRUE(divided.tasks.prompt.empty()) << other;
      EXPECT_EQ(splits_of(divided, other), expected) << other;
    }
  }
}

TEST(DividedAttention, latents_of_observed_steps_stay_as_they_are) {
  EXPECT_EQ(divide(parts_of({1000}), latents(), kRules).prompts.expanded.size(), 1u);
  TaskRules observed = kRules;
  observed.is_observed = true;
  const DividedAttention divided = divide(parts_of({1000}), latents(), observed);
  EXPECT_TRUE(divided.prompts.expanded.empty());
  EXPECT_EQ(divided.prompts.cached.size(), 1u);
}

}  // namespace
}  // namespace subbyte
