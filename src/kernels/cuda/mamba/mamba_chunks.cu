// The kernels of mamba_chunks.h, one after the other:
//
//   mix       a thread for eight channels of a row: convolution
//   prepare   a CTA for some heads of a group and a chunk: P, decays
//   scan      a CTA for some columns of a head of a part: from chunk to chunk, as `pass` of gated
//             delta nets goes, without what these take off

#include "kernels/cuda/mamba/mamba_chunks.h"

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/runs.cuh"
#include "kernels/cuda/delta_net/delta_net_pass.cuh"
#include "kernels/cuda/mamba/mamba.cuh"

namespace subbyte::cuda {
namespace {

constexpr int64_t kMinTokens = 32;  // of a part in the mean
constexpr int64_t kManyCtas = 132;  // from that on CTAs of `scan` have 64 columns, else 32
constexpr int kHeads = 8;           // of a CTA of `prepare`

/// Where the arrays of the scratch begin, in bytes. As parts have kMinTokens rows in the mean,
/// there are at most three times as many tokens of chunks as rows.
struct MambaScratch {
  int64_t p;       // [rows][heads][kChunk], after x, B and C
  int64_t decays;  // [chunks][heads][kChunk] ChunkDecays, of which `after` has the factor dt

  __device__ explicit MambaScratch(const MambaCall& a)
      : p(a.num_rows * channels_of(a.sizes) * 2),
        decays(p + a.num_rows * a.sizes.heads * kChunk * 2) {}
};

__device__ uint16_t* numbers_at(const MambaCall& a, int64_t at) {
  return reinterpret_cast<uint16_t*>(a.scratch + at);
}

template <int kCount>
__global__ void __launch_bounds__(256) mix(const __grid_constant__ MambaCall a) {
  begin_operation();
  const MambaSizes& s = a.sizes;
  const int channels = channels_of(s);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
       i < a.num_rows * channels; i += stride) {
    const int64_t row = i / channels;
    const int64_t channel = i % channels;
    const StatePart part = part_of(a.parts, a.num_parts, row);
    const int64_t token = row - part.first_token;
    const bool is_last = token == part.num_tokens - 1;
    float sum[kCount] = {};
    if (a.bias != nullptr) load(Element::kF32, a.bias, channel, sum);
    for (int tap = 0; tap < s.taps; ++tap) {
      float x[kCount] = {};
      float filter[kCount];
      const int64_t from = token - (s.taps - 1) + tap;
      if (from >= 0) {
        load(a.element, a.projections,
             (part.first_token + from) * row_size(s) + width_of(s) + channel, x);
      } else if (part.from >= 0) {
        load(Element::kF32, a.states,
             part.from * a.state_stride + (from + s.taps - 1) * channels + channel, x);
      }
      load(Element::kF32, a.filters, int64_t{tap} * channels + channel, filter);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum[j] = fmaf(filter[j], x[j], sum[j]);
      if (is_last && tap > 0) {
        store(Element::kF32, a.states,
              part.to * a.state_stride + int64_t{tap - 1} * channels + channel, x);
      }
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum[j] = silu(sum[j]);
    store(a.element, a.scratch, i, sum);
  }
}

/// A CTA of `prepare`: B and C of a group of a chunk, products of both, and sums of a head.
template <class Number, int kKey>
class ChunkPreparer {
 public:
  static constexpr int kTileBytes = kChunk * tile_stride(kKey) * 2;
  static constexpr int kBytes = 2 * kTileBytes + kChunk * static_cast<int>(sizeof(float2));

  __device__ ChunkPreparer(const MambaCall& a, const ChunkPlace& place, int group,
                           std::byte* memory)
      : a_(a),
        scratch_(a),
        place_(place),
        group_(group),
        first_(static_cast<int>(threadIdx.x) / kLanes * 16),
        b_{shared_address(memory), tile_stride(kKey)},
        c_{shared_address(memory + kTileBytes), tile_stride(kKey)},
        steps_(reinterpret_cast<float2*>(memory + 2 * kTileBytes)) {}

  /// C_t B_j for the sixteen tokens t of the warp.
  __device__ void multiply() {
    const MambaSizes& s = a_.sizes;
    const int channels = channels_of(s);
    const uint16_t* const b =
        numbers_at(a_, 0) + place_.row * channels + width_of(s) + int64_t{group_} * s.state_size;
    copy_rows<kKey, kChunkThreads>(b_, b, channels, place_.count, s.state_size);
    copy_rows<kKey, kChunkThreads>(c_, b + int64_t{s.groups} * s.state_size, channels, place_.count,
                                   s.state_size);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kKey; k += 16) {
      uint32_t query[4];
      ldmatrix_x4(query, c_.at(first_, k));
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j) {
        if (16 * j > first_) continue;  // tokens after those of the warp
        uint32_t other[4];
        ldmatrix_x4(other, b_.at(16 * j, k));
        mma_16x16<Number>(products_[2 * j], products_[2 * j + 1], query, other);
      }
    }
  }

  /// P and the decays of a head. Tokens that are not there take no step.
  __device__ void store_head(int chunk, int head) const {
    __syncthreads();  // the steps of the head before are read
    if (threadIdx.x < kLanes) load_steps(head);
    __syncthreads();
    const float end = steps_[kChunk - 1].y;
    if (threadIdx.x < kChunk) {
      const float2 own = steps_[threadIdx.x];
      reinterpret_cast<ChunkDecays*>(
          a_.scratch +
          scratch_.decays)[(int64_t{chunk} * a_.sizes.heads + head) * kChunk + threadIdx.x] = {
          expf(own.y), own.x * expf(end - own.y)};
    }
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = first_ + fragment_row(half);
        const int other = 8 * j + fragment_col();
        if (t >= place_.count) continue;
        const float low = weight(t, other) * products_[j][2 * half];
        const float high = weight(t, other + 1) * products_[j][2 * half + 1];
        uint16_t* const p = numbers_at(a_, scratch_.p) +
                            ((place_.row + t) * a_.sizes.heads + head) * kChunk + other;
        *reinterpret_cast<uint32_t*>(p) = Number::pack_x2(low, high);
      }
    }
  }

 private:
  /// By a warp, two tokens that follow each other in each lane: dt and c.
  __device__ void load_steps(int head) const {
    const int lane = static_cast<int>(threadIdx.x);
    float steps[2];
    float logs[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int t = 2 * lane + e;
      steps[e] = t < place_.count ? step_of(a_, place_.row + t, head) : 0.0f;
      logs[e] = log_decay(a_, head, steps[e]);
    }
    float sum = logs[0] + logs[1];
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const float earlier = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += earlier;
    }
    float before = __shfl_up_sync(~0u, sum, 1);
    if (lane == 0) before = 0;
    steps_[2 * lane] = {steps[0], before + logs[0]};
    steps_[2 * lane + 1] = {steps[1], sum};
  }

  /// exp(c_t - c_j) dt_j, or 0 after t.
  __device__ float weight(int t, int j) const {
    return j <= t ? expf(steps_[t].y - steps_[j].y) * steps_[j].x : 0.0f;
  }

  const MambaCall& a_;
  MambaScratch scratch_;
  ChunkPlace place_;
  int group_;
  int first_;  // token of the warp's rows
  SharedTile b_, c_;
  float2* steps_;  // of a head: dt and c
  float products_[kChunk / 8][4] = {};
};

template <class Number, int kKey>
__global__ void __launch_bounds__(kChunkThreads) prepare(const __grid_constant__ MambaCall a) {
  extern __shared__ uint4 shared_memory[];
  begin_operation();
  const int chunk = static_cast<int>(blockIdx.x);
  const int group = static_cast<int>(blockIdx.y);
  const ChunkPlace place = place_of(a, chunk);
  if (place.count == 0) return;
  ChunkPreparer<Number, kKey> preparer(a, place, group,
                                       reinterpret_cast<std::byte*>(shared_memory));
  preparer.multiply();
  const int of_group = a.sizes.heads / a.sizes.groups;
  const int first = static_cast<int>(blockIdx.z) * kHeads;
  for (int head = first; head < min(first + kHeads, of_group); ++head) {
    preparer.store_head(chunk, group * of_group + head);
  }
}

/// What all warps of a CTA of `scan` read of a chunk, in shared memory: B, C, P, x and decays.
template <int kKey, int kColumns>
class ScanStage {
 public:
  static constexpr bool kCorrects = false;
  static constexpr int kThreads = kColumns / 16 * kLanes;
  static constexpr int kOfKeys = kChunk * tile_stride(kKey) * 2;
  static constexpr int kOfWeights = kChunk * tile_stride(kChunk) * 2;
  static constexpr int kOfChanges = kChunk * tile_stride(kColumns) * 2;
  static constexpr int kDecays = 2 * kOfKeys + kOfWeights + kOfChanges;
  static constexpr int kOfDecays = kChunk * static_cast<int>(sizeof(ChunkDecays));
  static constexpr int kBytes = kDecays + kOfDecays;

  __device__ explicit ScanStage(std::byte* memory) : memory_(memory), at_(shared_address(memory)) {}

  /// Begins to copy a chunk, whose first token is `row`.
  __device__ void copy(const MambaCall& a, const MambaScratch& scratch, const ChunkPlace& place,
                       int chunk, int head, int first_col) const {
    const MambaSizes& s = a.sizes;
    const int channels = channels_of(s);
    const uint16_t* const x = numbers_at(a, 0) + place.row * channels;
    const uint16_t* const b = x + width_of(s) + int64_t{group_of(s, head)} * s.state_size;
    copy_rows<kKey, kThreads>(keys(), b, channels, place.count, s.state_size);
    copy_rows<kKey, kThreads>(queries(), b + int64_t{s.groups} * s.state_size, channels,
                              place.count, s.state_size);
    copy_rows<kChunk, kThreads>(weights(),
                                numbers_at(a, scratch.p) + (place.row * s.heads + head) * kChunk,
                                int64_t{s.heads} * kChunk, place.count);
    copy_rows<kColumns, kThreads>(changes(), x + head * s.head_size + first_col, channels,
                                  place.count, s.head_size - first_col);
    if (threadIdx.x < kOfDecays / 16) {
      const int64_t first = (int64_t{chunk} * s.heads + head) * kOfDecays;
      cp_async<16>(at_ + kDecays + threadIdx.x * 16,
                   a.scratch + scratch.decays + first + threadIdx.x * 16);
    }
  }

  __device__ const ChunkDecays* decays() const {
    return reinterpret_cast<const ChunkDecays*>(memory_ + kDecays);
  }
  __device__ SharedTile queries() const { return {at_, tile_stride(kKey)}; }
  __device__ SharedTile keys() const { return {at_ + kOfKeys, tile_stride(kKey)}; }
  __device__ SharedTile weights() const { return {at_ + 2 * kOfKeys, tile_stride(kChunk)}; }
  __device__ SharedTile changes() const {
    return {at_ + 2 * kOfKeys + kOfWeights, tile_stride(kColumns)};
  }

 private:
  std::byte* memory_;
  uint32_t at_;
};

template <class Number, int kKey, int kColumns>
__global__ void __launch_bounds__(ScanStage<kKey, kColumns>::kThreads)
    scan(const __grid_constant__ MambaCall a) {
  using Stage = ScanStage<kKey, kColumns>;
  extern __shared__ uint4 shared_memory[];
  begin_operation();
  const MambaSizes& s = a.sizes;
  const MambaScratch scratch(a);
  const StatePart part = a.parts[blockIdx.z];
  const int head = static_cast<int>(blockIdx.y);
  const int first_col = static_cast<int>(blockIdx.x) * kColumns;
  const int own = static_cast<int>(threadIdx.x) / kLanes * 16;
  const int first_chunk = first_chunk_of(a, blockIdx.z);
  std::byte* const bytes = reinterpret_cast<std::byte*>(shared_memory);
  const auto stage_of = [&](int chunk) { return Stage(bytes + chunk % 2 * Stage::kBytes); };
  const auto copy = [&](int chunk) {
    const ChunkPlace place = {part.first_token + int64_t{chunk} * kChunk,
                              min(kChunk, part.num_tokens - chunk * kChunk)};
    if (place.count > 0) {
      stage_of(chunk).copy(a, scratch, place, first_chunk + chunk, head, first_col);
    }
    cp_async_commit();
  };
  copy(0);
  DeltaNetSizes matrix;
  matrix.key_size = s.state_size;
  matrix.value_size = s.head_size;
  ChunkState<Number, kKey> state(matrix, first_col + own);
  state.load(a.states + matrix_at(a, max(part.from, 0), head), part.from >= 0);
  for (int chunk = 0; chunk * kChunk < part.num_tokens; ++chunk) {
    copy(chunk + 1);
    cp_async_wait<1>();
    __syncthreads();
    float given[kChunk / 8][4] = {};
    state.step(stage_of(chunk), own, given);
    if (first_col + own < s.head_size) {
      const int64_t row = part.first_token + int64_t{chunk} * kChunk;
      store_transposed<Number>(
          static_cast<uint16_t*>(a.y) + row * width_of(s) + head * s.head_size + first_col + own,
          width_of(s), given, part.num_tokens - chunk * kChunk);
    }
    __syncthreads();  // the stage is read before the next copy into it
  }
  state.store(a.states + matrix_at(a, part.to, head));
}

template <class Number, int kKey, int kColumns>
void launch_scan(const MambaCall& call, Stream stream) {
  using Stage = ScanStage<kKey, kColumns>;
  constexpr int kBytes = 2 * Stage::kBytes;
  static_assert(kBytes <= kMambaChunkBytes);
  const dim3 ctas(static_cast<unsigned>((call.sizes.head_size + kColumns - 1) / kColumns),
                  static_cast<unsigned>(call.sizes.heads), static_cast<unsigned>(call.num_parts));
  launch_large<scan<Number, kKey, kColumns>>({ctas, Stage::kThreads, kBytes}, stream, call);
}

template <class Number, int kKey>
void launch_chunks(const MambaCall& call, Stream stream) {
  const MambaSizes& s = call.sizes;
  const int channels = channels_of(s);
  const auto places =
      reinterpret_cast<uintptr_t>(call.projections) | reinterpret_cast<uintptr_t>(call.states);
  const bool is_wide = (row_size(s) | width_of(s) | channels) % kWide == 0 && places % 16 == 0 &&
                       call.state_stride % 4 == 0;
  const int64_t numbers = call.num_rows * channels;
  is_wide ? launch(mix<kWide>, grid_for(numbers / kWide), stream, call)
          : launch(mix<1>, grid_for(numbers), stream, call);
  constexpr int kPrepareBytes = ChunkPreparer<Number, kKey>::kBytes;
  const int of_group = s.heads / s.groups;
  const dim3 ctas(static_cast<unsigned>(call.num_rows / kChunk + call.num_parts),
                  static_cast<unsigned>(s.groups),
                  static_cast<unsigned>((of_group + kHeads - 1) / kHeads));
  const Grid grid = {ctas, kChunkThreads, kPrepareBytes};
  if (!launch_large<prepare<Number, kKey>>(grid, stream, call)) return;
  const bool are_many = s.heads * call.num_parts * ((s.head_size + 31) / 32) > kManyCtas;
  s.head_size % 64 == 0 && are_many ? launch_scan<Number, kKey, 64>(call, stream)
                                    : launch_scan<Number, kKey, 32>(call, stream);
}

template <class Number>
void launch_for_keys(const MambaCall& call, Stream stream) {
  if (call.sizes.state_size <= 64) return launch_chunks<Number, 64>(call, stream);
  launch_chunks<Number, 128>(call, stream);
}

}  // namespace

bool has_mamba_chunks(const MambaCall& call) {
  const MambaSizes& s = call.sizes;
  return s.state_size <= kChunkHead && s.state_size % 8 == 0 && s.head_size % 16 == 0 &&
         call.num_rows >= kMinTokens * call.num_parts;
}

void run_mamba_chunks(const MambaCall& call, Stream stream) {
  if (call.element == Element::kF16) return launch_for_keys<gpu::F16>(call, stream);
  launch_for_keys<gpu::BF16>(call, stream);
}

}  // namespace subbyte::cuda
