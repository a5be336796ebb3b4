#pragma once
// What the kernels of gated delta nets share. The bits of a token must not depend on which of them
// computes it, so each sum has one order, and no product and sum are joined but where fmaf says so.
//
// The state of a value head in a warp: eight columns, each with its keys over eight lanes. Lane 8 c
// + l has columns 2 c and 2 c + 1, and of every 32 keys those from 4 l on:
//
//   keys       0 .. 3 | 4 .. 7 | ... | 28 .. 31 | 32 .. 35 | ...
//   lane l       0    |   1    | ... |    7     |    0     | ...
//
// so that a float4 of a key is read by the eight lanes side by side, and the four c read the same.

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/state_parts.cuh"
#include "kernels/cuda/delta_net/delta_net.h"
#include "kernels/cuda/delta_net/delta_net_gates.cuh"

namespace subbyte::cuda {

inline constexpr int kKeyLanes = 8;     // that share a column
inline constexpr int kWarpColumns = 8;  // of a warp

/// Where the numbers of a head lie.
struct HeadPlace {
  int column;   // of a row of projections
  int channel;  // of the convolution
  int size;
};

__device__ __forceinline__ int key_width(const DeltaNetSizes& s) {
  return s.key_heads * s.key_size;
}
__device__ __forceinline__ int value_width(const DeltaNetSizes& s) {
  return s.value_heads * s.value_size;
}
__device__ __forceinline__ int channels_of(const DeltaNetSizes& s) {
  return 2 * key_width(s) + value_width(s);
}
__device__ __forceinline__ int row_size(const DeltaNetSizes& s) {
  return channels_of(s) + value_width(s);
}

__device__ __forceinline__ HeadPlace queries_of(const DeltaNetCall& a, int head) {
  const DeltaNetSizes& s = a.sizes;
  return {a.q.first + head * a.q.stride, head * s.key_size, s.key_size};
}
__device__ __forceinline__ HeadPlace keys_of(const DeltaNetCall& a, int head) {
  const DeltaNetSizes& s = a.sizes;
  return {a.k.first + head * a.k.stride, key_width(s) + head * s.key_size, s.key_size};
}
/// The column of a value head in the projections of values, or of gates.
__device__ __forceinline__ int value_column(const DeltaNetCall& a, const DeltaNetColumns& of,
                                            int value_head) {
  const int per_key = a.sizes.values_per_key;
  return of.first + value_head / per_key * of.stride + value_head % per_key * a.sizes.value_size;
}
__device__ __forceinline__ HeadPlace values_of(const DeltaNetCall& a, int value_head) {
  const DeltaNetSizes& s = a.sizes;
  return {value_column(a, a.v, value_head), 2 * key_width(s) + value_head * s.value_size,
          s.value_size};
}

/// The matrix of a value head in a state, or where it goes to.
__device__ __forceinline__ int64_t matrix_at(const DeltaNetCall& a, int32_t state, int value_head) {
  const DeltaNetSizes& s = a.sizes;
  return state * a.state_stride + int64_t{s.taps - 1} * channels_of(s) +
         int64_t{value_head} * s.key_size * s.value_size;
}

/// The inputs of a channel's convolution: those of a part, and before them what its state kept.
class ChannelInputs {
 public:
  __device__ ChannelInputs(const DeltaNetCall& a, const StatePart& part, int token, int column,
                           int channel)
      : a_(a),
        before_(a.sizes.taps - 1 - token),
        row_(row_size(a.sizes)),
        channels_(channels_of(a.sizes)),
        has_state_(part.from >= 0),
        inputs_(static_cast<const uint16_t*>(a.qkvz) +
                (int64_t{part.first_token} - before_) * row_ + column),
        kept_(a.states + part.from * a.state_stride + int64_t{token} * channels_ + channel),
        filters_(a.filters + channel),
        to_(a.states + part.to * a.state_stride + channel) {}

  __device__ float filter(int tap) const { return filters_[tap * channels_]; }
  __device__ float input(int tap) const {
    if (tap >= before_) return to_float(a_.element, inputs_[int64_t{tap} * row_]);
    return has_state_ ? kept_[int64_t{tap} * channels_] : 0.0f;
  }
  /// What the next step reads, where this is the last token.
  __device__ void keep(int tap, float x) const {
    if (tap > 0) to_[int64_t{tap - 1} * channels_] = x;
  }

  // The same of four channels, where has_wide_inputs().
  __device__ float4 filter_4(int tap) const {
    return *reinterpret_cast<const float4*>(filters_ + tap * channels_);
  }
  __device__ float4 input_4(int tap) const {
    if (tap < before_) {
      if (!has_state_) return {0, 0, 0, 0};
      return *reinterpret_cast<const float4*>(kept_ + int64_t{tap} * channels_);
    }
    const uint2 pairs = *reinterpret_cast<const uint2*>(inputs_ + int64_t{tap} * row_);
    return {to_float(a_.element, static_cast<uint16_t>(pairs.x)),
            to_float(a_.element, static_cast<uint16_t>(pairs.x >> 16)),
            to_float(a_.element, static_cast<uint16_t>(pairs.y)),
            to_float(a_.element, static_cast<uint16_t>(pairs.y >> 16))};
  }
  __device__ void keep_4(int tap, const float4& x) const {
    if (tap > 0) *reinterpret_cast<float4*>(to_ + int64_t{tap - 1} * channels_) = x;
  }

 private:
  const DeltaNetCall& a_;
  int before_;  // taps that read the state
  int row_, channels_;
  bool has_state_;
  const uint16_t* inputs_;
  const float* kept_;
  const float* filters_;
  float* to_;
};

inline constexpr int kUsualTaps = 4;

/// Says whether four channels from a multiple of four on are one load of each array.
__device__ __forceinline__ bool has_wide_inputs(const DeltaNetCall& a) {
  const DeltaNetSizes& s = a.sizes;
  const int columns = a.q.first | a.q.stride | a.k.first | a.k.stride | a.v.first | a.v.stride;
  return s.taps == kUsualTaps && (s.key_size | s.value_size | columns) % 4 == 0 &&
         (reinterpret_cast<uintptr_t>(a.states) | a.state_stride * 4) % 16 == 0;
}

/// A channel of a token of a part, convolved. The last token of a part with `keeps` leaves what the
/// next step reads of the channel.
__device__ __forceinline__ float convolve(const DeltaNetCall& a, const StatePart& part, int token,
                                          int column, int channel, bool keeps) {
  const ChannelInputs inputs(a, part, token, column, channel);
  float sum = 0;
  if (a.sizes.taps == kUsualTaps) {
    float x[kUsualTaps];
    float filters[kUsualTaps];
#pragma unroll
    for (int tap = 0; tap < kUsualTaps; ++tap) {  // all loads before any of them is used
      filters[tap] = inputs.filter(tap);
      x[tap] = inputs.input(tap);
    }
#pragma unroll
    for (int tap = 0; tap < kUsualTaps; ++tap) {
      sum = fmaf(filters[tap], x[tap], sum);
      if (keeps) inputs.keep(tap, x[tap]);
    }
  } else {
    for (int tap = 0; tap < a.sizes.taps; ++tap) {
      const float x = inputs.input(tap);
      sum = fmaf(inputs.filter(tap), x, sum);
      if (keeps) inputs.keep(tap, x);
    }
  }
  return silu(sum);
}

/// The same of four channels, where has_wide_inputs().
__device__ __forceinline__ float4 convolve_4(const DeltaNetCall& a, const StatePart& part,
                                             int token, int column, int channel, bool keeps) {
  const ChannelInputs inputs(a, part, token, column, channel);
  float4 x[kUsualTaps];
  float4 filters[kUsualTaps];
#pragma unroll
  for (int tap = 0; tap < kUsualTaps; ++tap) {
    filters[tap] = inputs.filter_4(tap);
    x[tap] = inputs.input_4(tap);
  }
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int tap = 0; tap < kUsualTaps; ++tap) {
    sum.x = fmaf(filters[tap].x, x[tap].x, sum.x);
    sum.y = fmaf(filters[tap].y, x[tap].y, sum.y);
    sum.z = fmaf(filters[tap].z, x[tap].z, sum.z);
    sum.w = fmaf(filters[tap].w, x[tap].w, sum.w);
    if (keeps) inputs.keep_4(tap, x[tap]);
  }
  return {silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w)};
}

// The numbers of a head in a warp: four side by side in a lane, then those after 4 kLanes of them.
inline constexpr int kOfLane = kMaxDeltaNetHead / kLanes;

__device__ __forceinline__ int index_of_lane(int j) {
  return j / 4 * (4 * kLanes) + static_cast<int>(threadIdx.x) % kLanes * 4 + j % 4;
}

/// The factor that makes a vector of so many squares one of length `length`.
__device__ __forceinline__ float unit_factor(float squares, float eps, float length) {
  return length / sqrtf(__fadd_rn(squares, eps));
}

__device__ __forceinline__ float query_length(const DeltaNetSizes& s) {
  return 1.0f / sqrtf(static_cast<float>(s.key_size));
}

/// A warp for a head of queries, keys or values of a row, as the convolution and the norms leave
/// it.
class MixedHead {
 public:
  /// Heads are those of queries, of keys and of values, in that order.
  __device__ MixedHead(const DeltaNetCall& a, int64_t row, int head) : a_(a), row_(row) {
    const StatePart part = part_of(a.parts, a.num_parts, row);
    const int token = static_cast<int>(row) - part.first_token;
    const DeltaNetSizes& s = a.sizes;
    is_query_ = head < s.key_heads;
    is_value_ = head >= 2 * s.key_heads;
    head_ = is_value_ ? head - 2 * s.key_heads : head % s.key_heads;
    const HeadPlace place = is_query_   ? queries_of(a, head_)
                            : is_value_ ? values_of(a, head_)
                                        : keys_of(a, head_);
    size_ = place.size;
    const bool keeps = token == part.num_tokens - 1;
    const bool is_wide = has_wide_inputs(a);
#pragma unroll
    for (int j = 0; j < kOfLane; j += 4) {
      const int i = index_of_lane(j);
      if (is_wide && i < size_) {
        const float4 four = convolve_4(a, part, token, place.column + i, place.channel + i, keeps);
        x_[j] = four.x, x_[j + 1] = four.y, x_[j + 2] = four.z, x_[j + 3] = four.w;
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = i + e;
        x_[j + e] = 0;
        if (at >= size_) continue;
        x_[j + e] = convolve(a, part, token, place.column + at, place.channel + at, keeps);
      }
    }
  }

  __device__ bool is_query() const {
    return is_query_;
  }
  __device__ bool is_value() const {
    return is_value_;
  }
  __device__ int head() const {
    return head_;
  }
  __device__ int64_t row() const {
    return row_;
  }

  /// Makes the length of a query or of a key `length`.
  __device__ void normalise(float length) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      if (index_of_lane(j) < size_) squares = fmaf(x_[j], x_[j], squares);
    }
    const float factor = unit_factor(sum_of_warp(squares), a_.key_eps, length);
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) x_[j] = __fmul_rn(x_[j], factor);
  }

  /// store(i, number) for each of `padded` numbers, of which those after the last are zero.
  template <class Store>
  __device__ void store(int padded, const Store& store) const {
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      if (index_of_lane(j) < padded) store(index_of_lane(j), x_[j]);
    }
  }

 private:
  const DeltaNetCall& a_;
  int64_t row_;
  int head_;
  int size_;
  bool is_query_;
  bool is_value_;
  float x_[kOfLane];
};

/// Eight columns of a state in a warp. kKeys: of a lane, a multiple of 4; keys that are not there
/// are zero.
template <int kKeys>
class StateColumns {
 public:
  static constexpr int kSize = kKeyLanes * kKeys;  // of a query or a key, with zeros

  /// `first`: the first of the eight columns.
  __device__ StateColumns(const DeltaNetSizes& sizes, int first)
      : sizes_(sizes),
        lane_(static_cast<int>(threadIdx.x) % kKeyLanes),
        col_(first + static_cast<int>(threadIdx.x) % kLanes / kKeyLanes * 2) {}

  __device__ int col() const { return col_; }
  __device__ bool is_first_lane() const { return lane_ == 0; }

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) s_[j] = {0, 0};
  }

  __device__ void load(const float* matrix) {
    if (is_whole(matrix)) return load_whole(matrix);
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const float* const at = matrix + first_at() + offset(j);
      const bool there = key(j) < sizes_.key_size;
      s_[j].x = there && col_ < sizes_.value_size ? at[0] : 0;
      s_[j].y = there && col_ + 1 < sizes_.value_size ? at[1] : 0;
    }
  }

  __device__ void store(float* matrix) const {
    if (is_whole(matrix)) return store_whole(matrix);
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float* const at = matrix + first_at() + offset(j);
      if (key(j) >= sizes_.key_size) continue;
      if (col_ < sizes_.value_size) at[0] = s_[j].x;
      if (col_ + 1 < sizes_.value_size) at[1] = s_[j].y;
    }
  }

  // The same where all keys and columns are there, at an address in 8s.
  __device__ void load_whole(const float* matrix) {
    const float* const first = matrix + first_at();
#pragma unroll
    for (int j = 0; j < kKeys; ++j) s_[j] = *reinterpret_cast<const float2*>(first + offset(j));
  }
  __device__ void store_whole(float* matrix) const {
    float* const first = matrix + first_at();
#pragma unroll
    for (int j = 0; j < kKeys; ++j) *reinterpret_cast<float2*>(first + offset(j)) = s_[j];
  }

  /// A token: what the state, changed by it, gives for its query. `q` and `k` are in shared memory,
  /// 16-byte aligned. Every lane of a column has the result.
  __device__ float2 step(const float* q, const float* k, float2 v, const DeltaGates& gates) {
    float4 of_key[kKeys / 4];
    Sums read;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      of_key[j] = four(k, j);
      add(read, of_key[j], j);
    }
    const float2 of_state = sum(read);
    const float2 change = {__fmul_rn(gates.beta, fmaf(-gates.decay, of_state.x, v.x)),
                           __fmul_rn(gates.beta, fmaf(-gates.decay, of_state.y, v.y))};
    Sums out;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      update_4(j, of_key[j], change, gates.decay);
      add(out, four(q, j), j);
    }
    return sum(out);
  }

  /// The same where the state is not asked what it has for the key.
  __device__ float2 step_without_read(const float* q, const float* k, float2 change, float decay) {
    Sums out;
#pragma unroll
    for (int j = 0; j < kKeys / 4; ++j) {
      update_4(j, four(k, j), change, decay);
      add(out, four(q, j), j);
    }
    return sum(out);
  }

 private:
  __device__ int key(int j) const {
    return j / 4 * (4 * kKeyLanes) + 4 * lane_ + j % 4;
  }
  __device__ float4 four(const float* x, int j) const {
    return *reinterpret_cast<const float4*>(x + 4 * kKeyLanes * j + 4 * lane_);
  }
  __device__ int first_at() const {
    return 4 * lane_ * sizes_.value_size + col_;
  }
  /// Numbers from the first key of a lane to another one.
  __device__ int offset(int j) const {
    return key_offset(j) * sizes_.value_size;
  }
  __device__ static constexpr int key_offset(int j) {
    return j / 4 * (4 * kKeyLanes) + j % 4;
  }

  /// Says whether all keys and columns of the warp are there, both columns of a key as one load.
  __device__ bool is_whole(const float* matrix) const {
    return sizes_.key_size == kSize && sizes_.value_size % kWarpColumns == 0 &&
           reinterpret_cast<uintptr_t>(matrix) % 8 == 0 && col_ < sizes_.value_size;
  }

  /// Two sums of each column, which do not wait for each other.
  struct Sums {
    float2 a = {0, 0};
    float2 b = {0, 0};
  };

  __device__ void add(Sums& to, const float4& x, int j) const {
    to.a.x = fmaf(x.x, s_[4 * j].x, to.a.x);
    to.a.y = fmaf(x.x, s_[4 * j].y, to.a.y);
    to.b.x = fmaf(x.y, s_[4 * j + 1].x, to.b.x);
    to.b.y = fmaf(x.y, s_[4 * j + 1].y, to.b.y);
    to.a.x = fmaf(x.z, s_[4 * j + 2].x, to.a.x);
    to.a.y = fmaf(x.z, s_[4 * j + 2].y, to.a.y);
    to.b.x = fmaf(x.w, s_[4 * j + 3].x, to.b.x);
    to.b.y = fmaf(x.w, s_[4 * j + 3].y, to.b.y);
  }

  __device__ static void update(float2& s, float k, const float2& change, float decay) {
    s.x = fmaf(k, change.x, __fmul_rn(decay, s.x));
    s.y = fmaf(k, change.y, __fmul_rn(decay, s.y));
  }

  __device__ void update_4(int j, const float4& k, const float2& change, float decay) {
    update(s_[4 * j], k.x, change, decay);
    update(s_[4 * j + 1], k.y, change, decay);
    update(s_[4 * j + 2], k.z, change, decay);
    update(s_[4 * j + 3], k.w, change, decay);
  }

  /// Over the lanes that share a column.
  __device__ static float2 sum(const Sums& sums) {
    float2 x = {__fadd_rn(sums.a.x, sums.b.x), __fadd_rn(sums.a.y, sums.b.y)};
#pragma unroll
    for (int distance = kKeyLanes / 2; distance > 0; distance /= 2) {
      x.x = __fadd_rn(x.x, __shfl_xor_sync(~0u, x.x, distance));
      x.y = __fadd_rn(x.y, __shfl_xor_sync(~0u, x.y, distance));
    }
    return x;
  }

  DeltaNetSizes sizes_;
  int lane_;
  int col_;
  float2 s_[kKeys];
};

/// What number i of a value head of a row is multiplied with after its norm.
__device__ __forceinline__ float result_gate(const DeltaNetCall& a, int64_t row, int value_head,
                                             int i) {
  const int64_t z = row * row_size(a.sizes) + value_column(a, a.z, value_head) + i;
  return __fmul_rn(a.norm[i], silu(load_element(a.element, a.qkvz, z)));
}

/// The place of a value head's result among those of all.
__device__ __forceinline__ int result_place(const DeltaNetSizes& s, int value_head) {
  return s.gives_tiles ? value_head % s.values_per_key * s.key_heads + value_head / s.values_per_key
                       : value_head;
}

/// A warp: y of a value head of a row. given(i) is what its state gave, gate(i) its result_gate().
template <class Given, class GateOf>
__device__ __forceinline__ void store_result(const DeltaNetCall& a, int64_t row, int value_head,
                                             const Given& given, const GateOf& gate) {
  const DeltaNetSizes& s = a.sizes;
  const int64_t to = row * value_width(s) + int64_t{result_place(s, value_head)} * s.value_size;
  float x[kOfLane];
  float gates[kOfLane];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {  // all loads before any of them is used
    const int i = index_of_lane(j);
    const bool there = i < s.value_size;
    x[j] = there ? given(i) : 0.0f;
    gates[j] = there ? gate(i) : 0.0f;
  }
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) squares = fmaf(x[j], x[j], squares);
  const float mean = sum_of_warp(squares) / static_cast<float>(s.value_size);
  const float factor = 1.0f / sqrtf(__fadd_rn(mean, a.norm_eps));
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = index_of_lane(j);
    if (i >= s.value_size) continue;
    store_element(a.element, a.y, to + i, __fmul_rn(__fmul_rn(x[j], factor), gates[j]));
  }
}

}  // namespace subbyte::cuda
