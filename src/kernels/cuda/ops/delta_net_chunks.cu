// The kernels of delta_net_chunks.h, one after the other:
//
//   mix_chunks   a warp for a head of a row: convolution, norms, gates
//   solve        a CTA for a value head of a chunk: T, then W, T diag(beta) V and P
//   pass         a CTA for some columns of a value head of a part: from chunk to chunk, with the
//                state in the accumulators of its warps, 16 columns each
//   finish       a warp for a value head of a row: norm and gate of the result
//
// A warp of `pass` has its matrices transposed, columns of values by keys or by tokens, so that the
// accumulators of one product are the operand of the next.

#include <algorithm>

#include "kernels/cuda/ops/delta_net.cuh"
#include "kernels/cuda/ops/delta_net_chunks.h"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/matrix_tiles.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kChunk = 64;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kSolveThreads = 128;  // a warp for 16 tokens
constexpr int64_t kMinTokens = 32;  // of a part in the mean
constexpr int kChunkHead = 128;     // numbers of a head that chunks are compiled for
constexpr int64_t kManyCtas = 132;  // from that on CTAs of `pass` have 64 columns, else 32

/// Where the arrays of the scratch begin, in bytes. Tokens of a chunk that are not there are zero.
struct ChunkScratch {
  int key;        // numbers of a query or a key, with zeros
  int value;      // numbers of a value head
  int64_t q;      // [rows][key_heads][key]
  int64_t k;      // the same
  int64_t v;      // [rows][value_heads][value], then what the state gave
  int64_t gates;  // [rows][value_heads] logarithm of the decay, beta
  int64_t sums;   // [chunks][value_heads][kChunk] G
  int64_t w;      // [chunks][value_heads][kChunk][key]
  int64_t u;      // [chunks][value_heads][kChunk][value]
  int64_t p;      // [chunks][value_heads][kChunk][kChunk]
  int64_t size;
  int max_chunks;

  __host__ __device__ ChunkScratch(const DeltaNetSizes& s, int64_t rows, int64_t parts)
      : key(s.key_size <= 64 ? 64 : 128),
        value((s.value_size + 15) / 16 * 16),
        max_chunks(static_cast<int>(rows / kChunk + parts)) {
    const int64_t tiles = int64_t{max_chunks} * s.value_heads * kChunk;
    q = 0;
    k = q + rows * s.key_heads * key * 2;
    v = k + rows * s.key_heads * key * 2;
    gates = v + rows * s.value_heads * value * 2;
    sums = (gates + rows * s.value_heads * 8 + 15) / 16 * 16;
    w = sums + tiles * 4;
    u = w + tiles * key * 2;
    p = u + tiles * value * 2;
    size = p + tiles * kChunk * 2;
  }
  __device__ explicit ChunkScratch(const DeltaNetCall& a)
      : ChunkScratch(a.sizes, a.num_rows, a.num_parts) {}
};

__device__ uint16_t* numbers_at(const DeltaNetCall& a, int64_t at) {
  return reinterpret_cast<uint16_t*>(a.scratch + at);
}

__global__ void __launch_bounds__(kThreads) mix_chunks(const __grid_constant__ DeltaNetCall a) {
  begin_operation();
  const DeltaNetSizes& s = a.sizes;
  const ChunkScratch scratch(a);
  const int heads = 2 * s.key_heads + s.value_heads;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * heads) return;
  MixedHead mixed(a, i / heads, static_cast<int>(i % heads));
  if (!mixed.is_value()) {
    mixed.normalise(1);
    uint16_t* const to = numbers_at(a, mixed.is_query() ? scratch.q : scratch.k) +
                         (mixed.row() * s.key_heads + mixed.head()) * scratch.key;
    mixed.store(scratch.key, [&](int at, float x) { store_element(a.element, to, at, x); });
    return;
  }
  const int64_t head = mixed.row() * s.value_heads + mixed.head();
  uint16_t* const to = numbers_at(a, scratch.v) + head * scratch.value;
  mixed.store(scratch.value, [&](int at, float x) { store_element(a.element, to, at, x); });
  if (threadIdx.x % kLanes > 0) return;
  reinterpret_cast<float2*>(a.scratch + scratch.gates)[head] =
      log_gates_of(a, mixed.row(), mixed.head());
}

/// Tokens of a part that are a chunk.
struct ChunkPlace {
  int64_t row = 0;
  int count = 0;  // 0: there is no such chunk
};

__device__ ChunkPlace place_of(const DeltaNetCall& a, int chunk) {
  for (int64_t i = 0; i < a.num_parts; ++i) {
    const StatePart part = a.parts[i];
    const int chunks = (part.num_tokens + kChunk - 1) / kChunk;
    if (chunk < chunks) {
      return {part.first_token + int64_t{chunk} * kChunk,
              min(kChunk, part.num_tokens - chunk * kChunk)};
    }
    chunk -= chunks;
  }
  return {};
}

__device__ int first_chunk_of(const DeltaNetCall& a, int64_t part) {
  int chunk = 0;
  for (int64_t i = 0; i < part; ++i) chunk += (a.parts[i].num_tokens + kChunk - 1) / kChunk;
  return chunk;
}

/// Begins to copy kChunk rows of `cols` numbers, a multiple of 8, to rows of `to_stride`; those from
/// `count` on are zero.
__device__ void copy_rows(uint32_t to, int to_stride, const uint16_t* from, int64_t from_stride,
                          int cols, int count) {
  const int eights = cols / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * eights;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / eights;
    const int col = i % eights * 8;
    const bool there = row < count;
    cp_async_zfill<16>(to + (row * to_stride + col) * 2,
                       from + (there ? row * from_stride + col : 0), there);
  }
}

/// Shared memory of `solve`, in bytes: keys, queries and then values, T times each factor, A.
template <int kKey>
struct SolveTile {
  static constexpr int kKeyStride = tile_stride(kKey);
  static constexpr int kValueStride = tile_stride(kChunkHead);
  static constexpr int kInverseStride = tile_stride(kChunk);
  static constexpr int kSystemStride = kChunk + 4;  // floats

  static constexpr int kQueries = kChunk * kKeyStride * 2;
  static constexpr int kWeighted = kQueries + kChunk * kValueStride * 2;
  static constexpr int kScaled = kWeighted + kChunk * kInverseStride * 2;
  static constexpr int kSystem = kScaled + kChunk * kInverseStride * 2;
  static constexpr int kGates = kSystem + kChunk * kSystemStride * 4;
  static constexpr int kBytes = kGates + 2 * kChunk * 4;
};

/// The first two warps: sums of logarithms of decays, and betas.
__device__ void load_gates(const float2* gates, int64_t stride, int count, float* sums,
                           float* betas) {
  const int t = static_cast<int>(threadIdx.x);
  const int lane = t % kLanes;
  if (t >= kChunk) return;
  const float2 own = t < count ? gates[t * stride] : float2{0, 0};
  float sum = own.x;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const float before = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += before;
  }
  sums[t] = sum;
  betas[t] = own.y;
}

/// A thread for a column of T = (1 + A)^-1, row after row.
__device__ void invert(const float* system, int stride, float (&column)[kChunk]) {
  const int col = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    float even = t == col ? 1.0f : 0.0f;
    float odd = 0;
#pragma unroll
    for (int s = 0; s < t; s += 4) {
      const float4 four = *reinterpret_cast<const float4*>(system + t * stride + s);
      even = fmaf(-four.x, column[s], even);
      if (s + 1 < t) odd = fmaf(-four.y, column[s + 1], odd);
      if (s + 2 < t) even = fmaf(-four.z, column[s + 2], even);
      if (s + 3 < t) odd = fmaf(-four.w, column[s + 3], odd);
    }
    column[t] = even + odd;
  }
}

template <class Number, int kKey>
__global__ void __launch_bounds__(kSolveThreads) solve(const __grid_constant__ DeltaNetCall a) {
  using Tile = SolveTile<kKey>;
  extern __shared__ uint4 shared_memory[];
  begin_operation();
  const ChunkPlace place = place_of(a, static_cast<int>(blockIdx.x));
  if (place.count == 0) return;
  const DeltaNetSizes& s = a.sizes;
  const ChunkScratch scratch(a);
  const int value_head = static_cast<int>(blockIdx.y);
  const int head = value_head / values_per_key(s);
  const int64_t tile = (int64_t{blockIdx.x} * s.value_heads + value_head) * kChunk;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int first = 16 * warp;  // token of the warp's rows
  std::byte* const bytes = reinterpret_cast<std::byte*>(shared_memory);
  const uint32_t keys = shared_address(bytes);
  const uint32_t queries = shared_address(bytes + Tile::kQueries);
  float* const system = reinterpret_cast<float*>(bytes + Tile::kSystem);
  float* const sums = reinterpret_cast<float*>(bytes + Tile::kGates);
  float* const betas = sums + kChunk;
  const int64_t key_at = (place.row * s.key_heads + head) * scratch.key;
  const int64_t key_stride = int64_t{s.key_heads} * scratch.key;
  copy_rows(keys, Tile::kKeyStride, numbers_at(a, scratch.k) + key_at, key_stride, kKey,
            place.count);
  copy_rows(queries, Tile::kKeyStride, numbers_at(a, scratch.q) + key_at, key_stride, kKey,
            place.count);
  cp_async_commit();
  load_gates(reinterpret_cast<const float2*>(a.scratch + scratch.gates) +
                 place.row * s.value_heads + value_head,
             s.value_heads, place.count, sums, betas);
  cp_async_wait<0>();
  __syncthreads();
  if (threadIdx.x >= kLanes && threadIdx.x < kChunk) sums[threadIdx.x] += sums[kLanes - 1];
  __syncthreads();
  if (threadIdx.x < kChunk) {
    reinterpret_cast<float*>(a.scratch + scratch.sums)[tile + threadIdx.x] = sums[threadIdx.x];
  }

  float of_keys[kChunk / 8][4] = {};
  float of_queries[kChunk / 8][4] = {};
#pragma unroll
  for (int k = 0; k < kKey; k += 16) {
    uint32_t key[4];
    uint32_t query[4];
    ldmatrix_x4(key, tile_16x16(keys, Tile::kKeyStride, first, k));
    ldmatrix_x4(query, tile_16x16(queries, Tile::kKeyStride, first, k));
#pragma unroll
    for (int j = 0; j < kChunk / 16; ++j) {
      if (j > warp) continue;  // tokens after those of the warp
      uint32_t other[4];
      ldmatrix_x4(other, tile_16x16(keys, Tile::kKeyStride, 16 * j, k));
      mma_16x16<Number>(of_keys[2 * j], of_keys[2 * j + 1], key, other);
      mma_16x16<Number>(of_queries[2 * j], of_queries[2 * j + 1], query, other);
    }
  }
  uint16_t* const p = numbers_at(a, scratch.p) + tile * kChunk;
#pragma unroll
  for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = first + fragment_row(half);
      float weights[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int other = 8 * j + fragment_col() + e;
        const float decay = other <= t ? expf(sums[t] - sums[other]) : 0.0f;
        weights[e] = decay * of_queries[j][2 * half + e];
        system[t * Tile::kSystemStride + other] =
            other < t ? betas[t] * decay * of_keys[j][2 * half + e] : 0.0f;
      }
      *reinterpret_cast<uint32_t*>(p + t * kChunk + 8 * j + fragment_col()) =
          Number::pack_x2(weights[0], weights[1]);
    }
  }
  __syncthreads();  // queries are read, A is written

  copy_rows(queries, Tile::kValueStride,
            numbers_at(a, scratch.v) + (place.row * s.value_heads + value_head) * scratch.value,
            int64_t{s.value_heads} * scratch.value, scratch.value, place.count);
  cp_async_commit();
  if (threadIdx.x < kChunk) {
    float column[kChunk];
    invert(system, Tile::kSystemStride, column);
    const int col = static_cast<int>(threadIdx.x);
    const float weighted = betas[col] * expf(sums[col]);
    uint16_t* const to_weighted = reinterpret_cast<uint16_t*>(bytes + Tile::kWeighted) + col;
    uint16_t* const to_scaled = reinterpret_cast<uint16_t*>(bytes + Tile::kScaled) + col;
#pragma unroll
    for (int t = 0; t < kChunk; ++t) {
      const uint32_t both = Number::pack_x2(column[t] * weighted, column[t] * betas[col]);
      to_weighted[t * Tile::kInverseStride] = static_cast<uint16_t>(both);
      to_scaled[t * Tile::kInverseStride] = static_cast<uint16_t>(both >> 16);
    }
  }
  cp_async_wait<0>();
  __syncthreads();
  const uint32_t inverse = shared_address(bytes + Tile::kWeighted);
  const uint32_t scaled = shared_address(bytes + Tile::kScaled);
  store_lower_product<Number>(numbers_at(a, scratch.w) + tile * scratch.key, scratch.key,
                              {inverse, Tile::kInverseStride}, {keys, Tile::kKeyStride}, first,
                              scratch.key);
  store_lower_product<Number>(numbers_at(a, scratch.u) + tile * scratch.value, scratch.value,
                              {scaled, Tile::kInverseStride}, {queries, Tile::kValueStride}, first,
                              scratch.value);
}

/// A stage of `pass` in shared memory, in bytes.
template <int kKey>
struct PassStage {
  static constexpr int kKeyStride = tile_stride(kKey);
  static constexpr int kWeightStride = tile_stride(kChunk);

  static constexpr int kQueries = kChunk * kKeyStride * 2;  // after W
  static constexpr int kKeys = 2 * kQueries;
  static constexpr int kWeights = 3 * kQueries;
  static constexpr int kSums = kWeights + kChunk * kWeightStride * 2;
  static constexpr int kChanges = kSums + kChunk * 4;

  __host__ __device__ static constexpr int bytes(int columns) {
    return kChanges + kChunk * tile_stride(columns) * 2;
  }
};

/// What all warps of a CTA of `pass` read of a chunk.
template <class Number, int kKey>
class ChunkStage {
 public:
  using Stage = PassStage<kKey>;

  __device__ ChunkStage(std::byte* memory, int columns)
      : memory_(memory), at_(shared_address(memory)), columns_(columns) {}

  /// Begins to copy a chunk: `row` is its first token, `tile` where its matrices are.
  __device__ void copy(const DeltaNetCall& a, const ChunkScratch& scratch, int64_t row, int count,
                       int64_t tile, int head, int first_col) const {
    const DeltaNetSizes& s = a.sizes;
    const int64_t key_at = (row * s.key_heads + head) * scratch.key;
    const int64_t key_stride = int64_t{s.key_heads} * scratch.key;
    copy_rows(at_, Stage::kKeyStride, numbers_at(a, scratch.w) + tile * kKey, kKey, kKey, kChunk);
    copy_rows(at_ + Stage::kQueries, Stage::kKeyStride, numbers_at(a, scratch.q) + key_at,
              key_stride, kKey, count);
    copy_rows(at_ + Stage::kKeys, Stage::kKeyStride, numbers_at(a, scratch.k) + key_at, key_stride,
              kKey, count);
    copy_rows(at_ + Stage::kWeights, Stage::kWeightStride, numbers_at(a, scratch.p) + tile * kChunk,
              kChunk, kChunk, kChunk);
    copy_rows(at_ + Stage::kChanges, tile_stride(columns_),
              numbers_at(a, scratch.u) + tile * scratch.value + first_col, scratch.value,
              min(columns_, scratch.value - first_col), kChunk);
    if (threadIdx.x < kChunk / 4) {
      cp_async<16>(
          at_ + Stage::kSums + threadIdx.x * 16,
          reinterpret_cast<const float*>(a.scratch + scratch.sums) + tile + threadIdx.x * 4);
    }
  }

  __device__ const float* sums() const {
    return reinterpret_cast<const float*>(memory_ + Stage::kSums);
  }
  __device__ SharedTile w() const { return {at_, Stage::kKeyStride}; }
  __device__ SharedTile queries() const { return {at_ + Stage::kQueries, Stage::kKeyStride}; }
  __device__ SharedTile keys() const { return {at_ + Stage::kKeys, Stage::kKeyStride}; }
  __device__ SharedTile weights() const { return {at_ + Stage::kWeights, Stage::kWeightStride}; }
  __device__ SharedTile changes() const { return {at_ + Stage::kChanges, tile_stride(columns_)}; }

 private:
  std::byte* memory_;
  uint32_t at_;
  int columns_;
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
  __device__ void step(const ChunkStage<Number, kKey>& stage, int own,
                       float (&given)[kChunk / 8][4]) {
    float changes[kChunk / 8][4];
    load_transposed<Number>(changes, stage.changes(), own);
#pragma unroll
    for (int k = 0; k < kKey / 16; ++k) {
      uint32_t state[4];
      uint32_t minus[4];
      operand_of<Number>(state, state_[2 * k], state_[2 * k + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) minus[i] = state[i] ^ 0x80008000u;
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j) {
        uint32_t other[4];
        ldmatrix_x4(other, stage.w().at(16 * j, 16 * k));
        mma_16x16<Number>(changes[2 * j], changes[2 * j + 1], minus, other);
        ldmatrix_x4(other, stage.queries().at(16 * j, 16 * k));
        mma_16x16<Number>(given[2 * j], given[2 * j + 1], state, other);
      }
    }
    const float* const sums = stage.sums();
    scale(given, [&](int t) { return expf(sums[t]); });
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
    const float last = sums[kChunk - 1];
    scale(changes, [&](int t) { return expf(last - sums[t]); });
    const float decay = expf(last);
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

template <class Number, int kKey>
__global__ void __launch_bounds__(kSolveThreads) pass(const __grid_constant__ DeltaNetCall a) {
  extern __shared__ uint4 shared_memory[];
  begin_operation();
  const DeltaNetSizes& s = a.sizes;
  const ChunkScratch scratch(a);
  const StatePart part = a.parts[blockIdx.z];
  const int value_head = static_cast<int>(blockIdx.y);
  const int head = value_head / values_per_key(s);
  const int columns = static_cast<int>(blockDim.x) / kLanes * 16;  // of the CTA
  const int first_col = static_cast<int>(blockIdx.x) * columns;
  const int own = static_cast<int>(threadIdx.x) / kLanes * 16;
  const int first_chunk = first_chunk_of(a, blockIdx.z);
  std::byte* const bytes = reinterpret_cast<std::byte*>(shared_memory);
  const auto stage_of = [&](int chunk) {
    return ChunkStage<Number, kKey>(bytes + chunk % 2 * PassStage<kKey>::bytes(columns), columns);
  };
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

__global__ void __launch_bounds__(kThreads) finish(const __grid_constant__ DeltaNetCall a) {
  begin_operation();
  const ChunkScratch scratch(a);
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * a.sizes.value_heads) return;
  const uint16_t* const given = numbers_at(a, scratch.v) + i * scratch.value;
  const float length = query_length(a.sizes);
  store_result(a, i / a.sizes.value_heads, static_cast<int>(i % a.sizes.value_heads),
               [&](int at) { return length * load_element(a.element, given, at); });
}

template <class Number, int kKey>
void launch_chunks(const DeltaNetCall& call, Stream stream) {
  static SharedMemoryLimit solve_limit;
  static SharedMemoryLimit pass_limit;
  const DeltaNetSizes& s = call.sizes;
  const ChunkScratch scratch(s, call.num_rows, call.num_parts);
  const auto heads = static_cast<unsigned>(s.value_heads);
  const auto parts = static_cast<unsigned>(call.num_parts);
  const auto ctas = [](int64_t warps) {
    return dim3(static_cast<unsigned>((warps + kWarps - 1) / kWarps));
  };
  const int64_t halves = (scratch.value + 31) / 32 * int64_t{heads} * parts;
  const int columns = halves <= kManyCtas ? 32 : 64;
  const auto tiles = static_cast<unsigned>((scratch.value + columns - 1) / columns);
  constexpr int kSolveBytes = SolveTile<kKey>::kBytes;
  const int pass_bytes = 2 * PassStage<kKey>::bytes(columns);
  if (!solve_limit.allow(solve<Number, kKey>, kSolveBytes)) return;
  if (!pass_limit.allow(pass<Number, kKey>, pass_bytes)) return;
  launch(mix_chunks, {ctas(call.num_rows * (2 * s.key_heads + s.value_heads)), kThreads}, stream,
         call);
  launch(solve<Number, kKey>,
         {dim3(static_cast<unsigned>(scratch.max_chunks), heads), kSolveThreads, kSolveBytes},
         stream, call);
  launch(pass<Number, kKey>, {dim3(tiles, heads, parts), columns / 16 * kLanes, pass_bytes}, stream,
         call);
  launch(finish, {ctas(call.num_rows * s.value_heads), kThreads}, stream, call);
}

template <class Number>
void launch_for_keys(const DeltaNetCall& call, Stream stream) {
  if (call.sizes.key_size <= 64) return launch_chunks<Number, 64>(call, stream);
  launch_chunks<Number, 128>(call, stream);
}

}  // namespace

bool has_chunks(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts) {
  return std::max(sizes.key_size, sizes.value_size) <= kChunkHead &&
         num_rows >= kMinTokens * num_parts;
}

int64_t delta_net_chunk_scratch(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts) {
  return ChunkScratch(sizes, num_rows, num_parts).size;
}

void run_delta_net_chunks(const DeltaNetCall& call, Stream stream) {
  if (call.element == Element::kF16) return launch_for_keys<gpu::F16>(call, stream);
  launch_for_keys<gpu::BF16>(call, stream);
}

}  // namespace subbyte::cuda
