#include "checkpoints/transpose.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace subbyte {
namespace {

// Vectors of the compiler: every x86-64 and every 64-bit ARM machine has them.
using Bytes [[gnu::vector_size(16)]] = uint8_t;
using Pairs [[gnu::vector_size(16)]] = uint16_t;
using Words [[gnu::vector_size(16)]] = uint32_t;

constexpr int64_t kVector = 16;
constexpr int64_t kLine = 64;  // of the cache
// A tile takes a line of each of its source rows and gives two to each row of the result: fewer and
// longer runs than with one line (a fifth faster), and the tile still fits the first cache.
constexpr int64_t kTileRowBytes = 2 * kLine;
// What is resident of the source at a time, when it is given back on the way.
constexpr int64_t kSlabBytes = int64_t{8} << 20;
constexpr int64_t kReleaseGrain = int64_t{1} << 20;

// Alternately one element of a and one of b, from their first or their second halves.
Bytes zip_low(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
Bytes zip_high(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
Pairs zip_low(Pairs a, Pairs b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Pairs zip_high(Pairs a, Pairs b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
Words zip_low(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
Words zip_high(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

/// A square matrix of as many vectors as a vector has elements, transposed. A round zips vector i
/// with vector i + n/2, which rotates the bits of every element's index (vector, lane) by one;
/// after log2(n) rounds vector and lane have changed places.
template <std::size_t kRound = 1, typename Vector, std::size_t kSize>
[[gnu::always_inline]] inline void transpose_square(std::array<Vector, kSize>& m) {
  if constexpr (kRound < kSize) {
    std::array<Vector, kSize> next;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kSize / 2; ++i) {
      next[2 * i] = zip_low(m[i], m[i + kSize / 2]);
      next[2 * i + 1] = zip_high(m[i], m[i + kSize / 2]);
    }
    m = next;
    transpose_square<2 * kRound>(m);
  }
}

/// What a block reads: `rows` rows of `bytes` bytes, `stride` apart.
struct Source {
  const std::byte* data;
  int64_t stride;
  int64_t rows;
  int64_t bytes;
};

/// 16 bytes of row `row` of a block, zeros outside of the source.
template <typename Vector>
[[gnu::always_inline]] inline Vector load_row(const Source& from, int64_t row) {
  Vector vector = {};
  if (row >= from.rows) return vector;
  const std::byte* data = from.data + row * from.stride;
  if (from.bytes >= kVector) {
    std::memcpy(&vector, data, kVector);
  } else {
    std::memcpy(&vector, data, static_cast<std::size_t>(from.bytes));
  }
  return vector;
}

// A kind of transposition says what a block is. It reads 16 bytes of each of kRows rows and writes
// 16 bytes to each of kOutputs rows of a tile; `bytes` is the size of
// that many source rows in a row of the result.

/// Elements as they are.
template <typename Vector, std::size_t kSize>
struct Elements {
  static constexpr int64_t kRows = kSize;
  static constexpr int64_t kOutputs = kSize;
  static int64_t bytes(int64_t rows) { return rows * (kVector / kRows); }

  static void block(const Source& from, std::byte* to) {
    std::array<Vector, kSize> m;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kSize; ++i) m[i] = load_row<Vector>(from, i);
    transpose_square(m);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kSize; ++i) std::memcpy(to + i * kTileRowBytes, &m[i], kVector);
  }
};

// A byte of an AWQ word holds two outputs; those of the low and of the high nibbles:
constexpr int64_t kLowOutputs[4] = {0, 4, 1, 5};
constexpr int64_t kHighOutputs[4] = {2, 6, 3, 7};

/// m[i] holds output kOrder[i % 4] of word i / 4.
[[gnu::always_inline]] inline void store_outputs(const std::array<Bytes, 16>& m,
                                                 const int64_t (&order)[4], std::byte* to) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    std::memcpy(to + (8 * (i / 4) + order[i % 4]) * kTileRowBytes, &m[i], kVector);
  }
}

constexpr Bytes low_nibbles(Bytes bytes) {
  return bytes & 0x0F;
}

Bytes high_nibbles(Bytes bytes) {
  return low_nibbles(Bytes(Pairs(bytes) >> 4));
}

/// Two nibbles of an output, of neighbouring rows, share a byte.
struct AwqNibbles {
  static constexpr int64_t kRows = 32;
  static constexpr int64_t kOutputs = 32;
  static int64_t bytes(int64_t rows) { return rows / 2; }

  static void block(const Source& from, std::byte* to) {
    std::array<Bytes, 16> low;
    std::array<Bytes, 16> high;
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) {
      const auto even = load_row<Bytes>(from, 2 * i);
      const auto odd = load_row<Bytes>(from, 2 * i + 1);
      low[i] = low_nibbles(even) | Bytes(Pairs(low_nibbles(odd)) << 4);
      high[i] = high_nibbles(even) | (odd & 0xF0);
    }
    transpose_square(low);
    store_outputs(low, kLowOutputs, to);
    transpose_square(high);
    store_outputs(high, kHighOutputs, to);
  }
};

struct AwqNibblesToBytes {
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kOutputs = 32;
  static int64_t bytes(int64_t rows) { return rows; }

  static void block(const Source& from, std::byte* to) {
    std::array<Bytes, 16> low;
    std::array<Bytes, 16> high;
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) {
      const auto row = load_row<Bytes>(from, i);
      low[i] = low_nibbles(row);
      high[i] = high_nibbles(row);
    }
    transpose_square(low);
    store_outputs(low, kLowOutputs, to);
    transpose_square(high);
    store_outputs(high, kHighOutputs, to);
  }
};

/// Writes a line past the cache: the result is not read again soon, and a line that is written
/// whole need not be read from memory first, which is most of the time otherwise (measured: 5.3
/// instead of 2.0 GB/s on one core). `to` is aligned to a line.
void stream_line(std::byte* to, const std::byte* from) {
#if defined(__x86_64__)
  for (int64_t i = 0; i < kLine; i += kVector) {
    Bytes vector;
    std::memcpy(&vector, from + i, kVector);
    auto& target = *reinterpret_cast<std::byte(*)[kVector]>(to + i);
    asm volatile("movntdq %1, %0" : "=m"(target) : "x"(vector));
  }
#else
  std::memcpy(to, from, kLine);
#endif
}

/// Streamed lines are not ordered with what follows, such as the word that this share is done.
void finish_lines() {
#if defined(__x86_64__)
  asm volatile("sfence" : : : "memory");
#endif
}

/// The result of one tile: `outputs` rows of `bytes` <= kTileRowBytes bytes.
void write_tile(std::byte* to, int64_t stride, const std::byte* tile, int64_t outputs,
                int64_t bytes) {
  const bool aligned = reinterpret_cast<uintptr_t>(to) % kLine == 0 && stride % kLine == 0;
  for (int64_t i = 0; i < outputs; ++i, to += stride, tile += kTileRowBytes) {
    if (aligned && bytes == kTileRowBytes) {
      for (int64_t line = 0; line < kTileRowBytes; line += kLine) {
        stream_line(to + line, tile + line);
      }
    } else {
      std::memcpy(to, tile, static_cast<std::size_t>(bytes));
    }
  }
}

struct Job {
  std::byte* to;
  const std::byte* from;
  int64_t rows;
  int64_t row_bytes;  // of the source
};

/// Source rows [first_row, last_row), tiles [first_tile, last_tile) of each. Tiles of the same rows
/// follow each other: the source lies in small pages, the result mostly in large ones.
template <typename Kind>
void transpose_tiles(const Job& job, int64_t first_row, int64_t last_row, int64_t first_tile,
                     int64_t last_tile) {
  constexpr int64_t kTileRows = kTileRowBytes / kVector * Kind::kRows;
  alignas(kLine) std::byte tile[kLine / kVector * Kind::kOutputs * kTileRowBytes];
  const int64_t stride = Kind::bytes(job.rows);
  for (int64_t k = first_row; k < last_row; k += kTileRows) {
    const int64_t rows = std::min(kTileRows, last_row - k);
    for (int64_t t = first_tile; t < last_tile; ++t) {
      const int64_t column = t * kLine;
      const int64_t bytes = std::min(kLine, job.row_bytes - column);
      const std::byte* from = job.from + k * job.row_bytes + column;
      for (int64_t r = 0; r < rows; r += Kind::kRows) {
        for (int64_t c = 0; c < bytes; c += kVector) {
          Kind::block(
              {from + r * job.row_bytes + c, job.row_bytes, rows - r, bytes - c},
              tile + c / kVector * Kind::kOutputs * kTileRowBytes + r / Kind::kRows * kVector);
        }
      }
      write_tile(job.to + column / kVector * Kind::kOutputs * stride + Kind::bytes(k), stride, tile,
                 bytes * Kind::kOutputs / kVector, Kind::bytes(rows));
    }
  }
}

/// Gives the pages of [from, from + bytes) back.
void release_pages(const MappedFile& file, const std::byte* from, int64_t bytes,
                   Executor& executor) {
  executor.parallel_for(bytes, kReleaseGrain, [&](int64_t begin, int64_t end, int) {
    file.release({from + begin, static_cast<std::size_t>(end - begin)});
  });
}

template <typename Kind>
void run(std::byte* to, const std::byte* from, int64_t rows, int64_t row_bytes, Executor& executor,
         const MappedFile* file) {
  const int64_t tiles = (row_bytes + kLine - 1) / kLine;
  const int64_t tile_rows = kTileRowBytes / kVector * Kind::kRows;
  const int64_t slab = std::max<int64_t>(1, kSlabBytes / (tile_rows * row_bytes)) * tile_rows;
  for (int64_t first = 0; first < rows; first += slab) {
    const int64_t last = std::min(rows, first + slab);
    executor.parallel_for(tiles, 1, [&](int64_t begin, int64_t end, int) {
      transpose_tiles<Kind>({to, from, rows, row_bytes}, first, last, begin, end);
      finish_lines();
    });
    if (file == nullptr) continue;
    release_pages(*file, from + first * row_bytes, (last - first) * row_bytes, executor);
  }
}

}  // namespace

void transpose(std::byte* to, const std::byte* from, int64_t rows, int64_t cols, int width,
               Executor& executor, const MappedFile* file) {
  switch (width) {
    case 1:
      return run<Elements<Bytes, 16>>(to, from, rows, cols, executor, file);
    case 2:
      return run<Elements<Pairs, 8>>(to, from, rows, 2 * cols, executor, file);
    default:
      return run<Elements<Words, 4>>(to, from, rows, 4 * cols, executor, file);
  }
}

void transpose_awq_nibbles(std::byte* to, const std::byte* from, int64_t rows, int64_t words,
                           Executor& executor, const MappedFile* file) {
  run<AwqNibbles>(to, from, rows, 4 * words, executor, file);
}

void transpose_awq_nibbles_to_bytes(std::byte* to, const std::byte* from, int64_t rows,
                                    int64_t words, Executor& executor) {
  run<AwqNibblesToBytes>(to, from, rows, 4 * words, executor, nullptr);
}

}  // namespace subbyte
