#include "ops/cache_layout.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/kv_pool.h"

namespace subbyte {
namespace {

/// One of so many parts of a cache is for states of prefixes, and of pages for those of a window.
constexpr int64_t kKeptShare = 4;
constexpr int64_t kLeastCheckpoints = 4;

}  // namespace

int64_t kv_pages(int64_t positions) {
  return ceil_div(positions, kPagePositions);
}

int64_t cache_units(const CacheGroup& group, const CacheSize& size) {
  if (group.is_state()) return size.sequences * Sequence::kMaxStates + size.checkpoints;
  const int64_t all = kv_pages(size.positions);
  if (group.window == 0 || size.step_tokens == 0) return all;
  // Of a sequence the window may begin and the step end within a page.
  const int64_t seen = size.sequences * (kv_pages(group.window) + 2);
  const int64_t steps = kv_pages(2 * size.step_tokens);
  const int64_t kept = size.keeps_prefixes ? all / kKeptShare : 0;
  return std::min(all, seen + steps + kept);
}

int64_t checkpoints_in(const CacheLayout& layout, Element type, const CacheSize& size,
                       int64_t bytes) {
  int64_t one = 0;
  for (const CacheGroup& group : layout.groups) {
    if (group.is_state()) one += cache_unit_bytes(group, type);
  }
  if (one == 0) return 0;
  if (bytes >= 0) return bytes / one;
  return std::max(kLeastCheckpoints, cache_bytes(layout, type, size) / (kKeptShare - 1) / one);
}

int64_t cache_unit_bytes(const CacheGroup& group, Element type) {
  if (group.is_state()) {
    return group.layers * group.state_size * static_cast<int64_t>(sizeof(float));
  }
  return kv_shape(group, type).page_bytes();
}

int64_t cache_bytes(const CacheLayout& layout, Element type, const CacheSize& size) {
  int64_t bytes = 0;
  for (const CacheGroup& group : layout.groups) {
    bytes += cache_units(group, size) * cache_unit_bytes(group, type);
  }
  return bytes;
}

int64_t cache_position_bytes(const CacheLayout& layout, Element type) {
  int64_t bytes = 0;
  for (const CacheGroup& group : layout.groups) {
    if (!group.is_state()) bytes += cache_unit_bytes(group, type) / kPagePositions;
  }
  return bytes;
}

int64_t cache_read_bytes(const CacheLayout& layout, Element type, int64_t positions) {
  int64_t bytes = 0;
  for (const CacheGroup& group : layout.groups) {
    const int64_t unit = cache_unit_bytes(group, type);
    const int64_t seen = group.window > 0 ? std::min(group.window, positions) : positions;
    const int64_t read = seen * (unit / kPagePositions);
    bytes +=
        group.is_state() ? unit : read + read / std::max<int64_t>(group.layers, 1) * group.readers;
  }
  return bytes;
}

}  // namespace subbyte
