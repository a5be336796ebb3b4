// How attention is divided: every key of every row belongs to one task.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/cuda/ops/attention.h"

namespace subbyte::cuda {
namespace {

/// How many tasks of the list have row `row` of the part and see `key`.
int tasks_with(const std::vector<AttentionTask>& tasks, int rows_of_task, const AttentionPart& part,
               int64_t row, int64_t key) {
  return static_cast<int>(std::ranges::count_if(tasks, [&](const AttentionTask& task) {
    return task.first_token == part.first_token && row >= task.first_row &&
           row < task.first_row + rows_of_task && key >= task.begin && key < task.end;
  }));
}

void expect_covered(const std::vector<AttentionPart>& parts, int64_t q_per_kv, int64_t window) {
  const AttentionTasks tasks = attention_tasks(parts, q_per_kv, window);
  for (const AttentionPart& part : parts) {
    for (int64_t row = 0; row < part.num_tokens * q_per_kv; ++row) {
      const int64_t last = part.position + row / q_per_kv;
      const int64_t first = window > 0 ? std::max<int64_t>(0, last - window + 1) : 0;
      for (int64_t key = first; key <= last; ++key) {
        const int found = tasks_with(tasks.prompt, kPromptRows, part, row, key) +
                          tasks_with(tasks.split, kSplitRows, part, row, key);
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

TEST(AttentionTasks, cover_every_key_once) {
  for (const int64_t q_per_kv : {1, 3, 4, 8, 24}) {
    for (const int64_t window : {0, 1, 100, 700}) {
      expect_covered({{0, 1, 0, 0}, {1, 1, 700, 1}, {2, 70, 190, 9}, {72, 5, 1000, 12}}, q_per_kv,
                     window);
    }
  }
  expect_covered({{0, 1, 20000, 0}}, 4, 0);
}

TEST(AttentionTasks, partials_are_merged_once) {
  const std::vector<AttentionPart> parts = {{0, 1, 20000, 0}, {1, 1, 100, 200}, {2, 4, 300, 300}};
  const AttentionTasks tasks = attention_tasks(parts, 4, 0);
  std::set<int32_t> written;
  for (const AttentionTask& task : tasks.split) {
    if (task.partial >= 0) {
      EXPECT_TRUE(written.insert(task.partial).second);
    }
  }
  std::set<int32_t> merged;
  for (const MergeTask& merge : tasks.merge) {
    EXPECT_LE(merge.num_splits, kMostSplits);
    for (int32_t i = 0; i < merge.num_splits; ++i) {
      EXPECT_TRUE(merged.insert(merge.partial + i).second);
    }
  }
  EXPECT_EQ(written, merged);
  EXPECT_EQ(std::ssize(written), tasks.num_partials);
}

TEST(AttentionTasks, follow_from_the_part_alone) {
  const std::vector<AttentionPart> parts = {{0, 1, 5000, 0}, {1, 1, 9000, 40}};
  const AttentionTasks both = attention_tasks(parts, 4, 0);
  const AttentionTasks second = attention_tasks(std::span(parts).subspan(1), 4, 0);
  ASSERT_GE(both.split.size(), second.split.size());
  const std::size_t before = both.split.size() - second.split.size();
  for (std::size_t i = 0; i < second.split.size(); ++i) {
    EXPECT_EQ(both.split[before + i].begin, second.split[i].begin);
    EXPECT_EQ(both.split[before + i].end, second.split[i].end);
  }
}

}  // namespace
}  // namespace subbyte::cuda
