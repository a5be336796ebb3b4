// Blocks of kbit from rows to tiles and back.

#include "kernels/cuda/ops/kbit.h"
#include "kernels/cuda/ops/kbit_blocks.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

using namespace kbit;

constexpr int kRepackRows = 64;
constexpr int kRepackTiles = 4;
constexpr int kRepackGroups = 2 * kRepackTiles;
constexpr int kRepackBlocks = kRepackRows * kRepackGroups;

struct RepackArguments {
  const uint32_t* packed_from;
  const uint8_t* absmax_from;
  uint32_t* packed;
  uint8_t* absmax;
  int64_t rows;
  int64_t groups;  // of a row
};

/// The scales of a CTA, whose first block has these places, and `groups` groups of a row.
template <bool kToTiled>
__device__ __forceinline__ void repack_scales(const RepackArguments& a, int64_t flat0,
                                              int64_t tiled0, int groups) {
  const int even_groups = (groups + 1) / 2 * 2;
  const auto tile_blocks = static_cast<uint32_t>(a.rows) * 2;
#pragma unroll
  for (int j = 0; j < kRepackBlocks / kThreads; ++j) {
    const int i = j * kThreads + threadIdx.x;  // in the order of the tiles
    const int row = i / 2 % kRepackRows;
    const int group = i / (2 * kRepackRows) * 2 + i % 2;
    const int64_t flat = flat0 + row * a.groups + group;
    const int64_t tiled = tiled0 + int64_t{tile_blocks} * (group / 2) + row * 2 + group % 2;
    if (kToTiled && group < even_groups) {
      a.absmax[tiled] = group < groups ? a.absmax_from[flat] : 0;
    } else if (!kToTiled && group < groups) {
      a.absmax[flat] = a.absmax_from[tiled];
    }
  }
}

/// A CTA has 64 rows of eight groups, four tiles, which lie in shared memory in the order of the
/// tiles, so that both sides are read and written by whole runs.
template <int kBits, bool kToTiled>
__global__ void __launch_bounds__(kThreads) repack(const __grid_constant__ RepackArguments a) {
  constexpr int kRun = 2 * kBits;              // words of a row in a tile
  constexpr int kOfTile = kRepackRows * kRun;  // words
  constexpr int kWords = kRepackBlocks * kBits / kThreads;
  __shared__ uint32_t words[kRepackTiles * kOfTile];
  begin_operation();
  const int64_t row0 = int64_t{blockIdx.x} * kRepackRows;
  const int64_t group0 = int64_t{blockIdx.y} * kRepackGroups;
  // The first block in both orders; from there 32 bits are enough.
  const int64_t flat0 = row0 * a.groups + group0;
  const int64_t tiled0 = ((group0 / 2 * (a.rows / 128) + row0 / 128) * 128 + row0 % 128) * 2;
  const uint32_t* const from = a.packed_from + (kToTiled ? flat0 : tiled0) * kBits;
  uint32_t* const to = a.packed + (kToTiled ? tiled0 : flat0) * kBits;
  const auto row_words = static_cast<uint32_t>(a.groups) * kBits;
  const auto tile_blocks = static_cast<uint32_t>(a.rows) * 2;
  const int groups = static_cast<int>(min(a.groups - group0, int64_t{kRepackGroups}));
  uint32_t loaded[kWords];
#pragma unroll
  for (int j = 0; j < kWords; ++j) {
    const int i = j * kThreads + threadIdx.x;
    loaded[j] = 0;
    if constexpr (kToTiled) {
      const int word = i % (kRepackGroups * kBits);
      const uint32_t at = i / (kRepackGroups * kBits) * row_words + word;
      if (word < groups * kBits) loaded[j] = from[at];
    } else {
      const uint32_t at = i / kOfTile * tile_blocks * kBits + i % kOfTile;
      if (i / kOfTile * 2 < groups) loaded[j] = from[at];
    }
  }
  repack_scales<kToTiled>(a, flat0, tiled0, groups);
#pragma unroll
  for (int j = 0; j < kWords; ++j) {
    const int i = j * kThreads + threadIdx.x;
    int place = i;
    if constexpr (kToTiled) {
      const int word = i % (kRepackGroups * kBits);
      place = word / kRun * kOfTile + i / (kRepackGroups * kBits) * kRun + word % kRun;
    }
    words[place] = loaded[j];
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kWords; ++j) {
    const int i = j * kThreads + threadIdx.x;
    if constexpr (kToTiled) {
      const uint32_t at = i / kOfTile * tile_blocks * kBits + i % kOfTile;
      if (i / kOfTile * 2 < groups) to[at] = words[i];
    } else {
      const int word = i % (kRepackGroups * kBits);
      const int row = i / (kRepackGroups * kBits);
      const int place = word / kRun * kOfTile + row * kRun + word % kRun;
      if (word < groups * kBits) to[row * row_words + word] = words[place];
    }
  }
}

}  // namespace

Status repack_kbit(const KbitBuffers& from, const KbitBuffers& to, int64_t rows, int64_t cols,
                   bool to_tiled, Stream stream) {
  constexpr const char* kWhat = "repack kbit";
  if (cols % kBlock != 0) return wrong_shape(kWhat, "inputs in 32s", cols);
  if (rows % 128 != 0) return wrong_shape(kWhat, "outputs in 128s", rows);
  const int64_t groups = cols / kBlock;
  const int64_t flat = rows * groups;
  const int64_t tiled = rows * ((groups + 1) / 2 * 2);
  SUBBYTE_CHECK(check_buffers(kWhat, from, to_tiled ? flat : tiled));
  SUBBYTE_CHECK(check_buffers(kWhat, to, to_tiled ? tiled : flat));
  if (from.k != to.k)
    return wrong_shape(kWhat, std::to_string(from.k) + " bits on both sides", to.k);
  const int64_t tiles = (groups + kRepackGroups - 1) / kRepackGroups;
  if (cols > kMaxCols) return wrong_shape(kWhat, "at most 2^24 - 512 inputs", cols);
  if (rows > kMaxRows) return wrong_shape(kWhat, "at most 2^26 outputs", rows);
  const RepackArguments a = {from.packed, static_cast<const uint8_t*>(from.absmax),
                             to.packed,   static_cast<uint8_t*>(to.absmax),
                             rows,        groups};
  constexpr void (*kToTiles[])(RepackArguments) = {repack<2, true>, repack<3, true>,
                                                   repack<4, true>, repack<5, true>};
  constexpr void (*kFromTiles[])(RepackArguments) = {repack<2, false>, repack<3, false>,
                                                     repack<4, false>, repack<5, false>};
  const dim3 grid(static_cast<unsigned>(rows / kRepackRows), static_cast<unsigned>(tiles));
  if (flat > 0) {
    launch(by_bits(to.k, to_tiled ? kToTiles : kFromTiles), {grid, kThreads}, stream, a);
  }
  pad(to, to_tiled ? tiled : flat, stream);
  return launched(kWhat);
}

}  // namespace subbyte::cuda
