#pragma once
// What the kernels of chunks share: their scratch, and which tokens a chunk has.

#include "kernels/cuda/ops/delta_net.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/matrix_tiles.cuh"

namespace subbyte::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kChunkHead = 128;     // numbers of a head that chunks are compiled for
inline constexpr int kChunkThreads = 128;  // of a CTA of `solve`; of `pass` at most

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

__device__ inline uint16_t* numbers_at(const DeltaNetCall& a, int64_t at) {
  return reinterpret_cast<uint16_t*>(a.scratch + at);
}

/// Tokens of a part that are a chunk.
struct ChunkPlace {
  int64_t row = 0;
  int count = 0;  // 0: there is no such chunk
};

__device__ inline ChunkPlace place_of(const DeltaNetCall& a, int chunk) {
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

__device__ inline int first_chunk_of(const DeltaNetCall& a, int64_t part) {
  int chunk = 0;
  for (int64_t i = 0; i < part; ++i) chunk += (a.parts[i].num_tokens + kChunk - 1) / kChunk;
  return chunk;
}

/// Begins to copy kChunk rows of `cols` numbers, a multiple of 8; those from `count` on are zero.
__device__ inline void copy_rows(const SharedTile& to, const uint16_t* from, int64_t stride,
                                 int cols, int count) {
  const int eights = cols / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * eights;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / eights;
    const int col = i % eights * 8;
    const bool there = row < count;
    cp_async_zfill<16>(to.address + (row * to.stride + col) * 2,
                       from + (there ? row * stride + col : 0), there);
  }
}

}  // namespace subbyte::cuda
