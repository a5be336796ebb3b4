// A CTA has a task and a head of keys, each warp a run of 16 keys (key_run.cuh). Keys and values
// go from the cache straight to registers. Warps take runs in turns, each with the next one on its
// way, and add their partials in order. The first is asked for before the kernel that gives q, k
// and v has ended.

#include "kernels/cuda/attention/attend_batch.h"

#include "kernels/cuda/attention/attention_merge.cuh"
#include "kernels/cuda/attention/head_quarters.cuh"
#include "kernels/cuda/attention/key_run.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kMaxQueries = 8;
constexpr int kWarpsOfMultiprocessor = 16;

/// Within two units; results below 2^-126 are zero.
__device__ __forceinline__ float exp2_of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Shared memory of a CTA: the queries of a head of keys, the token's own key and value; then of
/// each warp what it has found of them.
template <int kWarps, int kDim>
struct BatchShared {
  static constexpr int kStride = kDim + 8;       // of numbers
  static constexpr int kValueStride = kDim + 4;  // of floats

  alignas(16) uint16_t heads[kMaxQueries + 2][kStride];
  float largest[kWarps][kMaxQueries];
  float sums[kWarps][kMaxQueries];
  alignas(16) float values[kWarps][kMaxQueries][kValueStride];
};

template <class Number, int kWarps, int kDim>
class BatchAttend {
 public:
  using Shared = BatchShared<kWarps, kDim>;
  using Run = KeyRun<Number, kDim>;

  __device__ BatchAttend(const RotateCall& r, const AttentionCall& a, const AttentionTask& task,
                         Shared& shared)
      : r_(r),
        a_(a),
        task_(task),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        kv_head_(static_cast<int>(blockIdx.y)),
        q_per_kv_(a.heads / a.kv_heads),
        last_(task.position),
        first_(first_key(a, task.position)),
        begin_(max(task.begin, first_ / kRunKeys * kRunKeys)),
        end_(min(task.end, task.position + 1)) {
    run_.clear_results();
  }

  __device__ void run() {
    int key = begin_ + warp_ * kRunKeys;
    load_pages(begin_ / kPagePositions);
    if (begin_ + warp_ * kRunKeys < end_) {
      const Rows rows = rows_of_run(key);
      load_keys(rows);
      load_values(rows);
    }
    begin_operation();
    prepare();
    __syncthreads();
#pragma unroll 1
    while (key < end_) {
      const int next = key + kWarps * kRunKeys;
      if (last_ - key < kRunKeys) take_own(key);
      float scores[4];
      run_.multiply_keys(scores, [&](int block) { return query(block); });
      if (next / kPagePositions - first_page_ >= kLanes) load_pages(next / kPagePositions);
      const Rows rows = rows_of_run(min(next, end_ - 1));
      if (next < end_) load_keys(rows);
      weigh(scores, key);
      run_.add_values(scores);
      if (next < end_) load_values(rows);
      key = next;
    }
    leave_partials();
    __syncthreads();
    finish();
  }

 private:
  // --- queries, and the token's own key and value

  /// Some lanes for each head of queries; where the task has the token's own key, some for that and
  /// some for the value, which go to the cache, too.
  __device__ void prepare() const {
    constexpr int kLanesOfHead = kDim / 8;
    constexpr int kHeadsOfWarp = kLanes / kLanesOfHead;
    const int heads = q_per_kv_ + (end_ > last_ ? 2 : 0);
#pragma unroll 1
    for (int first = warp_ * kHeadsOfWarp; first < heads; first += kWarps * kHeadsOfWarp) {
      const int head = first + lane_ / kLanesOfHead;
      prepare_head(min(head, heads - 1), head < heads);  // the lanes of a warp stay together
    }
  }

  __device__ void prepare_head(int head, bool is_there) const {
    constexpr int kHalf = kDim / 2;
    const int element = lane_ % (kDim / 8) * 4;
    const int other = head - q_per_kv_;  // 0 the key, 1 the value
    const int of_row = other < 0    ? kv_head_ * q_per_kv_ + head
                       : other == 0 ? a_.heads + kv_head_
                                    : a_.heads + a_.kv_heads + kv_head_;
    const int64_t row = task_.first_token;
    Quarters x;
    x.load(a_.element, a_.qkv, row * a_.qkv_stride + of_row * kDim + element, kHalf);
    normalise_and_turn<kDim>(
        x, other < 1,
        {other < 0 ? r_.q_norm : r_.k_norm, r_.eps, r_.cos + row * kHalf, r_.sin + row * kHalf});
    if (!is_there) return;
    x.store(a_.element, shared_.heads[other < 0 ? head : kMaxQueries + other], element, kHalf);
    if (other < 0) return;
    const int page = a_.pages[task_.pages_begin + last_ / kPagePositions];
    x.store(a_.element, run_of(page) + other * a_.cache.run_bytes,
            int64_t{last_ % kPagePositions} * kDim + element, kHalf);
  }

  // --- the cache

  /// Lane i has the page after `first` by i, of those of the task.
  __device__ void load_pages(int first) {
    first_page_ = first;
    page_ = __ldg(a_.pages + task_.pages_begin + min(first + lane_, (end_ - 1) / kPagePositions));
  }
  /// Keys of this head in a page; values follow.
  __device__ std::byte* run_of(int page) const {
    return a_.cache.pages + page * a_.cache.page_bytes + a_.cache.layer_begin +
           2 * kv_head_ * a_.cache.run_bytes;
  }

  /// A run of keys in the cache, of which those from `first` to `last` are there and seen.
  struct Rows {
    const std::byte* keys;
    int first, last;

    __device__ bool are_all() const { return first == 0 && last >= kRunKeys - 1; }
  };
  __device__ Rows rows_of_run(int key) const {
    const int page = __shfl_sync(~0u, page_, key / kPagePositions - first_page_);
    return {run_of(page) + key % kPagePositions * kRowBytes, max(0, first_ - key), last_ - 1 - key};
  }

  /// Elements of a key of a run, or of its value. Keys that are not seen are another one's again,
  /// whose weights are zero; where there is none, zeros, whatever memory holds.
  __device__ uint4 load(const Rows& rows, int key, const std::byte* from) const {
    if (rows.last < rows.first) return {};
    const int row = min(max(key, rows.first), rows.last);
    return load(from + row * kRowBytes);
  }
  static __device__ uint4 load(const std::byte* from) {
    return __ldcg(reinterpret_cast<const uint4*>(from));
  }
  __device__ void load_keys(const Rows& rows) {
    const std::byte* const from = rows.keys + Run::element_of_key(lane_, 0) * 2;
    const auto load_all = [&](const auto& of_key) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int b = 0; b < Run::kBlocks; ++b) run_.keys[b][h] = of_key(h, b * 64);
      }
    };
    if (rows.are_all()) {
      const std::byte* const own = from + lane_ / 4 * kRowBytes;
      load_all([&](int h, int offset) { return load(own + h * 8 * kRowBytes + offset); });
    } else {
      load_all([&](int h, int offset) { return load(rows, Run::key(lane_, h), from + offset); });
    }
  }
  __device__ void load_values(const Rows& rows) {
    const std::byte* const from =
        rows.keys + a_.cache.run_bytes + Run::element_of_value(lane_, 0) * 2;
    const auto load_all = [&](const auto& of_value) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int h = 0; h < Run::kHalves; ++h) run_.values[i][h] = of_value(i, h * 128);
      }
    };
    if (rows.are_all()) {
      const std::byte* const own = from + Run::value(lane_, 0) * kRowBytes;
      load_all(
          [&](int i, int offset) { return load(own + (i % 2 + i / 2 * 8) * kRowBytes + offset); });
    } else {
      load_all([&](int i, int offset) { return load(rows, Run::value(lane_, i), from + offset); });
    }
  }

  /// The token's own key and value, which are in shared memory.
  __device__ void take_own(int key) {
    const int of_run = last_ - key;
    const uint16_t* const own = shared_.heads[kMaxQueries];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int b = 0; b < Run::kBlocks; ++b) {
        take(of_run == Run::key(lane_, h), run_.keys[b][h], own + Run::element_of_key(lane_, b));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int h = 0; h < Run::kHalves; ++h) {
        take(of_run == Run::value(lane_, i), run_.values[i][h],
             own + Shared::kStride + Run::element_of_value(lane_, h));
      }
    }
  }
  static __device__ void take(bool is_own, uint4& to, const uint16_t* from) {
    if (is_own) to = *reinterpret_cast<const uint4*>(from);
  }

  // --- a run of 16 keys

  /// Of query g; whatever is there for queries that do not exist.
  __device__ uint4 query(int block) const {
    return *reinterpret_cast<const uint4*>(
        &shared_.heads[lane_ / 4][Run::element_of_key(lane_, block)]);
  }

  /// Scores turned into weights; what was added before is scaled where larger ones come.
  __device__ void weigh(float (&scores)[4], int key) {
    const float scale = a_.scale * kLog2E;
    const bool all_see = key >= first_ && key + kRunKeys - 1 <= last_;
    float shrink[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float most = run_.largest[c];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = key + Run::key(lane_, h);
        float& score = scores[2 * h + c];
        score = all_see || (at >= first_ && at <= last_) ? score * scale : -INFINITY;
        most = fmaxf(most, score);
      }
#pragma unroll
      for (int distance = 4; distance < kLanes; distance *= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
      }
      const float base = most == -INFINITY ? 0 : most;
      shrink[c] = exp2_of(run_.largest[c] - base);
      run_.largest[c] = most;
      scores[c] = exp2_of(scores[c] - base);
      scores[2 + c] = exp2_of(scores[2 + c] - base);
      run_.sums[c] = run_.sums[c] * shrink[c] + scores[c] + scores[2 + c];
    }
    if (!__any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) run_.scale_results(c, shrink[c]);
  }

  // --- sums over warps

  __device__ int runs() const {
    return (end_ - begin_ + kRunKeys - 1) / kRunKeys;
  }

  /// Of this warp, if it had keys.
  __device__ void leave_partials() {
    if (warp_ >= runs()) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      run_.finish_sum(c);
      const int query = lane_ % 4 * 2 + c;
      if (lane_ < 4) {
        shared_.largest[warp_][query] = run_.largest[c];
        shared_.sums[warp_][query] = run_.sums[c];
      }
      if (query >= q_per_kv_) continue;
#pragma unroll
      for (int h = 0; h < Run::kHalves; ++h) {
        run_.store_results(&shared_.values[warp_][query][Run::element_of_value(lane_, h)], h, c);
      }
    }
  }

  /// A thread for four elements of a query: over all warps in their order.
  __device__ void finish() const {
    const int warps = min(kWarps, runs());
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < q_per_kv_ * (kDim / 4); i += kWarps * kLanes) {
      const int query = i / (kDim / 4);
      const int element = i % (kDim / 4) * 4;
      float largest = -INFINITY;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w < warps) largest = fmaxf(largest, shared_.largest[w][query]);
      }
      const float base = largest == -INFINITY ? 0 : largest;
      float sum = 0;
      float4 all = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w >= warps) break;
        const float factor = exp2_of(shared_.largest[w][query] - base);
        const float4 v = *reinterpret_cast<const float4*>(&shared_.values[w][query][element]);
        sum = fmaf(shared_.sums[w][query], factor, sum);
        all = {fmaf(v.x, factor, all.x), fmaf(v.y, factor, all.y), fmaf(v.z, factor, all.z),
               fmaf(v.w, factor, all.w)};
      }
      store(query, element, all, largest, sum);
    }
  }

  /// The results, or a partial as merge_partials() reads it.
  __device__ void store(int query, int element, const float4& all, float largest, float sum) const {
    const int head = kv_head_ * q_per_kv_ + query;
    if (task_.partial < 0) {
      const WithSink sink(a_, head, largest);
      const float shrink = exp2_of(largest - sink.largest);
      const float factor = shrink / (sum * shrink + sink.weight);
      const int64_t at = int64_t{task_.first_token} * a_.y_stride() + head * kDim + element;
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(a_.y) + at) = {
          pack_x2(a_.element, all.x * factor, all.y * factor),
          pack_x2(a_.element, all.z * factor, all.w * factor)};
      return;
    }
    float* const partial = partial_at(a_, task_.partial);
    *reinterpret_cast<float4*>(partial + query * kDim + element) = all;
    if (element > 0) return;
    partial[kSplitRows * kDim + query] = largest;
    partial[kSplitRows * kDim + kSplitRows + query] = sum;
  }

  static constexpr int kRowBytes = kDim * 2;  // of the cache

  const RotateCall& r_;
  const AttentionCall& a_;
  const AttentionTask& task_;
  Shared& shared_;
  const int warp_;
  const int lane_;
  const int kv_head_;
  const int q_per_kv_;
  const int last_, first_;  // keys that the token sees
  const int begin_, end_;   // those of the task
  int first_page_ = 0, page_ = 0;
  Run run_;
};

template <class Number, int kWarps, int kDim>
__global__ void __launch_bounds__(kWarps* kLanes, kWarpsOfMultiprocessor / kWarps)
    attend_batch(const __grid_constant__ RotateCall r, const __grid_constant__ AttentionCall a) {
  extern __shared__ uint4 shared_memory[];
  const AttentionTask task = a.split[blockIdx.x];
  if (task.num_tokens == 0) return;
  BatchAttend<Number, kWarps, kDim>(r, a, task,
                                    *reinterpret_cast<BatchShared<kWarps, kDim>*>(shared_memory))
      .run();
}

template <class Number, int kWarps, int kDim>
void launch_batch(const RotateCall& r, const AttentionCall& a, int64_t num_tasks, Stream stream) {
  constexpr int kBytes = static_cast<int>(sizeof(BatchShared<kWarps, kDim>));
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(a.kv_heads));
  launch_large<attend_batch<Number, kWarps, kDim>>({grid, kWarps * kLanes, kBytes}, stream, r, a);
}

/// So many warps that all CTAs run at once, or four.
template <class Number, int kDim>
void launch_for_ctas(const RotateCall& r, const AttentionCall& a, int64_t num_tasks,
                     int multiprocessors, Stream stream) {
  const int64_t ctas = num_tasks * a.kv_heads;
  if (ctas <= multiprocessors) return launch_batch<Number, 16, kDim>(r, a, num_tasks, stream);
  if (ctas <= 2 * multiprocessors) return launch_batch<Number, 8, kDim>(r, a, num_tasks, stream);
  launch_batch<Number, 4, kDim>(r, a, num_tasks, stream);
}

template <class Number>
void launch_for_dim(const RotateCall& r, const AttentionCall& a, int64_t num_tasks,
                    int multiprocessors, Stream stream) {
  if (a.head_dim == 64) {
    return launch_for_ctas<Number, 64>(r, a, num_tasks, multiprocessors, stream);
  }
  launch_for_ctas<Number, 128>(r, a, num_tasks, multiprocessors, stream);
}

}  // namespace

bool serves_batch(const RotateCall& rotate, const AttentionCall& attention) {
  const bool is_plain = attention.values_in_keys == 0 && attention.cap == 0 &&
                        attention.selected == nullptr && attention.num_prompt == 0;
  return is_plain && turns_halves(rotate) && rotate.kv_heads > 0 &&
         serves_batch_heads(attention.heads / attention.kv_heads, attention.head_dim) &&
         attention.cache.element == attention.element;
}

void run_batch_tasks(const RotateCall& rotate, const AttentionCall& attention, int64_t num_tasks,
                     int multiprocessors, Stream stream) {
  if (attention.element == Element::kF16) {
    return launch_for_dim<gpu::F16>(rotate, attention, num_tasks, multiprocessors, stream);
  }
  launch_for_dim<gpu::BF16>(rotate, attention, num_tasks, multiprocessors, stream);
}

}  // namespace subbyte::cuda
