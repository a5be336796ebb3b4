#pragma once
// The way of the state through the chunks of a part (delta_net_chunks.h). A CTA has some columns of
// a value head, a warp 16 of them: their state stays in its accumulators. Matrices are transposed,
// columns of values by keys or by tokens, so that the accumulators of one product are the operand
// of the next.

#include "kernels/cuda/delta_net/delta_net_chunks.cuh"

namespace subbyte::cuda {

/// What all warps of a CTA of `pass` read of a chunk, in shared memory.
template <int kKey, int kColumns>
class ChunkStage {
 public:
  static constexpr bool kCorrects = true;  // what the state has is taken off changes
  static constexpr int kThreads = kColumns / 16 * kLanes;
  static constexpr int kOfKeys = kChunk * tile_stride(kKey) * 2;
  static constexpr int kOfWeights = kChunk * tile_stride(kChunk) * 2;
  static constexpr int kOfChanges = kChunk * tile_stride(kColumns) * 2;
  static constexpr int kOfDecays = kChunk * static_cast<int>(sizeof(ChunkDecays));
  static constexpr int kBytes = 3 * kOfKeys + kOfWeights + kOfChanges + kOfDecays;

  __device__ explicit ChunkStage(std::byte* memory)
      : memory_(memory), at_(shared_address(memory)) {}

  /// Begins to copy a chunk: `row` is its first token, `tile` where its matrices are.
  __device__ void copy(const DeltaNetCall& a, const ChunkScratch& scratch, int64_t row, int count,
                       int64_t tile, int head, int first_col) const {
    const int key_heads = a.sizes.key_heads;
    const int64_t key_at = (row * key_heads + head) * kKey;
    const int64_t key_stride = int64_t{key_heads} * kKey;
    copy_rows<kKey, kThreads>(w(), numbers_at(a, scratch.w) + tile * kKey, kKey, kChunk);
    copy_rows<kKey, kThreads>(queries(), numbers_at(a, scratch.q) + key_at, key_stride, count);
    copy_rows<kKey, kThreads>(keys(), numbers_at(a, scratch.k) + key_at, key_stride, count);
    copy_rows<kChunk, kThreads>(weights(), numbers_at(a, scratch.p) + tile * kChunk, kChunk,
                                kChunk);
    copy_rows<kColumns, kThreads>(changes(),
                                  numbers_at(a, scratch.u) + tile * scratch.value + first_col,
                                  scratch.value, kChunk, scratch.value - first_col);
    if (threadIdx.x < kOfDecays / 16) {
      cp_async<16>(
          at_ + kDecays + threadIdx.x * 16,
          a.scratch + scratch.decays + tile * int64_t{sizeof(ChunkDecays)} + threadIdx.x * 16);
    }
  }

  __device__ const ChunkDecays* decays() const {
    return reinterpret_cast<const ChunkDecays*>(memory_ + kDecays);
  }
  __device__ SharedTile w() const { return {at_, tile_stride(kKey)}; }
  __device__ SharedTile queries() const { return {at_ + kOfKeys, tile_stride(kKey)}; }
  __device__ SharedTile keys() const { return {at_ + 2 * kOfKeys, tile_stride(kKey)}; }
  __device__ SharedTile weights() const { return {at_ + 3 * kOfKeys, tile_stride(kChunk)}; }
  __device__ SharedTile changes() const {
    return {at_ + 3 * kOfKeys + kOfWeights, tile_stride(kColumns)};
  }

 private:
  static constexpr int kDecays = kBytes - kOfDecays;

  std::byte* memory_;
  uint32_t at_;
};

/// Sixteen columns of a state, transposed, in the accumulators of a warp.
template <class Number, int kKey>
class ChunkState {
 public:
  /// `col`: the first of the columns of the value head.
  __device__ ChunkState(const DeltaNetSizes& sizes, int col) : sizes_(sizes), col_(col) {}

  /// Zero unless there is a state, `exists`.
  __device__ void load(const float* matrix, bool exists) {
    each([&](float& x, int64_t at, bool there) { x = exists && there ? matrix[at] : 0.0f; });
  }
  __device__ void store(float* matrix) {
    each([&](const float& x, int64_t at, bool there) {
      if (there) matrix[at] = x;
    });
  }

  /// A chunk. `own`: the first column of the warp in the stage's changes. `given` is what the state
  /// gives for each of its queries, columns by tokens.
  template <class Stage>
  __device__ void step(const Stage& stage, int own, float (&given)[kChunk / 8][4]) {
    float changes[kChunk / 8][4];
    load_transposed<Number>(changes, stage.changes(), own);
#pragma unroll
    for (int k = 0; k < kKey / 16; ++k) {
      uint32_t state[4];
      [[maybe_unused]] uint32_t minus[4];
      operand_of<Number>(state, state_[2 * k], state_[2 * k + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) minus[i] = state[i] ^ 0x80008000u;
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j) {
        uint32_t other[4];
        if constexpr (Stage::kCorrects) {
          ldmatrix_x4(other, stage.w().at(16 * j, 16 * k));
          mma_16x16<Number>(changes[2 * j], changes[2 * j + 1], minus, other);
        }
        ldmatrix_x4(other, stage.queries().at(16 * j, 16 * k));
        mma_16x16<Number>(given[2 * j], given[2 * j + 1], state, other);
      }
    }
    const ChunkDecays* const decays = stage.decays();
    scale(given, [&](int t) { return decays[t].before; });
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      uint32_t change[4];
      operand_of<Number>(change, changes[2 * k], changes[2 * k + 1]);
#pragma unroll
      for (int j = k; j < kChunk / 16; ++j) {  // tokens from those of the change on
        uint32_t other[4];
        ldmatrix_x4(other, stage.weights().at(16 * j, 16 * k));
        mma_16x16<Number>(given[2 * j], given[2 * j + 1], change, other);
      }
    }
    scale(changes, [&](int t) { return decays[t].after; });
    const float decay = decays[kChunk - 1].before;
#pragma unroll
    for (int j = 0; j < kKey / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) state_[j][e] *= decay;
    }
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      uint32_t change[4];
      operand_of<Number>(change, changes[2 * k], changes[2 * k + 1]);
#pragma unroll
      for (int j = 0; j < kKey / 16; ++j) {
        uint32_t other[4];
        ldmatrix_x4_trans(other, stage.keys().at(16 * k, 16 * j));
        mma_16x16_trans<Number>(state_[2 * j], state_[2 * j + 1], change, other);
      }
    }
  }

 private:
  /// Multiplies columns by tokens with a factor of each token.
  template <class Factor>
  __device__ static void scale(float (&x)[kChunk / 8][4], const Factor& factor) {
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float f = factor(8 * j + fragment_col() + e);
        x[j][e] *= f;
        x[j][2 + e] *= f;
      }
    }
  }

  template <class Do>
  __device__ void each(const Do& what) {
#pragma unroll
    for (int j = 0; j < kKey / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * j + fragment_col() + e % 2;
        const int col = col_ + fragment_row(e / 2);
        what(state_[j][e], int64_t{key} * sizes_.value_size + col,
             key < sizes_.key_size && col < sizes_.value_size);
      }
    }
  }

  DeltaNetSizes sizes_;
  int col_;
  float state_[kKey / 8][4];
};

template <class Number, int kKey, int kColumns>
__global__ void __launch_bounds__(ChunkStage<kKey, kColumns>::kThreads)
    pass(const __grid_constant__ DeltaNetCall a) {
  using Stage = ChunkStage<kKey, kColumns>;
  extern __shared__ uint4 shared_memory[];
  begin_operation();
  const DeltaNetSizes& s = a.sizes;
  const ChunkScratch scratch(a);
  const StatePart part = a.parts[blockIdx.z];
  const int value_head = static_cast<int>(blockIdx.y);
  const int head = value_head / s.values_per_key;
  const int first_col = static_cast<int>(blockIdx.x) * kColumns;
  const int own = static_cast<int>(threadIdx.x) / kLanes * 16;
  const int first_chunk = first_chunk_of(a, blockIdx.z);
  std::byte* const bytes = reinterpret_cast<std::byte*>(shared_memory);
  const auto stage_of = [&](int chunk) { return Stage(bytes + chunk % 2 * Stage::kBytes); };
  const auto copy = [&](int chunk) {
    const int count = min(kChunk, part.num_tokens - chunk * kChunk);
    const int64_t tile = (int64_t{first_chunk + chunk} * s.value_heads + value_head) * kChunk;
    if (count > 0) {
      stage_of(chunk).copy(a, scratch, part.first_token + int64_t{chunk} * kChunk, count, tile,
                           head, first_col);
    }
    cp_async_commit();
  };
  copy(0);
  ChunkState<Number, kKey> state(s, first_col + own);
  const float* const before = a.states + matrix_at(a, max(part.from, 0), value_head);
  state.load(before, part.from >= 0);
  for (int chunk = 0; chunk * kChunk < part.num_tokens; ++chunk) {
    copy(chunk + 1);
    cp_async_wait<1>();
    __syncthreads();
    float given[kChunk / 8][4] = {};
    state.step(stage_of(chunk), own, given);
    const int64_t row = part.first_token + int64_t{chunk} * kChunk;
    if (first_col + own < scratch.value) {
      store_transposed<Number>(
          numbers_at(a, scratch.v) + (row * s.value_heads + value_head) * scratch.value +
              first_col + own,
          int64_t{s.value_heads} * scratch.value, given, part.num_tokens - chunk * kChunk);
    }
    __syncthreads();  // the stage is read before the next copy into it
  }
  state.store(a.states + matrix_at(a, part.to, value_head));
}

}  // namespace subbyte::cuda
