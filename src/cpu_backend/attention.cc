#include "cpu_backend/attention.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/checked.h"

namespace subbyte {
namespace {

// Fewer pieces of work than kEnoughItems are cut up into about kWantedItems, whatever the number
// of threads, but none is to look at fewer positions than a page has.
constexpr int64_t kEnoughItems = 32;
constexpr int64_t kWantedItems = cpu::kMaxAttentionSplits;
constexpr int64_t kLeastTileRows = 64;
// Output floats below which merging is not worth a second thread. So many partial ones of a tile
// are merged by the thread that has computed the last of them.
constexpr int64_t kMergeGrain = 1 << 14;
constexpr int64_t kCounterStride = 16;  // a line for each counter
// Floats of partial results that wait to be merged at a time.
constexpr int64_t kMaxPartials = int64_t{1} << 22;

/// How the work of a part is cut up: by its shape alone, so that results depend neither on the
/// threads nor on other parts. The rows are the pairs of a token and one of the query heads that
/// share a key-value head.
struct Plan {
  int64_t rows;         // of each KV head
  int64_t tile_rows;    // of a tile, except the last
  int64_t tiles;        // of each KV head
  int64_t first;        // a position at or before the first that anyone sees
  int64_t split_width;  // positions
  int64_t splits;
  bool is_merged_at_once;

  int64_t items(int64_t kv_heads) const { return kv_heads * tiles * splits; }
};

Plan make_plan(const AttentionShape& shape, int64_t tokens, int64_t first_position,
               int64_t max_rows) {
  Plan plan;
  plan.rows = tokens * (shape.heads / shape.kv_heads);
  // As large as they may be, unless that leaves too few for many threads.
  const int64_t even = static_cast<int64_t>(ceil_div(plan.rows * shape.kv_heads, kEnoughItems));
  const int64_t wanted = static_cast<int64_t>(round_up(even, kLeastTileRows));
  plan.tile_rows = std::min(plan.rows, std::min(wanted, max_rows));
  plan.tiles = static_cast<int64_t>(ceil_div(plan.rows, plan.tile_rows));
  const int64_t seen = shape.first_seen(first_position);
  plan.first = seen - seen % kPagePositions;
  const int64_t positions = first_position + tokens - plan.first;
  const int64_t items = shape.kv_heads * plan.tiles;
  const int64_t most = items < kEnoughItems ? kWantedItems / items : 1;
  const int64_t splits = std::clamp<int64_t>(positions / kPagePositions, 1, most);
  plan.split_width = static_cast<int64_t>(round_up(ceil_div(positions, splits), kPagePositions));
  plan.splits = static_cast<int64_t>(ceil_div(positions, plan.split_width));
  plan.is_merged_at_once =
      plan.splits > 1 && plan.tile_rows * plan.splits * shape.head_dim <= kMergeGrain;
  return plan;
}

/// Later tiles see more positions: the first goes with the last, the second with the last but one.
int64_t balanced(int64_t i, int64_t tiles) {
  return i % 2 == 0 ? i / 2 : tiles - 1 - i / 2;
}

/// A part with its plan, and where it begins among the items, rows to merge and partial results of
/// all parts.
struct PlannedPart {
  AttentionPart part;
  Plan plan;
  int64_t number = 0;  // among those of a call
  int64_t first_item = 0;
  int64_t first_merged = 0;
  int64_t first_partial = 0;
  int64_t first_counter = 0;
};

class Attention {
 public:
  Attention(Execution& execution, const AttentionStrides& strides, const KvLayer& layer,
            const AttentionShape& shape, std::span<const float> sinks, const PrepareHead* prepare)
      : execution_(execution),
        kernels_(*execution.kernels().vectors),
        strides_(strides),
        layer_(layer),
        shape_(shape),
        sinks_(sinks),
        q_per_kv_(shape.heads / shape.kv_heads),
        partial_(kernels_.attention_partial_floats(shape.head_dim)),
        prepare_(prepare),
        scratch_floats_(
            static_cast<int64_t>(round_up(kernels_.attention_scratch_floats(shape.head_dim), 16))),
        room_floats_(prepare == nullptr
                         ? 0
                         : static_cast<int64_t>(round_up((q_per_kv_ + 1) * shape.head_dim, 16))) {}

  /// False when the partial results of the parts so far are enough: run() then, and go on.
  bool add(const AttentionPart& part) {
    if (num_partials_ >= kMaxPartials) return false;
    const Plan plan = make_plan(shape_, part.tokens, part.first_position, kernels_.attention_rows);
    const int64_t items = plan.items(shape_.kv_heads);
    parts_.push_back(
        {part, plan, num_parts_++, num_items_, num_merged_, num_partials_, std::ssize(counters_)});
    num_items_ += items;
    tile_floats_ = std::max(tile_floats_, plan.tile_rows * partial_);
    if (plan.splits == 1) return true;
    if (plan.is_merged_at_once) {
      counters_.resize(counters_.size() + shape_.kv_heads * plan.tiles * kCounterStride);
    } else {
      num_merged_ += shape_.kv_heads * plan.rows;
    }
    num_partials_ += items * plan.tile_rows * partial_;
    return true;
  }

  void run() {
    Executor& pool = execution_.pool();
    // Records that wait to be merged outlive their tile; without splits they do not.
    const int64_t own = scratch_floats_ + tile_floats_ + room_floats_;
    scratch_ = execution_.floats(Execution::Slot::kScratch, pool.size() * own + num_partials_);
    partials_ = scratch_ + pool.size() * own;
    pool.parallel_for(num_items_, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) run_item(i, scratch_ + thread * own);
    });
    const int64_t grain = std::max<int64_t>(1, kMergeGrain / (kWantedItems * shape_.head_dim));
    pool.parallel_for(num_merged_, grain, [this](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) merge_splits(i);
    });
    parts_.clear();
    counters_.clear();
    num_items_ = num_merged_ = num_partials_ = 0;
  }

 private:
  const PlannedPart& part_of(int64_t index, int64_t PlannedPart::*first) const {
    return *(std::ranges::upper_bound(parts_, index, {}, first) - 1);
  }

  /// Of a part: [kv_head][tile][split].
  void run_item(int64_t item, float* scratch) {
    const PlannedPart& planned = part_of(item, &PlannedPart::first_item);
    const Plan& plan = planned.plan;
    item -= planned.first_item;
    const int64_t split = item % plan.splits;
    const int64_t kv_head = item / plan.splits / plan.tiles;
    const int64_t nth = item / plan.splits % plan.tiles;
    const int64_t index = plan.splits > 1 ? nth : balanced(nth, plan.tiles);
    cpu::AttentionTile tile;
    tile.q = queries(planned, kv_head, split, scratch);
    tile.q_stride = strides_.q;
    tile.q_per_kv = q_per_kv_;
    tile.row_begin = index * plan.tile_rows;
    tile.row_end = std::min(tile.row_begin + plan.tile_rows, plan.rows);
    tile.cache = reinterpret_cast<const uint8_t*>(layer_.pages);
    tile.page_bytes = layer_.page_bytes;
    tile.pages = planned.part.pages.data();
    tile.keys = layer_.layer_begin + 2 * kv_head * layer_.run_bytes;
    tile.values = tile.keys + (shape_.values_in_keys > 0 ? 0 : layer_.run_bytes);
    tile.head_dim = shape_.head_dim;
    tile.scale = shape_.scale;
    tile.cap = shape_.cap;
    tile.first_position = planned.part.first_position;
    tile.window = shape_.window;
    tile.in_chunks = shape_.in_chunks;
    tile.begin = plan.first + split * plan.split_width;
    tile.end = tile.begin + plan.split_width;
    tile.scratch = scratch;
    tile.partials = plan.splits > 1
                        ? partials_ + planned.first_partial + item * plan.tile_rows * partial_
                        : scratch + scratch_floats_;
    kernels_.attend[static_cast<int>(layer_.element)](tile);
    if (plan.splits == 1) {
      for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
        merge(planned, kv_head, row, tile.partials + (row - tile.row_begin) * partial_);
      }
    } else if (plan.is_merged_at_once && is_last(planned, kv_head * plan.tiles + index)) {
      for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
        merge_splits(planned, kv_head, row);
      }
    }
  }

  /// Where the queries of a KV head are, which all splits prepare for themselves, if any: the last
  /// one alone sees the position whose key and value are stored.
  const float* queries(const PlannedPart& planned, int64_t kv_head, int64_t split,
                       float* scratch) const {
    if (prepare_ == nullptr) return planned.part.q + kv_head * strides_.q_kv_head;
    float* const room = scratch + scratch_floats_ + tile_floats_;
    (*prepare_)(planned.number, kv_head, split + 1 == planned.plan.splits, room);
    return room;
  }

  /// Says whether all other splits of that tile have been computed.
  bool is_last(const PlannedPart& planned, int64_t tile) {
    std::atomic_ref<int32_t> done(counters_[planned.first_counter + tile * kCounterStride]);
    return done.fetch_add(1, std::memory_order_acq_rel) + 1 == planned.plan.splits;
  }

  void merge_splits(int64_t i) const {
    const PlannedPart& planned = part_of(i, &PlannedPart::first_merged);
    merge_splits(planned, (i - planned.first_merged) / planned.plan.rows,
                 (i - planned.first_merged) % planned.plan.rows);
  }

  void merge_splits(const PlannedPart& planned, int64_t kv_head, int64_t row) const {
    const Plan& plan = planned.plan;
    const int64_t tile = kv_head * plan.tiles + row / plan.tile_rows;
    const int64_t first_row = tile * plan.splits * plan.tile_rows + row % plan.tile_rows;
    merge(planned, kv_head, row, partials_ + planned.first_partial + first_row * partial_);
  }

  void merge(const PlannedPart& planned, int64_t kv_head, int64_t row, float* partials) const {
    const int64_t head = kv_head * q_per_kv_ + row % q_per_kv_;
    const int64_t dim = strides_.value_dim;
    float* const out = planned.part.out + row / q_per_kv_ * strides_.out + head * strides_.out_head;
    const bool is_longer = dim < shape_.head_dim;  // what is weighted are whole keys
    kernels_.merge_attention(is_longer ? partials : out, partials, planned.plan.splits,
                             planned.plan.tile_rows * partial_,
                             sinks_.empty() ? nullptr : &sinks_[head], shape_.head_dim);
    if (is_longer) std::copy_n(partials, dim, out);
  }

  Execution& execution_;
  const cpu::VectorKernels& kernels_;
  AttentionStrides strides_;
  const KvLayer& layer_;
  const AttentionShape& shape_;
  std::span<const float> sinks_;
  int64_t q_per_kv_;
  int64_t partial_;
  const PrepareHead* prepare_;
  int64_t scratch_floats_;
  int64_t room_floats_;
  int64_t tile_floats_ = 0;
  std::vector<PlannedPart> parts_;
  std::vector<int32_t> counters_;  // of splits that have been computed, for each tile
  int64_t num_parts_ = 0;
  int64_t num_items_ = 0;
  int64_t num_merged_ = 0;
  int64_t num_partials_ = 0;
  float* scratch_ = nullptr;
  float* partials_ = nullptr;
};

AttentionStrides strides_of(const AttentionShape& shape, int64_t q_stride) {
  return {.q = q_stride,
          .q_kv_head = shape.heads / shape.kv_heads * shape.head_dim,
          .out = shape.result_size(),
          .out_head = shape.value_dim(),
          .value_dim = shape.value_dim()};
}

}  // namespace

void attention(Execution& execution, std::span<const AttentionPart> parts, int64_t q_stride,
               const KvLayer& layer, const AttentionShape& shape, std::span<const float> sinks) {
  attention(execution, parts, strides_of(shape, q_stride), layer, shape, sinks);
}

void attention(Execution& execution, std::span<const AttentionPart> parts,
               const AttentionStrides& strides, const KvLayer& layer, const AttentionShape& shape,
               std::span<const float> sinks) {
  Attention work(execution, strides, layer, shape, sinks, nullptr);
  const auto add = [&work](const AttentionPart& part) {
    if (work.add(part)) return;
    work.run();
    work.add(part);
  };
  for (const AttentionPart& part : parts) {
    if (!execution.batch_invariant()) {
      add(part);
      continue;
    }
    // A token by itself is cut up by its position alone.
    for (int64_t t = 0; t < part.tokens; ++t) {
      add({part.q + t * strides.q, part.out + t * strides.out, 1, part.first_position + t,
           part.pages});
    }
  }
  work.run();
}

void attention_of_tokens(Execution& execution, std::span<const AttentionPart> parts,
                         const KvLayer& layer, const AttentionShape& shape,
                         std::span<const float> sinks, PrepareHead prepare) {
  Attention work(execution, strides_of(shape, 0), layer, shape, sinks, &prepare);
  for (const AttentionPart& part : parts) {
    if (work.add(part)) continue;
    work.run();
    work.add(part);
  }
  work.run();
}

}  // namespace subbyte
