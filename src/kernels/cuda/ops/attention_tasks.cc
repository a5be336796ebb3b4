#include <algorithm>

#include "kernels/cuda/ops/attention.h"

namespace subbyte::cuda {
namespace {

constexpr int64_t kKeyStep = 128;  // splits begin at pages

/// First key that the first token of a part sees, cut to a page.
int64_t first_key(const AttentionPart& part, int64_t window) {
  if (window == 0) return 0;
  return std::max<int64_t>(0, part.position - window + 1) / kKeyStep * kKeyStep;
}

void add_split(AttentionTasks& tasks, const AttentionPart& part, int64_t first_row, int64_t begin,
               int64_t end) {
  const int64_t share = (end - begin + kMostSplits - 1) / kMostSplits;
  const int64_t keys = std::max(kLeastSplit, (share + kKeyStep - 1) / kKeyStep * kKeyStep);
  const int64_t num_splits = (end - begin + keys - 1) / keys;
  const bool merges = num_splits > 1;
  if (merges) {
    tasks.merge.push_back({part.first_token, part.num_tokens, static_cast<int32_t>(first_row),
                           static_cast<int32_t>(tasks.num_partials),
                           static_cast<int32_t>(num_splits)});
  }
  for (int64_t i = 0; i < num_splits; ++i) {
    const int64_t from = begin + i * keys;
    tasks.split.push_back({part.first_token, part.num_tokens, part.position, part.pages_begin,
                           static_cast<int32_t>(first_row), static_cast<int32_t>(from),
                           static_cast<int32_t>(std::min(from + keys, end)),
                           merges ? static_cast<int32_t>(tasks.num_partials++) : -1});
  }
}

}  // namespace

AttentionTasks attention_tasks(std::span<const AttentionPart> parts, int64_t q_per_kv,
                               int64_t window) {
  AttentionTasks tasks;
  for (const AttentionPart& part : parts) {
    const int64_t rows = part.num_tokens * q_per_kv;
    const bool splits = rows <= kSplitRows || part.num_tokens == 1;
    const int64_t step = splits ? kSplitRows : kPromptRows;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t last_token = std::min(row + step, rows) - 1;
      const int64_t end = part.position + last_token / q_per_kv + 1;
      AttentionPart from_row = part;
      from_row.position += static_cast<int32_t>(row / q_per_kv);
      const int64_t begin = first_key(from_row, window);
      if (splits) {
        add_split(tasks, part, row, begin, end);
      } else {
        tasks.prompt.push_back({part.first_token, part.num_tokens, part.position, part.pages_begin,
                                static_cast<int32_t>(row), static_cast<int32_t>(begin),
                                static_cast<int32_t>(end), -1});
      }
    }
  }
  return tasks;
}

}  // namespace subbyte::cuda
