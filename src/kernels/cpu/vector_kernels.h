#pragma once
// What happens between the matrix products, for one instruction set: attention, norms, rotary
// embedding, gates. A table of functions like cpu_kernels.h, float32 throughout. Results depend
// on the arguments alone, never on alignment or on how the caller divides its work.

#include <cstdint>

#include "base/operands.h"
#include "base/token_weight.h"

namespace subbyte::cpu {

struct BlockKernels;  // block_kernels.h

/// Partial results that may be merged.
inline constexpr int64_t kMaxAttentionSplits = 64;

/// Some query rows of one key-value head against some positions of its cache, which is in pages:
/// page i begins at cache + i * page_bytes, position p lies in page pages[p / kPagePositions], and
/// there the keys of this head begin at byte `keys` and its values at byte `values`, each
/// [kPagePositions][head_dim], after which e4m3 has its [kPagePositions] scales. The query heads
/// that share that head are `q_per_kv` neighbours; row r is token r / q_per_kv, head r % q_per_kv
/// of them. Row r sees the positions up to first_position + r / q_per_kv, and of these only the
/// last `window` when that is not 0, or those from the last multiple of `window` on.
struct AttentionTile {
  const float* q = nullptr;  // row 0
  int64_t q_stride = 0;      // floats from one token to the next; heads are head_dim apart
  int64_t q_per_kv = 1;
  int64_t row_begin = 0;
  int64_t row_end = 0;  // at most attention_rows after row_begin
  const uint8_t* cache = nullptr;
  int64_t page_bytes = 0;
  const int32_t* pages = nullptr;
  int64_t keys = 0;
  int64_t values = 0;
  int64_t head_dim = 0;
  float scale = 1;
  float cap = 0;  // scores become cap * tanh(scale * score / cap); 0: scale * score
  int64_t first_position = 0;
  int64_t window = 0;
  bool in_chunks = false;
  int64_t begin = 0;  // positions outside [begin, end) are left to other calls
  int64_t end = 0;
  float* partials = nullptr;  // one for each row, attention_partial_floats(head_dim) apart
  float* scratch = nullptr;   // attention_scratch_floats(head_dim)
};

/// The gated delta rule over tokens of one head, for some columns of its state. The columns of a
/// state are apart from each other, so that results do not depend on how they are divided.
///
///   S = decay S;  S = S + k (beta (v - S^T k))^T;  y = S^T q
///
/// or, where it does not correct, S = decay S + k (beta v)^T: a state-space model (Mamba 2).
struct DeltaRule {
  bool corrects = true;
  float* state = nullptr;  // [keys], rows of `columns` that are state_stride apart
  int64_t state_stride = 0;
  int64_t keys = 0;
  int64_t columns = 0;
  int64_t tokens = 0;
  // Of token 0, and how far the next one is.
  const float* q = nullptr;  // [keys]
  const float* k = nullptr;
  int64_t key_stride = 0;
  const float* v = nullptr;  // [columns]
  int64_t v_stride = 0;
  float* y = nullptr;  // [columns]
  int64_t y_stride = 0;
  const float* decay = nullptr;
  const float* beta = nullptr;
  int64_t gate_stride = 0;
  /// [keys][kDeltaScratchColumns], at a multiple of 64 bytes, or nullptr. In chunks as many floats
  /// as DeltaChunks says.
  float* scratch = nullptr;
};

/// The recurrence in chunks of tokens, which are products of matrices: for many tokens, of which
/// the bits of each depend on where the first one is. scratch_floats(): 0 for heads that it does
/// not take; nullptr: there is no such form.
struct DeltaChunks {
  int64_t (*scratch_floats)(int64_t keys, int64_t columns) = nullptr;
  void (*run)(const DeltaRule& rule) = nullptr;
  int64_t min_tokens = 0;  // from which on it is faster
};

/// Columns of a state that lie together while many tokens go through them, at most.
inline constexpr int64_t kDeltaScratchColumns = 64;

struct VectorKernels {
  int64_t attention_rows;  // that an AttentionTile may have
  /// Floats of a softmax partial: the accumulated weighted values, then the largest score and the
  /// sum of weights relative to it.
  int64_t (*attention_partial_floats)(int64_t head_dim);
  int64_t (*attention_scratch_floats)(int64_t head_dim);
  void (*attend[kNumElements])(const AttentionTile& tile);
  /// out[head_dim] from `count` partials that lie `stride` floats apart, in their order. `sink` may
  /// be nullptr; else exp(*sink) joins the denominator.
  void (*merge_attention)(float* out, const float* partials, int64_t count, int64_t stride,
                          const float* sink, int64_t head_dim);

  /// y = e^x within 3 * 2^-24 of the exact value, and half of the smallest denormal number.
  /// Overflows to infinity; NaN stays.
  void (*exp)(float* y, const float* x, int64_t n);
  /// y = x / sqrt(mean(x^2) + eps) * weight, the mean accumulated in double precision; y may be x.
  void (*rms_norm)(float* y, const float* x, const float* weight, int64_t n, float eps);
  /// x += delta, then the same; y may not be x.
  void (*add_rms_norm)(float* y, float* x, const float* delta, const float* weight, int64_t n,
                       float eps);
  /// One head: rms_norm unless `weight` is nullptr, then element i and n/2 + i turn together by the
  /// angle of cos[i], sin[i], i < n/2. The last element of an odd head stays. out may be x.
  void (*norm_rotate)(float* out, const float* x, const float* weight, float eps, const float* cos,
                      const float* sin, int64_t n);
  /// y = x in the type that the cache has, rounded to nearest, ties to even. `scale` gets that of
  /// e4m3 (kernels/kv_e4m3.h); the other types have none, and do not touch it.
  void (*store_kv[kNumElements])(uint8_t* y, uint8_t* scale, const float* x, int64_t n);
  /// gate = gate / (1 + exp(-gate)) * up
  void (*silu_gate)(float* gate, const float* up, int64_t n);
  /// gate = gelu(gate) * up, gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
  void (*gelu_gate)(float* gate, const float* up, int64_t n);
  /// x = cap * tanh(factor * x / cap)
  void (*soft_cap)(float* x, int64_t n, float factor, float cap);
  /// g = min(gate_up[2i], limit), u = clamp(gate_up[2i+1], -limit, limit),
  /// out[i] = g / (1 + exp(-alpha g)) * (u + up_offset)
  void (*clamped_swiglu)(float* out, const float* gate_up, int64_t n, float alpha, float limit,
                         float up_offset);
  /// y = x / (1 + exp(-gate)); y may be x
  void (*sigmoid_gate)(float* y, const float* x, const float* gate, int64_t n);
  /// y[i] = s / (1 + exp(-s)), s = the sum of filters[t][i] * x[t][i] from t = 0 on
  void (*convolve_silu)(float* y, const float* const* x, const float* const* filters, int64_t taps,
                        int64_t n);
  /// Weights of n candidates beside the best logit, the same bits everywhere; their sum.
  uint64_t (*weigh_tokens)(TokenCandidate* candidates, int64_t n, float best, double temperature);
  void (*delta_rule)(const DeltaRule& rule);
  DeltaChunks delta_chunks;    // as precise as the rule, or nearly so
  const BlockKernels* blocks;  // quantizing and dequantizing
};

}  // namespace subbyte::cpu
