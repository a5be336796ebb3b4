#include <algorithm>
#include <bit>
#include <functional>

#include "kernels/cuda/attention/attention.h"

namespace subbyte::cuda {
namespace {

constexpr int64_t kKeyStep = 128;  // splits begin at pages

int64_t rounded_up_quotient(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Splits of `keys` keys of kSplitRows rows.
void add_split(AttentionTasks& tasks, const AttentionPart& part, int64_t first_row, int64_t begin,
               int64_t end, int64_t keys) {
  const int64_t num_splits = rounded_up_quotient(end - begin, keys);
  const bool merges = num_splits > 1;
  int64_t partial = tasks.used_partials;
  if (tasks.slices.empty() || (merges && partial + num_splits > kMaxPartials)) {
    tasks.slices.push_back({});
    partial = 0;
  }
  AttentionSlice& slice = tasks.slices.back();
  if (merges) {
    tasks.merge.push_back({part.first_token, part.num_tokens, static_cast<int32_t>(first_row),
                           static_cast<int32_t>(partial), static_cast<int32_t>(num_splits)});
    ++slice.num_merge;
  }
  for (int64_t i = 0; i < num_splits; ++i) {
    const int64_t from = begin + i * keys;
    tasks.split.push_back({part.first_token, part.num_tokens, part.position, part.pages_begin,
                           static_cast<int32_t>(first_row), static_cast<int32_t>(from),
                           static_cast<int32_t>(std::min(from + keys, end)),
                           merges ? static_cast<int32_t>(partial++) : -1});
  }
  slice.num_split += num_splits;
  tasks.used_partials = partial;
  tasks.num_partials = std::max(tasks.num_partials, partial);
}

/// Keys of equal splits of about `keys` each, at most kMaxSplits of them.
int64_t keys_of_split(int64_t begin, int64_t end, int64_t keys) {
  const int64_t all = end - begin;
  const int64_t count = std::clamp<int64_t>((all + keys / 2) / keys, 1, kMaxSplits);
  return rounded_up_quotient(rounded_up_quotient(all, count), kKeyStep) * kKeyStep;
}

bool is_split(const AttentionPart& part, int64_t q_per_kv) {
  return part.num_tokens * q_per_kv <= kSplitRows || part.num_tokens == 1;
}

/// Keys of a split such that all split tasks of all heads are about `ctas` CTAs.
int64_t share_of_cta(std::span<const AttentionPart> parts, const AttentionLayers& layers,
                     int64_t ctas) {
  int64_t keys = 0;
  for (const AttentionPart& part : parts) {
    if (!is_split(part, layers.q_per_kv)) continue;
    const int64_t tasks = rounded_up_quotient(part.num_tokens * layers.q_per_kv, kSplitRows);
    keys += tasks * (part.position + part.num_tokens - layers.first_key(part.position, kKeyStep));
  }
  return std::max(kLeastSplit, rounded_up_quotient(keys * layers.kv_heads, ctas));
}

void add_part(AttentionTasks& tasks, const AttentionPart& part, const AttentionLayers& layers,
              int64_t least_split) {
  const int64_t q_per_kv = layers.q_per_kv;
  const int64_t rows = part.num_tokens * q_per_kv;
  const bool splits = is_split(part, q_per_kv);
  const int64_t step = splits ? kSplitRows : layers.prompt_rows;
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t last_token = std::min(row + step, rows) - 1;
    const int64_t end = part.position + last_token / q_per_kv + 1;
    const int64_t begin = layers.first_key(part.position + row / q_per_kv, kKeyStep);
    if (splits) {
      add_split(tasks, part, row, begin, end, keys_of_split(begin, end, least_split));
    } else {
      tasks.prompt.push_back({part.first_token, part.num_tokens, part.position, part.pages_begin,
                              static_cast<int32_t>(row), static_cast<int32_t>(begin),
                              static_cast<int32_t>(end), -1});
    }
  }
}

/// The splits of a token in batch-invariant mode: [first + i * keys, first + (i + 1) * keys).
struct InvariantSplits {
  int64_t first;
  int64_t keys;
  bool operator==(const InvariantSplits&) const = default;
};

/// kLeastSplit keys, doubled until the token sees parts of at most kMaxSplits: of those from 0 on,
/// or of those that a window of that length can touch.
InvariantSplits invariant_splits(const AttentionPart& token, const AttentionLayers& layers) {
  const int64_t window = layers.window;
  int64_t keys = kLeastSplit;
  const auto fits = [&] {
    if (token.position < kMaxSplits * keys) return true;
    return window > 0 && rounded_up_quotient(window - 1, keys) + 1 <= kMaxSplits;
  };
  while (!fits()) keys *= 2;
  return {layers.first_key(token.position, keys), keys};
}

/// The tokens of a part one by one, or as many as share a task. A row sees nothing of the keys that
/// its neighbours see alone: they weigh nothing, and adding nothing changes no bits.
void add_invariant_part(AttentionTasks& tasks, const AttentionPart& part,
                        const AttentionLayers& layers) {
  const int64_t q_per_kv = layers.q_per_kv;
  const auto from = [&part](int32_t token, int32_t count) -> AttentionPart {
    return {part.first_token + token, count, part.position + token, part.pages_begin};
  };
  const int64_t most = std::max<int64_t>(1, kSplitRows / q_per_kv);
  for (int32_t token = 0; token < part.num_tokens;) {
    const InvariantSplits splits = invariant_splits(from(token, 1), layers);
    int32_t count = 1;
    while (count < most && token + count < part.num_tokens &&
           invariant_splits(from(token + count, 1), layers) == splits) {
      ++count;
    }
    const AttentionPart together = from(token, count);
    for (int64_t row = 0; row < count * q_per_kv; row += kSplitRows) {
      add_split(tasks, together, row, splits.first, together.position + count, splits.keys);
    }
    token += count;
  }
}

/// Each token by itself, as if the keys that it selects were all that it sees.
std::vector<AttentionPart> selecting_parts(std::span<const AttentionPart> parts, int64_t top) {
  std::vector<AttentionPart> tokens;
  for (const AttentionPart& part : parts) {
    for (int32_t i = 0; i < part.num_tokens; ++i) {
      const int64_t position = std::min<int64_t>(part.position + i, top - 1);
      tokens.push_back({part.first_token + i, 1, static_cast<int32_t>(position), part.pages_begin});
    }
  }
  return tokens;
}

}  // namespace

void round_up_tasks(AttentionTasks& tasks) {
  if (tasks.slices.size() != 1) return;
  const auto rounded = [](int64_t count) {
    const auto step = std::max<int64_t>(1, std::bit_floor(static_cast<uint64_t>(count)) / 8);
    return rounded_up_quotient(count, step) * step;
  };
  AttentionSlice& slice = tasks.slices.front();
  slice = {rounded(slice.num_split), rounded(slice.num_merge)};
  tasks.num_partials = rounded(tasks.num_partials);
  tasks.split.resize(slice.num_split);
  tasks.merge.resize(slice.num_merge);
}

AttentionTasks attention_tasks(std::span<const AttentionPart> parts, const AttentionLayers& layers,
                               int64_t ctas) {
  std::vector<AttentionPart> tokens;
  if (layers.top > 0) parts = tokens = selecting_parts(parts, layers.top);
  AttentionTasks tasks;
  const int64_t least_split = share_of_cta(parts, layers, ctas);
  for (const AttentionPart& part : parts) add_part(tasks, part, layers, least_split);
  std::ranges::stable_sort(tasks.prompt, std::ranges::greater(),
                           [](const AttentionTask& task) { return task.end - task.begin; });
  return tasks;
}

AttentionTasks invariant_attention_tasks(std::span<const AttentionPart> parts,
                                         const AttentionLayers& layers) {
  std::vector<AttentionPart> tokens;
  if (layers.top > 0) parts = tokens = selecting_parts(parts, layers.top);
  AttentionTasks tasks;
  for (const AttentionPart& part : parts) add_invariant_part(tasks, part, layers);
  return tasks;
}

}  // namespace subbyte::cuda
