// How attention is divided: every key of every row belongs to one task.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "kernels/cuda/attention/attention.h"

namespace subbyte::cuda {
namespace {

/// How many tasks of the list have row `row` of the part and see `key`. A task may have some tokens
/// of the part.
int tasks_with(const std::vector<AttentionTask>& tasks, int rows_of_task, const AttentionPart& part,
               int64_t q_per_kv, int64_t row, int64_t key) {
  return static_cast<int>(std::ranges::count_if(tasks, [&](const AttentionTask& task) {
    const int64_t tokens_before = task.first_token - part.first_token;
    const int64_t of_task = row - tokens_before * q_per_kv - task.first_row;
    return tokens_before >= 0 && tokens_before + task.num_tokens <= part.num_tokens &&
           task.pages_begin == part.pages_begin && task.position == part.position + tokens_before &&
           of_task >= 0 && of_task < rows_of_task &&
           row < (tokens_before + task.num_tokens) * q_per_kv && key >= task.begin &&
           key < task.end;
  }));
}

AttentionTasks tasks_of(std::span<const AttentionPart> parts, int64_t q_per_kv, int64_t window,
                        bool batch_invariant) {
  const AttentionLayers layers = {q_per_kv, 8, window};
  return batch_invariant ? invariant_attention_tasks(parts, layers)
                         : attention_tasks(parts, layers, 264);
}

void expect_covered(const std::vector<AttentionPart>& parts, int64_t q_per_kv, int64_t window,
                    bool batch_invariant) {
  const AttentionTasks tasks = tasks_of(parts, q_per_kv, window, batch_invariant);
  for (const AttentionPart& part : parts) {
    for (int64_t row = 0; row < part.num_tokens * q_per_kv; ++row) {
      const int64_t last = part.position + row / q_per_kv;
      const int64_t first = window > 0 ? std::max<int64_t>(0, last - window + 1) : 0;
      for (int64_t key = first; key <= last; ++key) {
        const int found = tasks_with(tasks.prompt, kPromptRows, part, q_per_kv, row, key) +
                          tasks_with(tasks.split, kSplitRows, part, q_per_kv, row, key);
        ASSERT_EQ(found, 1) << "row " << row << ", key " << key;
      }
    }
  }
  for (const auto* list : {&tasks.prompt, &tasks.split}) {
    for (const AttentionTask& task : *list) {
      EXPECT_EQ(task.begin % kPagePositions, 0);
      EXPECT_LT(task.begin, task.end);
    }
  }
}

TEST(AttentionTasks, tokens_that_select_keys_see_so_many_and_have_tasks_of_their_own) {
  const AttentionPart part = {.first_token = 3, .num_tokens = 5, .position = 298, .pages_begin = 7};
  AttentionLayers layers = {20, 1};
  layers.top = 300;
  for (const bool batch_invariant : {false, true}) {
    const AttentionTasks tasks = batch_invariant ? invariant_attention_tasks({&part, 1}, layers)
                                                 : attention_tasks({&part, 1}, layers, 264);
    EXPECT_TRUE(tasks.prompt.empty());
    for (int token = 0; token < 5; ++token) {
      const int last = std::min(298 + token, 299);
      for (const int row : {0, 15, 16, 19}) {
        for (const int key : {0, 255, 256, last}) {
          const auto has = [&](const AttentionTask& task) {
            return task.first_token == 3 + token && task.num_tokens == 1 && task.position == last &&
                   task.pages_begin == 7 && row >= task.first_row &&
                   row < task.first_row + kSplitRows && key >= task.begin && key < task.end;
          };
          EXPECT_EQ(std::ranges::count_if(tasks.split, has), 1) << token << " " << row;
        }
      }
    }
  }
}

TEST(AttentionTasks, their_numbers_change_seldom_where_they_are_rounded_up) {
  std::set<std::tuple<std::size_t, std::size_t, int64_t>> numbers;
  for (int32_t grown = 0; grown < 256; ++grown) {
    std::vector<AttentionPart> parts;
    parts.reserve(50);
    for (int32_t i = 0; i < 50; ++i) parts.push_back({i, 1, 300 + 37 * i + grown, 100 * i});
    const AttentionTasks exact = attention_tasks(parts, {4, 8, 0}, 264);
    AttentionTasks rounded = exact;
    round_up_tasks(rounded);
    ASSERT_EQ(rounded.slices.size(), 1u);
    EXPECT_EQ(rounded.slices[0].num_split, std::ssize(rounded.split));
    EXPECT_EQ(rounded.slices[0].num_merge, std::ssize(rounded.merge));
    EXPECT_LE(8 * (rounded.split.size() - exact.split.size()), exact.split.size());
    EXPECT_LE(8 * (rounded.merge.size() - exact.merge.size()), exact.merge.size());
    for (std::size_t i = 0; i < rounded.split.size(); ++i) {
      EXPECT_EQ(rounded.split[i].num_tokens, i < exact.split.size() ? 1 : 0);
    }
    for (std::size_t i = 0; i < rounded.merge.size(); ++i) {
      EXPECT_EQ(rounded.merge[i].num_tokens, i < exact.merge.size() ? 1 : 0);
    }
    EXPECT_GE(rounded.num_partials, exact.num_partials);
    EXPECT_LE(rounded.num_partials, kMaxPartials);
    numbers.insert({rounded.split.size(), rounded.merge.size(), rounded.num_partials});
  }
  EXPECT_LE(numbers.size(), 8u);
}

TEST(AttentionTasks, cover_every_key_once) {
  for (const bool batch_invariant : {false, true}) {
    for (const int64_t q_per_kv : {1, 3, 4, 8, 24}) {
      for (const int64_t window : {0, 1, 100, 700}) {
        expect_covered({{0, 1, 0, 0}, {1, 1, 700, 1}, {2, 70, 190, 9}, {72, 5, 1000, 12}}, q_per_kv,
                       window, batch_invariant);
      }
    }
    expect_covered({{0, 1, 20000, 0}, {1, 3, 4094, 200}}, 4, 0, batch_invariant);
    expect_covered({{0, 1, 20000, 0}, {1, 3, 4094, 200}}, 4, 5000, batch_invariant);
  }
}

/// Where the splits begin that a token of a part has, and how many keys they have at most: the rest
/// of a row's order of additions is the kernel's.
std::vector<int32_t> splits_of(const AttentionPart& part, int32_t token, int64_t window) {
  const AttentionTasks tasks = invariant_attention_tasks({&part, 1}, {4, 8, window});
  EXPECT_TRUE(tasks.prompt.empty());
  std::vector<int32_t> begins;
  for (const AttentionTask& task : tasks.split) {
    const int32_t first = part.first_token + token;
    if (first < task.first_token || first >= task.first_token + task.num_tokens) continue;
    if (task.begin <= part.position + token) begins.push_back(task.begin);
  }
  return begins;
}

TEST(AttentionTasks, of_a_token_follow_from_its_position_alone_in_batch_invariant_mode) {
  for (const int64_t window : {0, 1, 129, 3000, 5000, 100000}) {
    for (const int32_t position : {0, 100, 4090, 8190, 16380, 262140}) {
      const AttentionPart prompt = {3, 300, position - position % 100, 7};
      for (int32_t token = position % 100; token < 300; token += 33) {
        const AttentionPart alone = {0, 1, prompt.position + token, 0};
        const std::vector<int32_t> splits = splits_of(alone, 0, window);
        EXPECT_LE(splits.size(), static_cast<std::size_t>(kMaxSplits));
        EXPECT_EQ(splits_of(prompt, token, window), splits) << alone.position << " " << window;
      }
    }
  }
}

TEST(AttentionTasks, slices_have_no_more_partials_than_there_is_memory_for) {
  for (const bool batch_invariant : {false, true}) {
    std::vector<AttentionPart> parts;
    for (int32_t i = 0; i < 200; ++i) parts.push_back({2 * i, 2, 6000 + i, 100 * i});
    // Enough CTAs for all splits in the usual mode.
    const AttentionLayers layers = {8, 8, 0};
    const AttentionTasks tasks = batch_invariant ? invariant_attention_tasks(parts, layers)
                                                 : attention_tasks(parts, layers, 100000);
    std::size_t split = 0;
    std::size_t merge = 0;
    EXPECT_GT(tasks.slices.size(), 3u);
    for (const auto& [num_split, num_merge] : tasks.slices) {
      std::set<int32_t> written;
      std::set<int32_t> merged;
      for (const std::size_t end = split + num_split; split < end; ++split) {
        EXPECT_TRUE(written.insert(tasks.split[split].partial).second);
      }
      for (const std::size_t end = merge + num_merge; merge < end; ++merge) {
        for (int32_t i = 0; i < tasks.merge[merge].num_splits; ++i) {
          EXPECT_TRUE(merged.insert(tasks.merge[merge].partial + i).second);
        }
      }
      EXPECT_EQ(written, merged);
      EXPECT_EQ(*written.begin(), 0);
      EXPECT_LT(*written.rbegin(), tasks.num_partials);
    }
    EXPECT_EQ(split, tasks.split.size());
    EXPECT_EQ(merge, tasks.merge.size());
    EXPECT_LE(tasks.num_partials, kMaxPartials);
  }
}

TEST(AttentionTasks, partials_are_merged_once) {
  const std::vector<AttentionPart> parts = {{0, 1, 20000, 0}, {1, 1, 100, 200}, {2, 4, 300, 300}};
  const AttentionTasks tasks = tasks_of(parts, 4, 0, false);
  std::set<int32_t> written;
  for (const AttentionTask& task : tasks.split) {
    if (task.partial >= 0) {
      EXPECT_TRUE(written.insert(task.partial).second);
    }
  }
  std::set<int32_t> merged;
  for (const MergeTask& merge : tasks.merge) {
    EXPECT_LE(merge.num_splits, kMaxSplits);
    for (int32_t i = 0; i < merge.num_splits; ++i) {
      EXPECT_TRUE(merged.insert(merge.partial + i).second);
    }
  }
  EXPECT_EQ(written, merged);
  EXPECT_EQ(std::ssize(written), tasks.num_partials);
}

TEST(AttentionTasks, are_about_as_many_as_there_are_ctas) {
  std::vector<AttentionPart> parts;
  for (int32_t i = 0; i < 256; ++i) parts.push_back({i, 1, 4095, 32 * i});
  const AttentionLayers layers = {4, 8, 0};
  EXPECT_EQ(attention_tasks(parts, layers, 264).split.size(), 256u);
  EXPECT_EQ(attention_tasks(std::span(parts).first(8), layers, 264).split.size(), 8u * 4);
  EXPECT_EQ(attention_tasks(std::span(parts).first(1), layers, 264).split.size(), 16u);
}

TEST(AttentionTasks, of_prompts_begin_with_the_longest) {
  const AttentionTasks tasks =
      tasks_of(std::vector<AttentionPart>{{0, 300, 0, 0}, {300, 90, 500, 9}}, 4, 0, false);
  EXPECT_TRUE(std::ranges::is_sorted(tasks.prompt, std::ranges::greater(),
                                     [](const AttentionTask& t) { return t.end - t.begin; }));
  EXPECT_EQ(tasks.prompt.front().end, 590);
}

}  // namespace
}  // namespace subbyte::cuda
