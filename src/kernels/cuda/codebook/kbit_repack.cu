// Blocks of kbit from rows to tiles and back.

#include "kernels/cuda/codebook/kbit.h"
#include "kernels/cuda/codebook/kbit_blocks.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

using namespace kbit;

/// Sizes of a CTA's part. Its neighbour has the next rows of the same tiles where tiles are
/// written, or the next groups of the same rows where rows are, so that what one writes goes on
/// where the other's begins. Runs of rows are whole sectors of memory there, scales included. Few
/// bits take more blocks, so that enough loads are on their way.
template <int kBits, bool kToTiled>
struct RepackShape {
  static constexpr int kBlocks = kBits == 2 || (kBits == 3 && !kToTiled) ? 1024 : 512;
  static constexpr int kRows = kToTiled ? 64 : 16;
  static constexpr int kGroups = kBlocks / kRows;
  static constexpr int kTiles = kGroups / 2;
  static constexpr int kScalesOfTile = 2 * kRows;
};

struct RepackArguments {
  const uint32_t* packed_from;
  const uint8_t* absmax_from;
  uint32_t* packed;
  uint8_t* absmax;
  int64_t rows;
  int64_t groups;       // of a row
  uint32_t neighbours;  // CTAs in a row of neighbours
};

/// Places of a block of a CTA on both sides, of elements of which a block has `size`, from the
/// CTA's first.
struct Sides {
  int64_t groups;        // of a row of the matrix
  uint32_t tile_blocks;  // of a tile of the matrix, all of its rows

  __device__ uint32_t flat(int row, int group, int size) const {
    return (row * static_cast<uint32_t>(groups) + group) * size;
  }
  __device__ uint64_t tiled(int tile, int of_tile, int size) const {
    return uint64_t{tile_blocks} * static_cast<uint32_t>(tile * size) + of_tile;
  }
};

/// Brings scales of the side that is read into shared memory, in the order of the tiles, or stores
/// them from there.
template <class Shape, bool kIsFlat, class Visit>
__device__ __forceinline__ void each_scale(const Sides& sides, const Visit& visit) {
#pragma unroll
  for (int i = threadIdx.x; i < Shape::kBlocks; i += kThreads) {
    if constexpr (kIsFlat) {
      const int row = i / Shape::kGroups;
      const int group = i % Shape::kGroups;
      visit(sides.flat(row, group, 1), group / 2 * Shape::kScalesOfTile + row * 2 + group % 2,
            group);
    } else {
      const int tile = i / Shape::kScalesOfTile;
      visit(sides.tiled(tile, i % Shape::kScalesOfTile, 1), i, 2 * tile + i % 2);
    }
  }
}

/// The same of codes, of which there are kBits words a block.
template <class Shape, int kBits, bool kIsFlat, class Visit>
__device__ __forceinline__ void each_word(const Sides& sides, const Visit& visit) {
  constexpr int kRun = 2 * kBits;               // words of a row in a tile
  constexpr int kOfTile = Shape::kRows * kRun;  // words
  constexpr int kPlaces = kOfTile + kRun;       // so that runs of a row lie in other banks
#pragma unroll
  for (int j = 0; j < Shape::kBlocks * kBits / kThreads; ++j) {
    const int i = j * kThreads + static_cast<int>(threadIdx.x);
    if constexpr (kIsFlat) {
      const int row = i / (Shape::kGroups * kBits);
      const int word = i % (Shape::kGroups * kBits);
      visit(j, sides.flat(row, 0, kBits) + word, word / kRun * kPlaces + row * kRun + word % kRun,
            word / kBits);
    } else {
      const int tile = i / kOfTile;
      visit(j, sides.tiled(tile, i % kOfTile, kBits), tile * kPlaces + i % kOfTile, 2 * tile);
    }
  }
}

/// Blocks lie in shared memory in the order of the tiles, so that both sides are read and written
/// by whole runs.
template <int kBits, bool kToTiled>
__global__ void __launch_bounds__(kThreads) repack(const __grid_constant__ RepackArguments a) {
  using Shape = RepackShape<kBits, kToTiled>;
  constexpr int kWords = Shape::kBlocks * kBits / kThreads;
  __shared__ uint32_t words[Shape::kTiles * (Shape::kRows + 1) * 2 * kBits];
  __shared__ uint8_t scales[Shape::kBlocks];
  begin_operation();
  const uint32_t far = blockIdx.x / a.neighbours;
  const uint32_t near = blockIdx.x - far * a.neighbours;
  const int64_t row0 = int64_t{kToTiled ? near : far} * Shape::kRows;
  const int64_t group0 = int64_t{kToTiled ? far : near} * Shape::kGroups;
  // The first block in both orders.
  const int64_t flat0 = row0 * a.groups + group0;
  const int64_t tiled0 = ((group0 / 2 * (a.rows / 128) + row0 / 128) * 128 + row0 % 128) * 2;
  const int64_t from0 = kToTiled ? flat0 : tiled0;
  const int64_t to0 = kToTiled ? tiled0 : flat0;
  const Sides sides = {a.groups, static_cast<uint32_t>(a.rows) * 2};
  // Tiles have an even number of groups, of which the last may be none of the matrix.
  const int groups = static_cast<int>(min(a.groups - group0, int64_t{Shape::kGroups}));
  const int to_groups = kToTiled ? (groups + 1) / 2 * 2 : groups;
  uint32_t loaded[kWords];
  each_word<Shape, kBits, kToTiled>(sides, [&](int j, uint64_t at, int, int group) {
    loaded[j] = group < groups ? a.packed_from[from0 * kBits + at] : 0;
  });
  each_scale<Shape, kToTiled>(sides, [&](uint64_t at, int place, int group) {
    scales[place] = group < groups ? a.absmax_from[from0 + at] : 0;
  });
  each_word<Shape, kBits, kToTiled>(
      sides, [&](int j, uint64_t, int place, int) { words[place] = loaded[j]; });
  __syncthreads();
  each_word<Shape, kBits, !kToTiled>(sides, [&](int, uint64_t at, int place, int group) {
    if (group < to_groups) a.packed[to0 * kBits + at] = words[place];
  });
  each_scale<Shape, !kToTiled>(sides, [&](uint64_t at, int place, int group) {
    if (group < to_groups) a.absmax[to0 + at] = scales[place];
  });
}

/// A kernel, and what a CTA of it has.
struct Repack {
  void (*kernel)(RepackArguments);
  int64_t rows;
  int64_t groups;
};

template <int kBits, bool kToTiled>
constexpr Repack repack_of() {
  using Shape = RepackShape<kBits, kToTiled>;
  return {repack<kBits, kToTiled>, Shape::kRows, Shape::kGroups};
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
  constexpr Repack kToTiles[] = {repack_of<2, true>(), repack_of<3, true>(), repack_of<4, true>(),
                                 repack_of<5, true>()};
  constexpr Repack kFromTiles[] = {repack_of<2, false>(), repack_of<3, false>(),
                                   repack_of<4, false>(), repack_of<5, false>()};
  const Repack repack = by_bits(to.k, to_tiled ? kToTiles : kFromTiles);
  const int64_t group_ctas = (groups + repack.groups - 1) / repack.groups;
  const int64_t row_ctas = rows / repack.rows;
  const int64_t ctas = row_ctas * group_ctas;
  if (cols > kMaxCols) return wrong_shape(kWhat, "at most 2^24 - 512 inputs", cols);
  if (rows > kMaxRows) return wrong_shape(kWhat, "at most 2^26 outputs", rows);
  if (ctas > INT32_MAX) return wrong_shape(kWhat, "fewer than 2^40 weights", flat * kBlock);
  const RepackArguments a = {from.packed,
                             static_cast<const uint8_t*>(from.absmax),
                             to.packed,
                             static_cast<uint8_t*>(to.absmax),
                             rows,
                             groups,
                             static_cast<uint32_t>(to_tiled ? row_ctas : group_ctas)};
  const dim3 grid(static_cast<unsigned>(ctas));
  if (flat > 0) {
    launch(repack.kernel, {grid, kThreads}, stream, a);
  }
  pad(to, to_tiled ? tiled : flat, stream);
  return launched(kWhat);
}

}  // namespace subbyte::cuda
