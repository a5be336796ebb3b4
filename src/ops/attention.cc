#include "ops/attention.h"

#include <algorithm>

#include "base/checked.h"

namespace subbyte {
namespace {

// Fewer pieces of work than kEnoughItems are cut up into about kWantedItems, whatever the number
// of threads, but none is to look at fewer positions than kMinSplitPositions.
constexpr int64_t kEnoughItems = 32;
constexpr int64_t kWantedItems = cpu::kMaxAttentionSplits;
constexpr int64_t kMinSplitPositions = 128;
constexpr int64_t kLeastTileRows = 64;
// Output floats below which merging is not worth a second thread.
constexpr int64_t kMergeGrain = 1 << 14;

/// How the work is cut up: by the shape alone, so that results do not depend on the threads. The
/// rows are the pairs of a token and one of the query heads that share a key-value head.
struct Plan {
  int64_t rows;         // of each KV head
  int64_t tile_rows;    // of a tile, except the last
  int64_t tiles;        // of each KV head
  int64_t first;        // the first position that anyone sees
  int64_t split_width;  // positions
  int64_t splits;
};

Plan make_plan(const AttentionShape& shape, int64_t tokens, int64_t first_position,
               int64_t most_rows) {
  Plan plan;
  plan.rows = tokens * (shape.heads / shape.kv_heads);
  // As large as they may be, unless that leaves too few for many threads.
  const int64_t even = static_cast<int64_t>(ceil_div(plan.rows * shape.kv_heads, kEnoughItems));
  const int64_t wanted = static_cast<int64_t>(round_up(even, kLeastTileRows));
  plan.tile_rows = std::min(plan.rows, std::min(wanted, most_rows));
  plan.tiles = static_cast<int64_t>(ceil_div(plan.rows, plan.tile_rows));
  plan.first = shape.window > 0 ? std::max<int64_t>(0, first_position - shape.window + 1) : 0;
  const int64_t positions = first_position + tokens - plan.first;
  const int64_t items = shape.kv_heads * plan.tiles;
  const int64_t most = items < kEnoughItems ? kWantedItems / items : 1;
  plan.splits = std::clamp<int64_t>(positions / kMinSplitPositions, 1, most);
  plan.split_width = static_cast<int64_t>(ceil_div(positions, plan.splits));
  return plan;
}

/// Later tiles see more positions: the first goes with the last, the second with the last but one.
int64_t balanced(int64_t i, int64_t tiles) {
  return i % 2 == 0 ? i / 2 : tiles - 1 - i / 2;
}

class Attention {
 public:
  Attention(Execution& execution, std::span<float> out, std::span<const float> q,
            const KvView& cache, int64_t first_position, const AttentionShape& shape,
            std::span<const float> sinks)
      : pool_(execution.pool()),
        kernels_(*execution.kernels().vectors),
        out_(out.data()),
        q_(q.data()),
        cache_(cache),
        first_position_(first_position),
        shape_(shape),
        sinks_(sinks),
        group_(shape.heads / shape.kv_heads),
        token_floats_(shape.heads * shape.head_dim),
        plan_(make_plan(shape, static_cast<int64_t>(q.size()) / token_floats_, first_position,
                        kernels_.attention_rows)),
        record_(kernels_.attention_record_floats(shape.head_dim)),
        scratch_floats_(
            static_cast<int64_t>(round_up(kernels_.attention_scratch_floats(shape.head_dim), 16))),
        tile_floats_(plan_.tile_rows * record_) {
    // Records that wait to be merged outlive their tile; without splits they do not.
    const int64_t kept = plan_.splits > 1 ? items() : pool_.size();
    scratch_ = execution.floats(Execution::Slot::kScratch,
                                pool_.size() * scratch_floats_ + kept * tile_floats_);
    records_ = scratch_ + pool_.size() * scratch_floats_;
  }

  void run() {
    pool_.parallel_for(items(), 1, [this](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) run_item(i, thread);
    });
    if (plan_.splits == 1) return;
    const int64_t grain = std::max<int64_t>(1, kMergeGrain / (plan_.splits * shape_.head_dim));
    pool_.parallel_for(
        shape_.kv_heads * plan_.rows, grain, [this](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t kv_head = i / plan_.rows;
            const int64_t row = i % plan_.rows;
            const int64_t tile = kv_head * plan_.tiles + row / plan_.tile_rows;
            merge(kv_head, row,
                  records_ + tile * plan_.splits * tile_floats_ + row % plan_.tile_rows * record_);
          }
        });
  }

 private:
  int64_t items() const { return shape_.kv_heads * plan_.tiles * plan_.splits; }

  /// [kv_head][tile][split]
  void run_item(int64_t item, int thread) const {
    const int64_t split = item % plan_.splits;
    const int64_t kv_head = item / plan_.splits / plan_.tiles;
    const int64_t nth = item / plan_.splits % plan_.tiles;
    const int64_t index = plan_.splits > 1 ? nth : balanced(nth, plan_.tiles);
    const int64_t kv_offset = kv_head * cache_.capacity * shape_.head_dim;
    cpu::AttentionTile tile;
    tile.q = q_ + kv_head * group_ * shape_.head_dim;
    tile.q_stride = token_floats_;
    tile.group = group_;
    tile.row_begin = index * plan_.tile_rows;
    tile.row_end = std::min(tile.row_begin + plan_.tile_rows, plan_.rows);
    tile.keys = cache_.keys + kv_offset;
    tile.values = cache_.values + kv_offset;
    tile.head_dim = shape_.head_dim;
    tile.scale = shape_.scale;
    tile.first_position = first_position_;
    tile.window = shape_.window;
    tile.begin = plan_.first + split * plan_.split_width;
    tile.end = tile.begin + plan_.split_width;
    tile.records = records_ + (plan_.splits > 1 ? item : thread) * tile_floats_;
    tile.scratch = scratch_ + thread * scratch_floats_;
    kernels_.attend(tile);
    if (plan_.splits > 1) return;
    for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
      merge(kv_head, row, tile.records + (row - tile.row_begin) * record_);
    }
  }

  void merge(int64_t kv_head, int64_t row, const float* records) const {
    const int64_t head = kv_head * group_ + row % group_;
    kernels_.merge_attention(out_ + row / group_ * token_floats_ + head * shape_.head_dim, records,
                             plan_.splits, tile_floats_, sinks_.empty() ? nullptr : &sinks_[head],
                             shape_.head_dim);
  }

  Executor& pool_;
  const cpu::VectorKernels& kernels_;
  float* out_;
  const float* q_;
  const KvView& cache_;
  int64_t first_position_;
  const AttentionShape& shape_;
  std::span<const float> sinks_;
  int64_t group_;
  int64_t token_floats_;
  Plan plan_;
  int64_t record_;
  int64_t scratch_floats_;
  int64_t tile_floats_;
  float* scratch_;
  float* records_;
};

}  // namespace

void attention(Execution& execution, std::span<float> out, std::span<const float> q,
               const KvView& cache, int64_t first_position, const AttentionShape& shape,
               std::span<const float> sinks) {
  if (q.empty()) return;
  const std::size_t token_floats = shape.heads * shape.head_dim;
  if (!execution.batch_invariant()) {
    Attention(execution, out, q, cache, first_position, shape, sinks).run();
    return;
  }
  // A token by itself is cut up by its position alone.
  for (std::size_t at = 0; at < q.size(); at += token_floats) {
    Attention(execution, out.subspan(at, token_floats), q.subspan(at, token_floats), cache,
              first_position + static_cast<int64_t>(at / token_floats), shape, sinks)
        .run();
  }
}

}  // namespace subbyte
