#pragma once
// The pieces of attention.cu: rows of queries and keys in shared memory, the softmax partials of a
// warp.

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/tf32.cuh"
#include "kernels/kv_e4m3.h"

namespace subbyte::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kAttentionWarps = 4;

/// kSplit and kPrompt of attention.h. kKeys of a tile in shared memory lie in one page.
template <bool kIsSplit>
struct AttentionShapeOf {
  static constexpr int kRows = kIsSplit ? kSplitRows : kPromptRows;
  static constexpr int kKeys = kIsSplit ? 64 : 32;
  static constexpr int kKeysOfWarp = kIsSplit ? 16 : 32;
};

/// Floats from a row of queries, keys or values to the next: fragments of mma read all banks once.
__host__ __device__ constexpr int attention_stride(int head_dim) {
  return head_dim + 4;
}

template <bool kIsSplit>
__host__ __device__ constexpr int attention_shared_bytes(int head_dim) {
  using Shape = AttentionShapeOf<kIsSplit>;
  return (Shape::kRows + 2 * Shape::kKeys) * attention_stride(head_dim) * 4;
}

/// Elements [i, i + 8) of a run of the cache, as they lie in memory.
struct Eight {
  uint4 low;   // of e4m3 eight bytes and the code of their scale
  uint4 high;  // of f32

  /// `scale_at` is where e4m3 has the scale.
  __device__ void load(Element element, const std::byte* run, int64_t i, int scale_at) {
    if (element == Element::kE4M3) {
      const uint2 codes = *reinterpret_cast<const uint2*>(run + i);
      low = {codes.x, codes.y, static_cast<uint32_t>(run[scale_at]), 0};
      return;
    }
    const uint4* const p = reinterpret_cast<const uint4*>(run + i * element_bytes(element));
    low = p[0];
    if (element == Element::kF32) high = p[1];
  }

  /// In tf32 they are exact.
  __device__ void store_e4m3(float* to) const {
    const float factor = __uint_as_float(e4m3::factor_bits(low.z));
    const uint32_t words[2] = {low.x, low.y};
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint8_t code = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
      values[i] = gpu::F16::to_float(e4m3::f16_bits(code)) * factor;
    }
    reinterpret_cast<float4*>(to)[0] = {values[0], values[1], values[2], values[3]};
    reinterpret_cast<float4*>(to)[1] = {values[4], values[5], values[6], values[7]};
  }

  __device__ void store_tf32(Element element, float* to) const {
    if (element == Element::kE4M3) return store_e4m3(to);
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = element == Element::kF32
                      ? to_tf32(__uint_as_float(words[i]))
                      : to_float(element, static_cast<uint16_t>(words[i / 2] >> 16 * (i % 2)));
    }
    reinterpret_cast<float4*>(to)[0] = {values[0], values[1], values[2], values[3]};
    reinterpret_cast<float4*>(to)[1] = {values[4], values[5], values[6], values[7]};
  }
};

/// Where a row of a task is.
struct AttentionRow {
  bool exists;
  int token_in_part;
  int64_t token;  // a row of qkv and y
  int head;
  int first, last;  // keys that it sees

  __device__ AttentionRow(const AttentionCall& a, const AttentionTask& task, int row) {
    const int q_per_kv = a.heads / a.kv_heads;
    const int of_part = task.first_row + row;
    token_in_part = of_part / q_per_kv;
    exists = token_in_part < task.num_tokens;
    token = task.first_token + token_in_part;
    head = static_cast<int>(blockIdx.y) * q_per_kv + of_part % q_per_kv;
    last = exists ? task.position + token_in_part : -1;
    first = a.window > 0 ? max(0, last - a.window + 1) : 0;
  }
};

/// Keys that all of 16 rows see, which need no mask. Rows that do not exist are never stored.
struct SeenByAll {
  int first, last;

  __device__ SeenByAll(const AttentionCall& a, const AttentionTask& task, int first_row) {
    const AttentionRow row(a, task, first_row);
    const AttentionRow last_row(a, task, first_row + 15);
    last = row.last;
    first = a.window > 0
                ? max(0, row.last + last_row.token_in_part - row.token_in_part - a.window + 1)
                : 0;
  }

  __device__ bool has(int key, int count) const { return key >= first && key + count - 1 <= last; }
};

/// Rows that do not exist are zero.
template <int kRows>
__device__ void load_queries(float* to, const AttentionCall& a, const AttentionTask& task) {
  const int eights = a.head_dim / 8;
  for (int i = threadIdx.x; i < kRows * eights; i += kAttentionThreads) {
    const AttentionRow row(a, task, i / eights);
    const int col = i % eights * 8;
    float values[8] = {};
    if (row.exists) {
      load_8(a.element, a.qkv, row.token * a.qkv_stride + row.head * a.head_dim + col, values);
    }
    float* const out = to + i / eights * attention_stride(a.head_dim) + col;
    reinterpret_cast<float4*>(out)[0] = {values[0], values[1], values[2], values[3]};
    reinterpret_cast<float4*>(out)[1] = {values[4], values[5], values[6], values[7]};
  }
}

/// Keys and values from `key` on; those before `first` and outside of the task are zero, whatever
/// the cache holds. Loads are in flight kBatch at a time of both.
template <int kKeys>
__device__ void load_keys_and_values(float* keys, float* values, const AttentionCall& a,
                                     const AttentionTask& task, int first, int key) {
  constexpr int kBatch = 4;
  const int page = a.pages[task.pages_begin + key / kPagePositions];
  const std::byte* const run = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin +
                               2 * static_cast<int>(blockIdx.y) * a.cache.run_bytes;
  const int64_t begin = int64_t{key % kPagePositions} * a.head_dim;
  const int eights = a.head_dim / 8;
  const int stride = attention_stride(a.head_dim);
  for (int i = threadIdx.x; i < kKeys * eights; i += kBatch * kAttentionThreads) {
    Eight loaded[kBatch][2];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int at = i + j * kAttentionThreads;
      const int row = key + at / eights;
      loaded[j][0] = loaded[j][1] = {};
      if (at >= kKeys * eights || row < first || row >= task.end) continue;
      const int64_t element = begin + int64_t{at} * 8;
      const int scale_at = kPagePositions * a.head_dim + key % kPagePositions + at / eights;
      loaded[j][0].load(a.cache.element, run, element, scale_at);
      loaded[j][1].load(a.cache.element, run + a.cache.run_bytes, element, scale_at);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int at = i + j * kAttentionThreads;
      if (at >= kKeys * eights) continue;
      const int to = at / eights * stride + at % eights * 8;
      loaded[j][0].store_tf32(a.cache.element, keys + to);
      loaded[j][1].store_tf32(a.cache.element, values + to);
    }
  }
}

/// The softmax partials of 16 rows. A lane has rows g = lane / 4 and g + 8 and of these elements
/// 8j + 2t and 8j + 2t + 1 (t = lane % 4).
template <int kMaxDim>
struct SoftmaxPartials {
  float largest[2] = {-INFINITY, -INFINITY};  // of the scores, in powers of two
  float sums[2] = {};                         // of this lane's keys alone, until finish()
  float values[kMaxDim / 8][4] = {};

  /// Scores of 8 kTiles keys from `key` on, times `scale`: masked where not all rows see all of
  /// them, turned into weights; what was added before is scaled.
  template <int kTiles, bool kMasked>
  __device__ void weigh(float (&scores)[kTiles][4], const AttentionRow (&rows)[2], int key,
                        float scale) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = largest[h];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = key + 8 * j + 2 * t + e;
          float& score = scores[j][2 * h + e];
          const bool is_seen = !kMasked || (at >= rows[h].first && at <= rows[h].last);
          score = is_seen ? score * scale : -INFINITY;
          most = fmaxf(most, score);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float base = most == -INFINITY ? 0 : most;
      const float shrink = exp2f(largest[h] - base);
      largest[h] = most;
      sums[h] *= shrink;
#pragma unroll
      for (int j = 0; j < kMaxDim / 8; ++j) {
        values[j][2 * h] *= shrink;
        values[j][2 * h + 1] *= shrink;
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[j][2 * h + e];
          score = exp2f(score - base);
          sums[h] += score;
        }
      }
    }
  }

  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sums[h] += __shfl_xor_sync(~0u, sums[h], 1);
      sums[h] += __shfl_xor_sync(~0u, sums[h], 2);
    }
  }
};

/// The largest score with the sink, which takes part in the softmax.
struct WithSink {
  float largest;
  float weight;  // of the sink

  __device__ WithSink(const AttentionCall& a, int head, float most) {
    const float sink = a.sinks != nullptr ? a.sinks[head] * kLog2E : -INFINITY;
    largest = fmaxf(most, sink);
    weight = a.sinks != nullptr ? exp2f(sink - largest) : 0;
  }
};

/// The results of a warp's rows.
template <int kMaxDim>
__device__ void store_rows(const AttentionCall& a, const SoftmaxPartials<kMaxDim>& partials,
                           const AttentionRow (&rows)[2]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!rows[h].exists) continue;
    const WithSink sink(a, rows[h].head, partials.largest[h]);
    const float shrink = exp2f(partials.largest[h] - sink.largest);
    const float factor = shrink / (partials.sums[h] * shrink + sink.weight);
    const int64_t at = (rows[h].token * a.heads + rows[h].head) * a.head_dim + 2 * t;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= a.head_dim) break;
      store_element(a.element, a.y, at + 8 * n, partials.values[n][2 * h] * factor);
      store_element(a.element, a.y, at + 8 * n + 1, partials.values[n][2 * h + 1] * factor);
    }
  }
}

}  // namespace subbyte::cuda
