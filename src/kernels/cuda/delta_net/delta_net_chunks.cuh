#pragma once
// What the kernels of chunks share: their scratch, and which tokens a chunk has.

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/matrix_tiles.cuh"
#include "kernels/cuda/delta_net/delta_net.cuh"

namespace subbyte::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kChunkHead = 128;     // numbers of a head that chunks are compiled for
inline constexpr int kChunkThreads = 128;  // of a CTA of `solve`; of `pass` at most

/// Decays from the begin of a chunk to a token, itself among those that count, and from there to
/// the end.
struct alignas(8) ChunkDecays {
  float before;
  float after;
};

/// Where the arrays of the scratch begin, in bytes. Tokens of a chunk that are not there are zero.
struct ChunkScratch {
  int key;         // numbers of a query or a key, with zeros
  int value;       // numbers of a value head
  int64_t q;       // [rows][key_heads][key]
  int64_t k;       // the same
  int64_t v;       // [rows][value_heads][value], then what the state gave
  int64_t gates;   // [rows][value_heads] logarithm of the decay, beta
  int64_t decays;  // [chunks][value_heads][kChunk] ChunkDecays
  int64_t w;       // [chunks][value_heads][kChunk][key]
  int64_t u;       // [chunks][value_heads][kChunk][value]
  int64_t p;       // [chunks][value_heads][kChunk][kChunk]
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
    decays = (gates + rows * s.value_heads * 8 + 15) / 16 * 16;
    w = decays + tiles * int64_t{sizeof(ChunkDecays)};
    u = w + tiles * key * 2;
    p = u + tiles * value * 2;
    size = p + tiles * kChunk * 2;
  }
  __device__ explicit ChunkScratch(const DeltaNetCall& a)
      : ChunkScratch(a.sizes, a.num_rows, a.num_parts) {}
};

__device__ inline uint16_t* numbers_at(const DeltaNetCall& a, int64_t at) {
  return reinterpret_cast<uint16_t*>(a.scratch + at);
}

/// Tokens of a part that are a chunk.
struct ChunkPlace {
  int64_t row = 0;
  int count = 0;  // 0: there is no such chunk
};

template <class Call>
__device__ inline ChunkPlace place_of(const Call& a, int chunk) {
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

template <class Call>
__device__ inline int first_chunk_of(const Call& a, int64_t part) {
  int chunk = 0;
  for (int64_t i = 0; i < part; ++i) chunk += (a.parts[i].num_tokens + kChunk - 1) / kChunk;
  return chunk;
}

/// Begins to copy kChunk rows of kCols numbers by a CTA of kThreads; rows from `count` on and
/// columns from `cols` on are zero.
template <int kCols, int kThreads>
__device__ __forceinline__ void copy_rows(const SharedTile& to, const uint16_t* from,
                                          int64_t stride, int count, int cols = kCols) {
  constexpr int kEights = kCols / 8;
  constexpr int kRows = kThreads / kEights;  // at a time
  static_assert(kThreads % kEights == 0 && kChunk % kRows == 0);
  const int row = static_cast<int>(threadIdx.x) / kEights;
  const int col = static_cast<int>(threadIdx.x) % kEights * 8;
  const uint32_t address = to.address + (row * to.stride + col) * 2;
  const uint16_t* numbers = from + row * stride + col;
#pragma unroll
  for (int i = 0; i < kChunk / kRows; ++i) {
    const bool there = row + i * kRows < count && col < cols;
    cp_async_zfill<16>(address + i * kRows * to.stride * 2, there ? numbers : from, there);
    numbers += kRows * stride;
  }
}

}  // namespace subbyte::cuda
