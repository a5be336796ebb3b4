#include "kernels/cuda/attention/expansion.h"

#include <algorithm>

namespace subbyte::cuda {
namespace {

constexpr int64_t kAlignment = 256;
// Measured on an H200 (docs/kernels/cuda_decisions.md): products of latents, of matrices of heads
// and of what is made are as fast as each other, 7 * 10^13 a second, by wgmma attention has three
// times as many, and what is launched more takes 15 us.
constexpr int64_t kRateOfWgmma = 3;
constexpr int64_t kProductsOfLaunches = 1'000'000'000;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t pages_of(int64_t positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

void add_pages(std::vector<ExpandedPage>& to, const AttentionPart& part,
               std::span<const int32_t> pages) {
  const int64_t positions = part.position + part.num_tokens;
  for (int64_t i = 0; i * kPagePositions < positions; ++i) {
    const int64_t left = std::min<int64_t>(kPagePositions, positions - i * kPagePositions);
    to.push_back(
        {pages[static_cast<std::size_t>(part.pages_begin + i)], static_cast<int32_t>(left)});
  }
}

bool is_of_eights(int64_t number) {
  return number > 0 && number % 8 == 0;
}

}  // namespace

bool ExpandedSizes::is_supported() const {
  return heads > 0 && is_of_eights(rank) && is_of_eights(turning) && is_of_eights(nope) &&
         head_dim() % 16 == 0 && head_dim() <= kMaxValues && value > 0 && value % 16 == 0 &&
         value <= kMaxValues && nope <= rank && value <= rank;
}

int64_t ExpandedSizes::bytes(int64_t some_heads, int64_t positions) const {
  const int64_t all = pages_of(positions) * kPagePositions;
  return aligned(2 * all * rank) + aligned(2 * all * turning) +
         aligned(2 * some_heads * nope * rank) + aligned(2 * some_heads * all * nope) +
         aligned(2 * some_heads * all * value);
}

int64_t ExpandedSizes::heads_at_a_time(int64_t positions) const {
  const int64_t of_head = bytes(1, positions) - bytes(0, positions);
  const int64_t most = (most_memory - bytes(0, positions)) / of_head;
  if (most <= 0 || heads == 0) return 0;
  const int64_t times = (heads + most - 1) / most;
  return (heads + times - 1) / times;
}

int64_t ExpandedSizes::most_bytes(int64_t positions) const {
  return std::min(most_memory, bytes(heads, positions));
}

bool ExpandedSizes::pays(int64_t tokens, int64_t cached, const ExpansionGpu& gpu) const {
  if (!is_supported() || tokens <= kSplitRows) return false;
  if (top > 0 && cached + tokens > top) return false;
  const int64_t pairs = tokens * cached + tokens * (tokens + 1) / 2;  // of a query and a key
  const int64_t ctas =
      heads_at_a_time(cached + tokens) * ((tokens + kExpandedRows - 1) / kExpandedRows);
  if (ctas == 0) return false;
  const int64_t all = std::max(ctas, gpu.multiprocessors);  // some may have nothing to do
  const int64_t of_pair = (head_dim() + value) * all / ctas / (gpu.has_wgmma ? kRateOfWgmma : 1);
  const int64_t saved = pairs * (2 * rank + turning - of_pair);
  return saved > cached * rank * (nope + value) + kProductsOfLaunches / heads;
}

ExpandedParts expanded_parts(std::span<const AttentionPart> parts, const ExpandedSizes& sizes,
                             std::span<const int32_t> pages, const ExpansionGpu& gpu) {
  ExpandedParts divided;
  for (const AttentionPart& part : parts) {
    const int64_t positions =
        divided.positions() + pages_of(part.position + part.num_tokens) * kPagePositions;
    const bool expands =
        sizes.pays(part.num_tokens, part.position, gpu) && sizes.heads_at_a_time(positions) > 0;
    if (expands) {
      AttentionPart made = part;
      made.pages_begin = static_cast<int32_t>(divided.pages.size());
      divided.expanded.push_back(made);
      add_pages(divided.pages, part, pages);
    } else {
      divided.cached.push_back(part);
    }
    if (divided.rows.empty() || divided.rows.back().are_expanded != expands) {
      divided.rows.push_back({part.first_token, 0, expands});
    }
    divided.rows.back().count += part.num_tokens;
  }
  return divided;
}

AttentionTasks expanded_tasks(const ExpandedParts& parts, const ExpandedSizes& sizes) {
  AttentionLayers layers = {1, sizes.heads};
  layers.prompt_rows = kExpandedRows;
  return attention_tasks(parts.expanded, layers, 1);
}

}  // namespace subbyte::cuda
