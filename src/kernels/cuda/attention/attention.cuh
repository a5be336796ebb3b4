#pragma once
// The pieces of attention that do not touch the cache: the rows of a task, the softmax partials of
// a warp.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kAttentionWarps = 4;

/// The first key that the token at `position` sees.
__device__ inline int first_key(const AttentionCall& a, int position) {
  if (a.window == 0) return 0;
  if (a.in_chunks) return position - position % a.window;
  return max(0, position - a.window + 1);
}

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
    first = exists ? first_key(a, last) : 0;
  }
};

/// What this CTA has of the values of heads.
struct ValuePart {
  int dim;
  int first;

  __device__ explicit ValuePart(const AttentionCall& a)
      : dim(a.value_dim() / a.value_parts()), first(static_cast<int>(blockIdx.z) * dim) {}
};

/// Keys that all of 16 rows see, which need no mask. Rows that do not exist are never stored.
struct SeenByAll {
  int first, last;

  __device__ SeenByAll(const AttentionCall& a, const AttentionTask& task, int first_row) {
    const AttentionRow row(a, task, first_row);
    const AttentionRow last_row(a, task, first_row + 15);
    last = row.last;
    first = first_key(a, row.last + last_row.token_in_part - row.token_in_part);
  }

  __device__ bool has(int key, int count) const { return key >= first && key + count - 1 <= last; }
};

/// Scores s, times `scale`, as cap * tanh(s / cap).
template <int kTiles>
__device__ void cap_scores(float (&scores)[kTiles][4], float scale, float cap) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[j][e] = cap * tanhf(scores[j][e] * scale / cap);
  }
}

/// What a lane has of the weights of the keys [16 j, 16 j + 16) is what mma takes from it.
template <class Number, int kTiles>
__device__ void pack_weights(uint32_t (&a)[4], const float (&weights)[kTiles][4], int j) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    a[2 * i] = Number::pack_x2(weights[2 * j + i][0], weights[2 * j + i][1]);
    a[2 * i + 1] = Number::pack_x2(weights[2 * j + i][2], weights[2 * j + i][3]);
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
  __device__ void update_softmax(float (&scores)[kTiles][4], const AttentionRow (&rows)[2], int key,
                                 float scale) {
    float shrink[2];
    weigh<kTiles, kMasked>(scores, rows, key, scale, shrink);
    scale_values(shrink);
  }

  /// The same but for the values, which are to be scaled by `shrink`.
  template <int kTiles, bool kMasked>
  __device__ void weigh(float (&scores)[kTiles][4], const AttentionRow (&rows)[2], int key,
                        float scale, float (&shrink)[2]) {
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
      shrink[h] = exp2f(largest[h] - base);
      largest[h] = most;
      sums[h] *= shrink[h];
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

  __device__ void scale_values(const float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int j = 0; j < kMaxDim / 8; ++j) {
        values[j][2 * h] *= shrink[h];
        values[j][2 * h + 1] *= shrink[h];
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
  const ValuePart part(a);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!rows[h].exists) continue;
    const WithSink sink(a, rows[h].head, partials.largest[h]);
    const float shrink = exp2f(partials.largest[h] - sink.largest);
    const float factor = shrink / (partials.sums[h] * shrink + sink.weight);
    const int64_t at =
        rows[h].token * a.y_stride() + rows[h].head * a.y_step() + part.first + 2 * t;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= part.dim) break;
      store_element(a.element, a.y, at + 8 * n, partials.values[n][2 * h] * factor);
      store_element(a.element, a.y, at + 8 * n + 1, partials.values[n][2 * h + 1] * factor);
    }
  }
}

}  // namespace subbyte::cuda
