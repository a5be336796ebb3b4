#pragma once
// What a model keeps of each sequence between steps, as groups of layers that keep it alike: keys
// and values of positions, of all or of those within a window, or a state of fixed size.

#include <cstdint>
#include <vector>

#include "base/operands.h"

namespace subbyte {

struct CacheGroup {
  int64_t layers = 0;
  // Keys and values, where there are heads of them.
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool keys_alone = false;  // values are in them
  int64_t window = 0;       // positions that a token sees, itself among them; 0: all
  // Or a state: float32 numbers of a layer.
  int64_t state_size = 0;
  int64_t readers = 0;  // further layers, which read the keys and values of these

  bool is_state() const { return state_size > 0; }
  bool operator==(const CacheGroup&) const = default;
};

struct CacheLayout {
  std::vector<CacheGroup> groups;
  /// Positions after which all angles of a text are others (Rope), so that what was kept of it is
  /// of no use; 0: they stay.
  int64_t long_after = 0;

  bool operator==(const CacheLayout&) const = default;
};

/// Where an operation finds what its layer keeps.
struct CacheSlot {
  int32_t group = 0;
  int64_t layer = 0;  // of the group
};

/// The positions and sequences that a cache is to hold.
struct CacheSize {
  int64_t positions = 0;    // of all sequences together
  int64_t sequences = 1;    // at a time
  int64_t step_tokens = 0;  // of a step, at most; 0: as many as there are positions
  /// Prefixes are kept (ops/prefix_cache.h): with so many states, and of layers with a window a
  /// quarter of what all their pages would be.
  bool keeps_prefixes = false;
  int64_t checkpoints = 0;

  bool operator==(const CacheSize&) const = default;
};

/// Pages that hold `positions` positions of one sequence.
int64_t kv_pages(int64_t positions);

/// Pages, or states, of a group in a cache of that size. Layers with a window have pages for what
/// sequences see and for two steps, as pages before it are given back.
int64_t cache_units(const CacheGroup& group, const CacheSize& size);

/// Checkpoints of all groups of states that so many bytes hold; -1: a quarter of a cache of that
/// size, and some at least.
int64_t checkpoints_in(const CacheLayout& layout, Element type, const CacheSize& size,
                       int64_t bytes);

/// Bytes of a page, or of a state.
int64_t cache_unit_bytes(const CacheGroup& group, Element type);

/// Bytes of a cache.
int64_t cache_bytes(const CacheLayout& layout, Element type, const CacheSize& size);

/// Bytes that a position takes in all groups, while no window has gone by.
int64_t cache_position_bytes(const CacheLayout& layout, Element type);

/// Bytes that a token reads which has so many before it.
int64_t cache_read_bytes(const CacheLayout& layout, Element type, int64_t positions);

}  // namespace subbyte
