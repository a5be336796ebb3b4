#pragma once
// Products of the experts of a layer for few tokens each, Hopper: wgmma by 8 or 16 tokens.
//
//   unit u   64 outputs of an expert, 16 for each warp of a warpgroup, by one tile of routes
//   CTA c    units [c U / CTAs, (c + 1) U / CTAs), where U are those of all tiles that have routes
//
// The inputs of a tile lie in shared memory as a panel that all its units read: operand B of wgmma,
// with its 128-byte swizzle. Where no more than eight routes are in it, products are those of
// eight.
//
//   panel    [K tile][token] 64 inputs
//
// The warpgroups of a CTA have equal, contiguous shares of the batches of its units of a tile
// (stream-K); what one has of a unit is a run:
//
//                inputs ->
//     unit 0    [      warpgroup 0      ]     A run that does not begin with the unit is a head: it
//     unit 1    [ 0 |    warpgroup 1    ]     is left in shared memory. The warpgroup that began
//     unit 2    [  1   |  warpgroup 2   ]     the unit adds the heads in their order when all are
//     unit 3    [     warpgroup 3       ]     there, and has the results.
//
// Weights are asked for over the ends of runs, units, tiles and experts. The second product of a
// layer asks for its first ones before it waits for its inputs, as experts/kernel.cuh says.

#include "kernels/cuda/experts/kernel.cuh"
#include "kernels/cuda/experts/panel_inputs.cuh"
#include "kernels/cuda/experts/panel_products.cuh"

namespace subbyte::cuda {

/// The way of a warpgroup through its batches.
struct PanelRuns {
  int units;    // of a tile
  int batches;  // of a unit
  int end;      // of the CTA's units, which count from the first tile on
  // The tile, and the units of it that the CTA has.
  int tile;
  int first;
  int count;
  // The next batch.
  int unit;
  int batch;
  int left;  // of the share

  /// Goes to the tile of `unit`, of which the CTA has units from that on. False: it has none.
  __device__ bool begin_tile(int next) {
    if (next >= end) return false;
    tile = next / units;
    first = next;
    count = min(end, (tile + 1) * units) - next;
    const int begin = share(warpgroup());
    left = share(warpgroup() + 1) - begin;
    unit = first + begin / batches;
    batch = begin - (unit - first) * batches;
    return true;
  }
  /// Batches of the run that begins with the next one.
  __device__ int run() const { return min(batches - batch, left); }
  /// Goes to the run after it, which may be of another tile. False: there is none.
  __device__ bool next_run() {
    left -= run();
    batch = 0;
    ++unit;
    return left > 0 || next_tile();
  }
  /// Goes to the first run of the next tile of which this warpgroup has any.
  __device__ bool next_tile() {
    do {
      if (!begin_tile(first + count)) return false;
    } while (left == 0);
    return true;
  }
  /// Begin of a warpgroup's share, in batches of the CTA's units of the tile.
  __device__ int share(int of) const { return count * batches * of / kPanelWarpgroups; }
  static __device__ int warpgroup() { return static_cast<int>(threadIdx.x) / 128; }
};

/// The run whose weights a warp asks for.
struct PanelFill {
  PanelRuns runs;
  int expert;
};

template <class Number, class Decoder, int kGroups>
class PanelWarp {
 public:
  using Stream = PanelStream<Decoder, kGroups>;
  using Reader = PairReader<Decoder, kGroups>;

  /// `fills`: shared memory for each warp.
  __device__ PanelWarp(const ExpertArguments& a, const PanelPartition& p, uint8_t* shared,
                       PanelFill* fills)
      : a_(a),
        p_(p),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / kLanes, 0)),
        reader_(a.linear.weights, shared_address(shared) + p.scale_values, lane_),
        stream_(a.linear.weights, p,
                shared_address(shared) + p.rings + warp_ * Stream::kDepth * p.slot_bytes, lane_),
        products_(shared_address(shared), shared_address(shared) + p.x_sums, lane_),
        fills_(fills) {}

  __device__ void run() {
    const WeightArguments& w = a_.linear.weights;
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.scale_values), w.scale);
    table_ = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared_ + p_.table));
    stream_.fill_constant_zeros(reader_);
    if (!a_.linear.is_dependent) griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    const Parts units = parts_of(used_tiles(a_) * p_.units, static_cast<int>(gridDim.x));
    const int begin = units.begin(static_cast<int>(blockIdx.x));
    PanelRuns runs = {p_.units, p_.batches, begin + units.size(static_cast<int>(blockIdx.x))};
    if (!runs.begin_tile(begin)) return;

    // --- fill all slots ---
    PanelRuns fill = runs;
    if (fill.left > 0 || fill.next_tile()) begin_fill(fill, expert_of(fill.tile));
#pragma unroll 1
    for (int i = 0; i < Stream::kDepth; ++i) {
      fill_slot();
      stream_.next_slot();
    }

    // --- tile after tile ---
    load_facts(runs.tile);
    if (a_.linear.is_dependent) griddepcontrol_wait();
    for (bool is_there = true; is_there; is_there = runs.begin_tile(runs.first + runs.count)) {
      if (runs.tile != tile_number_) load_facts(runs.tile);
      load_panel<Number, Decoder, kGroups>(a_.linear, rows_of_x(), tile_, p_, shared_);
      multiply_tile(runs);
    }
    cp_async_wait<0>();
  }

 private:
  __device__ int expert_of(int tile) const {
    return __ldcg(&a_.tiles[tile].expert);
  }
  /// The strip of this warp in a unit.
  __device__ int strip_of(const PanelRuns& runs, int unit) const {
    return (unit - runs.tile * p_.units) * kUnitStrips + warp_ % kUnitStrips;
  }
  __device__ RoutedRows rows_of_x() const {
    return {a_.x_rows, nullptr};
  }

  // --- weights ---

  /// The next copies are those of a run of a tile of that expert.
  __device__ void begin_fill(const PanelRuns& fill, int expert) {
    const int strip = min(strip_of(fill, fill.unit), a_.linear.weights.strips - 1);
    const int64_t offset = expert == a_.shared.number ? a_.shared.at : expert * a_.expert_bytes;
    stream_.begin_strip(offset, strip, fill.batch);
    fills_left_ = fill.run();
    if (lane_ == 0) fills_[warp_] = {fill, expert};
    __syncwarp();
  }
  /// Fills the current slot with the next batch, if there is one, and commits in any case.
  __device__ void fill_slot() {
    if (fills_left_ > 0) {
      stream_.load();
      if (--fills_left_ == 0) end_fill();
    }
    cp_async_commit();
  }
  __device__ void end_fill() {
    PanelFill fill = fills_[warp_];
    const int tile = fill.runs.tile;
    __syncwarp();
    if (!fill.runs.next_run()) return;
    if (fill.runs.tile != tile) fill.expert = expert_of(fill.runs.tile);
    begin_fill(fill.runs, fill.expert);
  }

  // --- products ---

  /// What is known of a tile of routes before its inputs.
  __device__ void load_facts(int tile) {
    tile_number_ = tile;
    tile_ = {__ldcg(&a_.tiles[tile].expert), __ldcg(&a_.tiles[tile].first),
             __ldcg(&a_.tiles[tile].count)};
    const bool is_shared = tile_.expert == a_.shared.number;
    gains_[0] = is_shared ? a_.shared.gain : a_.gains[tile_.expert];
    gains_[1] = is_shared ? a_.shared.up_gain : a_.up_gains[tile_.expert];
#pragma unroll
    for (int n = 0; n < kPanelTokens / 8; ++n) {
      const int token = n * 8 + lane_ / 4;
      y_rows_[n] = -1;
      if (token < tile_.count) {
        y_rows_[n] = a_.y_rows != nullptr ? a_.y_rows[tile_.first + token] : tile_.first + token;
      }
    }
  }

  /// The share of a tile, run after run. Afterwards all warps have read the panel.
  __device__ __forceinline__ void multiply_tile(PanelRuns& runs) {
    bool is_tail = false;
    int unit = runs.unit;
    while (runs.left > 0) {
      const int begin = runs.batch;
      const int end = begin + runs.run();
      unit = runs.unit;
      multiply_run(begin, end);
      is_tail = begin == 0 && end < runs.batches;
      if (begin > 0) {
        store_head();
      } else if (!is_tail) {
        finish(strip_of(runs, unit));
      }
      runs.left -= end - begin;
      runs.batch = 0;
      ++runs.unit;
    }
    __syncthreads();
    if (!is_tail) return;
    add_heads(runs, (unit + 1 - runs.first) * runs.batches);
    finish(strip_of(runs, unit));
  }

  __device__ __forceinline__ void multiply_run(int begin, int end) {
    if (tile_.count > 8) {
      multiply_run<16>(begin, end);
    } else {
      multiply_run<8>(begin, end);
    }
  }
  template <int kTokens>
  __device__ __forceinline__ void multiply_run(int begin, int end) {
    if (kGroups == 1 && p_.one_group != 0) {
      multiply_run<kTokens, kGroups == 1>(begin, end);
    } else {
      multiply_run<kTokens, false>(begin, end);
    }
  }
  template <int kTokens, bool kOneGroup>
  __device__ __forceinline__ void multiply_run(int begin, int end) {
    products_.clear();
#pragma unroll 1
    for (int batch = begin; batch < end; ++batch) {
      cp_async_wait<Stream::kDepth - 1>();
      __syncwarp();
      products_.template add_batch<kTokens, kOneGroup>(stream_, reader_, table_, batch, [&] {
        fill_slot();
        stream_.next_slot();
      });
    }
  }

  // --- results ---

  /// The head of warpgroup `warpgroup`, which is not the first.
  __device__ float* head(int warpgroup) const {
    return reinterpret_cast<float*>(shared_ + p_.heads) + (warpgroup - 1) * kPanelTokens / 2 * 128 +
           threadIdx.x % 128;
  }
  __device__ void store_head() const {
#pragma unroll
    for (int i = 0; i < kPanelTokens / 2; ++i) {
      head(PanelRuns::warpgroup())[i * 128] = products_.sums[i];
    }
  }
  /// Adds those of the unit that ends with batch `end` of the tile. Where there are fewer batches
  /// than warpgroups, some of these have none, and no head.
  __device__ void add_heads(const PanelRuns& runs, int end) {
    for (int from = PanelRuns::warpgroup() + 1; runs.share(from) < end; ++from) {
      if (runs.share(from) == runs.share(from + 1)) continue;
#pragma unroll
      for (int i = 0; i < kPanelTokens / 2; ++i) products_.sums[i] += head(from)[i * 128];
    }
  }

  __device__ __forceinline__ void finish(int strip) const {
    const WeightArguments& w = a_.linear.weights;
    if (strip >= w.strips) return;
    float factors[2] = {gains_[0], gains_[1]};
    if constexpr (Decoder::kHasZeros) {
      factors[0] *= 1 / Decoder::kRawFactor;
      factors[1] *= 1 / (Decoder::kRawFactor * Decoder::kRawOdd);
    }
    float biases[2] = {};
    if (a_.linear.bias != nullptr) {
      const int64_t of_expert = int64_t{tile_.expert} * w.rows;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = source_row(w.row_order, strip, lane_ / 4 + 8 * i, w.rows);
        biases[i] = load_number<Number>(a_.linear.bias, of_expert + row);
      }
    }
#pragma unroll
    for (int n = 0; n < kPanelTokens / 8; ++n) {
      if (n * 8 >= tile_.count) break;
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = fmaf(products_.sums[4 * n + i], factors[i / 2], biases[i / 2]);
      }
      store(strip, y_rows_[n], v);
    }
  }

  /// Rows g and g + 8 of two tokens become four outputs of the token that is row `row` of y.
  __device__ __forceinline__ void store(int strip, int row, float (&v)[4]) const {
    const LinearArguments& a = a_.linear;
    const bool is_gated = a.activation != Activation::kNone;
    if (is_gated) {
      v[0] = gated(a.activation, a.swiglu, v[0], v[2]);
      v[1] = gated(a.activation, a.swiglu, v[1], v[3]);
    }
    const uint32_t low = transpose_8x8(packed(v[0], v[1]));
    const uint32_t high = transpose_8x8(packed(v[2], v[3]));
    if (row < 0) return;
    uint16_t* const y = static_cast<uint16_t*>(a.y) + row * a.y_stride + lane_ % 4 * 2 +
                        strip * (is_gated ? kStripRows / 2 : kStripRows);
    *reinterpret_cast<uint32_t*>(y) = low;
    if (!is_gated) *reinterpret_cast<uint32_t*>(y + 8) = high;
  }
  __device__ uint32_t packed(float low, float high) const {
    return a_.linear.y_is_other ? OtherOf<Number>::Type::pack_x2(low, high)
                                : Number::pack_x2(low, high);
  }

  const ExpertArguments& a_;
  const PanelPartition& p_;
  uint8_t* const shared_;
  const int lane_;
  const int warp_;
  const Reader reader_;
  Stream stream_;
  PanelProducts<Number, Decoder, kGroups> products_;
  Table table_;

  PanelFill* const fills_;  // [warp], in shared memory
  int fills_left_ = 0;      // of the run that is copied

  int tile_number_;
  ExpertTile tile_;
  float gains_[2];
  int y_rows_[kPanelTokens / 8];  // -1: there is no such token
};

template <class Number, class Decoder, int kGroups>
__global__ void __launch_bounds__(kPanelThreads, 1)
    experts_panel_kernel(const __grid_constant__ ExpertArguments a,
                         const __grid_constant__ PanelPartition p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t unaligned[];
  __shared__ PanelFill fills[kPanelThreads / kLanes];
  uint8_t* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  PanelWarp<Number, Decoder, kGroups>(a, p, shared, fills).run();
#endif
}

}  // namespace subbyte::cuda
