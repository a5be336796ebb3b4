// When latents are expanded, and that what is expanded has every row and fits its memory.

#include "kernels/cuda/attention/expansion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace subbyte::cuda {
namespace {

constexpr ExpandedSizes kGlm = {.heads = 20, .rank = 512, .turning = 64, .nope = 192, .value = 256};
constexpr ExpandedSizes kDeepSeek = {
    .heads = 128, .rank = 512, .turning = 64, .nope = 128, .value = 128};

constexpr ExpansionGpu kHopper = {.has_wgmma = true, .multiprocessors = 132};
constexpr ExpansionGpu kOther = {.has_wgmma = false, .multiprocessors = 108};

/// The least tokens after `cached` ones from which on it pays.
int64_t least_tokens(const ExpandedSizes& sizes, int64_t cached, const ExpansionGpu& gpu) {
  int64_t tokens = 1;
  while (!sizes.pays(tokens, cached, gpu)) ++tokens;
  for (int64_t more = tokens; more < tokens + 300; ++more) {
    EXPECT_TRUE(sizes.pays(more, cached, gpu));
  }
  return tokens;
}

/// Of all heads, as the rule counts them: with launches as so many, fewer by wgmma, more where
/// multiprocessors have nothing to do. nullptr: of latents.
double products(const ExpandedSizes& s, int64_t tokens, int64_t cached, const ExpansionGpu* gpu) {
  const auto t = static_cast<double>(tokens);
  const auto c = static_cast<double>(cached);
  const double pairs = t * c + t * (t + 1) / 2;
  const auto of_latent = static_cast<double>(s.rank * (s.nope + s.value));
  const auto heads = static_cast<double>(s.heads);
  if (gpu == nullptr) {
    return heads * (t * of_latent + pairs * static_cast<double>(2 * s.rank + s.turning));
  }
  const int64_t ctas = s.heads_at_a_time(cached + tokens) * ((tokens + 127) / 128);
  const double busy =
      std::min(1.0, static_cast<double>(ctas) / static_cast<double>(gpu->multiprocessors));
  const double rate = busy * (gpu->has_wgmma ? 3 : 1);
  const double of_pair = std::floor(static_cast<double>(s.head_dim() + s.value) / rate);
  return heads * ((c + t) * of_latent + pairs * of_pair) + 1e9;
}

TEST(LatentExpansion, pays_where_fewer_products_outweigh_what_is_made) {
  for (const ExpandedSizes& sizes : {kGlm, kDeepSeek}) {
    for (const int64_t cached : {0, 100, 4096, 60000}) {
      for (const int64_t tokens : {17, 100, 200, 300, 400, 500, 700, 4096}) {
        for (const ExpansionGpu& gpu : {kHopper, kOther}) {
          EXPECT_EQ(sizes.pays(tokens, cached, gpu), products(sizes, tokens, cached, &gpu) <
                                                         products(sizes, tokens, cached, nullptr))
              << tokens << " after " << cached;
        }
      }
    }
  }
}

TEST(LatentExpansion, pays_from_some_tokens_on_and_never_for_few) {
  for (const ExpandedSizes& sizes : {kGlm, kDeepSeek}) {
    for (const int64_t cached : {0, 1000, 100'000}) {
      const int64_t by_wgmma = least_tokens(sizes, cached, kHopper);
      EXPECT_GT(by_wgmma, 100);
      EXPECT_LT(by_wgmma, least_tokens(sizes, cached, kOther));
    }
    EXPECT_FALSE(sizes.pays(1, 1'000'000, kHopper));
    EXPECT_FALSE(sizes.pays(kSplitRows, 1'000'000, kHopper));
  }
}

TEST(LatentExpansion, is_of_heads_that_kernels_have) {
  EXPECT_TRUE(kGlm.is_supported());
  EXPECT_FALSE(ExpandedSizes().is_supported());
  ExpandedSizes sizes = kGlm;
  sizes.value = 264;
  EXPECT_FALSE(sizes.is_supported());
  sizes = kGlm;
  sizes.nope = 208;  // 272 with what turns
  EXPECT_FALSE(sizes.is_supported());
  EXPECT_FALSE(sizes.pays(4096, 0, kHopper));
  sizes = kGlm;
  sizes.rank = 128;  // queries have no room
  EXPECT_FALSE(sizes.is_supported());
}

TEST(LatentExpansion, leaves_what_is_selected_alone) {
  ExpandedSizes sizes = kDeepSeek;
  sizes.top = 2048;
  EXPECT_TRUE(sizes.pays(2048, 0, kHopper));
  EXPECT_FALSE(sizes.pays(2049, 0, kHopper));
  EXPECT_FALSE(sizes.pays(1024, 1025, kHopper));
}

TEST(LatentExpansion, some_heads_at_a_time_fit_its_memory) {
  for (const ExpandedSizes& sizes : {kGlm, kDeepSeek}) {
    for (const int64_t positions : {1, 129, 4096, 16384, 131072}) {
      const int64_t heads = sizes.heads_at_a_time(positions);
      const int64_t times = heads == 0 ? 0 : (sizes.heads + heads - 1) / heads;
      EXPECT_TRUE(heads == 0 || sizes.bytes(heads, positions) <= sizes.most_bytes(positions));
      EXPECT_TRUE(times < 2 ||
                  sizes.bytes((sizes.heads + times - 2) / (times - 1), positions) > kMaxExpansion);
    }
    EXPECT_EQ(sizes.heads_at_a_time(1'000'000), 0);
  }
  EXPECT_EQ(kGlm.heads_at_a_time(4096), 20);
}

TEST(LatentExpansion, parts_are_expanded_or_not_and_keep_their_rows_and_pages) {
  const std::vector<AttentionPart> parts = {
      {0, 1, 300, 0}, {1, 1000, 200, 3}, {1001, 4, 0, 13}, {1005, 800, 0, 14}};
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < 21; ++i) pages.push_back(100 + i);
  const ExpandedParts divided = expanded_parts(parts, kGlm, pages, kOther);
  ASSERT_EQ(divided.cached.size(), 2U);
  EXPECT_EQ(divided.cached[1].first_token, 1001);
  EXPECT_EQ(divided.cached[1].pages_begin, 13);
  ASSERT_EQ(divided.expanded.size(), 2U);
  EXPECT_EQ(divided.expanded[0].pages_begin, 0);
  EXPECT_EQ(divided.expanded[1].pages_begin, 10);
  ASSERT_EQ(divided.pages.size(), 17U);
  EXPECT_EQ(divided.pages[0].page, 103);
  EXPECT_EQ(divided.pages[9].positions, 1200 - 9 * 128);
  EXPECT_EQ(divided.pages[10].page, 114);
  EXPECT_EQ(divided.pages[16].positions, 800 - 6 * 128);
  int64_t next = 0;
  for (const ExpandedRows& rows : divided.rows) {
    EXPECT_EQ(rows.first, next);
    EXPECT_EQ(rows.are_expanded, rows.count >= 800);
    next += rows.count;
  }
  EXPECT_EQ(next, 1805);
}

TEST(LatentExpansion, what_does_not_fit_beside_others_stays_absorbed) {
  const std::vector<AttentionPart> parts = {{0, 4096, 120'000, 0}, {4096, 4096, 120'000, 970}};
  const std::vector<int32_t> pages(2 * 970, 7);
  ASSERT_GT(kDeepSeek.heads_at_a_time(124'160), 0);
  ASSERT_EQ(kDeepSeek.heads_at_a_time(2 * 124'160), 0);
  const ExpandedParts divided = expanded_parts(parts, kDeepSeek, pages, kHopper);
  EXPECT_EQ(divided.expanded.size(), 1U);
  EXPECT_EQ(divided.cached.size(), 1U);
}

TEST(LatentExpansion, tasks_have_every_row_once_and_its_keys) {
  ExpandedParts parts;
  parts.expanded = {{5, 300, 70, 0}, {305, 129, 0, 3}};
  const AttentionTasks tasks = expanded_tasks(parts, kGlm);
  EXPECT_TRUE(tasks.split.empty());
  for (const AttentionPart& part : parts.expanded) {
    for (int32_t row = 0; row < part.num_tokens; ++row) {
      int found = 0;
      for (const AttentionTask& task : tasks.prompt) {
        const bool has = task.first_token == part.first_token && row >= task.first_row &&
                         row < task.first_row + kExpandedRows;
        EXPECT_TRUE(!has || (task.begin == 0 && task.end > part.position + row));
        found += has;
      }
      EXPECT_EQ(found, 1) << row;
    }
  }
}

}  // namespace
}  // namespace subbyte::cuda
