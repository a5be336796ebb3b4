// Packing on the GPU: pack_on_host() by warps, each with some neighbouring tiles of a strip, so
// that it reads a run of bytes from each of 16 rows: 32 times the bits of a code, 16 times at 16
// bits.

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>

#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/linear.h"

namespace subbyte::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kLanes;

/// Tiles of a warp, as many as its shared memory has room for.
__host__ __device__ constexpr int tiles_of_warp(int bits) {
  return bits > 8 ? 2 : 4;
}

/// What follows the codes: `size` elements of `width` bytes, up to the next section. In the matrix
/// they have from_width: what is more is zero there, or here.
struct Section {
  std::byte* to;
  const uint8_t* from;
  int64_t size;
  int width;
  int from_width;
};

struct PackArguments {
  std::byte* to;
  const uint8_t* codes;  // canonical
  int64_t rows;
  int row_bytes;
  int cols;
  uint32_t groups;  // of a row
  uint32_t warps;
  uint32_t warps_of_strip;
  uint32_t tiles;            // of a strip
  uint32_t scales_of_strip;  // padding included
  int groups_log2;           // of a tile
  bool aligned;              // rows begin and end at multiples of 16 bytes
  RowOrder row_order;
  Section padding;  // of the codes
  Section scales;   // where they have one level
  Section zeros;
  Section gather;
  int64_t elements;  // of the longest of them
  // Where scales have two levels:
  Superblock form;
  CanonicalNumbers numbers;
  uint32_t superblocks;  // of a strip
  int64_t all_superblocks;
};

/// Element `i` of a section is element `source` of the matrix, or zero if that is negative.
__device__ void put(const Section& section, int64_t i, int64_t source) {
  if (i >= section.size) return;
  const int width = section.width;
  uint32_t value = 0;
  if (source >= 0) {  // at any address
    const int from_width = section.from_width;
    const uint8_t* const from = section.from + source * from_width;
    value = from[0];
    if (from_width > 1) value |= from[1] << 8;
    if (from_width > 2) value |= from[2] << 16 | uint32_t{from[3]} << 24;
  }
  if (width == 1) reinterpret_cast<uint8_t*>(section.to)[i] = static_cast<uint8_t>(value);
  if (width == 2) reinterpret_cast<uint16_t*>(section.to)[i] = static_cast<uint16_t>(value);
  if (width == 4) reinterpret_cast<uint32_t*>(section.to)[i] = value;
}

/// Scales and zero points are [strip][block][row % 8][group][row / 8], fewer than 2^32.
__device__ int64_t scale_of_element(const PackArguments& a, int64_t i) {
  if (i > UINT32_MAX) return -1;
  const uint32_t strip = static_cast<uint32_t>(i) / a.scales_of_strip;
  const uint32_t in_strip = static_cast<uint32_t>(i) - strip * a.scales_of_strip;
  const uint32_t pair = in_strip / 2;
  const uint32_t block = pair / 8 >> a.groups_log2;
  const int row = static_cast<int>((pair >> a.groups_log2) % 8 + in_strip % 2 * 8);
  const uint32_t group = (block << a.groups_log2) + (pair & ((1u << a.groups_log2) - 1));
  const int64_t source = source_row(a.row_order, strip, row, a.rows);
  return source < a.rows && group < a.groups ? source * a.groups + group : -1;
}

/// Byte `i` of the superblocks of all strips, and of what follows them.
__device__ void put_of_superblock(const PackArguments& a, int64_t i) {
  const int64_t index = i / a.form.bytes();
  if (index >= a.all_superblocks) {
    a.scales.to[i] = std::byte{0};
    return;
  }
  const SuperblockNumber number = number_at(a.form, static_cast<int>(i - index * a.form.bytes()));
  const int64_t strip = index / a.superblocks;
  const int64_t row = source_row(a.row_order, strip, number.row, a.rows);
  const uint8_t byte = superblock_byte(a.form, a.numbers, number, row < a.rows ? row : -1,
                                       index - strip * a.superblocks);
  a.scales.to[i] = static_cast<std::byte>(byte);
}

/// Begins to copy bytes [begin, begin + kRowBytes) of the 16 rows of a strip to shared memory, in
/// pieces none of which is partly outside the matrix; what is outside becomes zeros.
template <class Piece, int kRowBytes, int kStride>
__device__ void load_rows(uint8_t* to, const PackArguments& a, uint32_t strip, int begin,
                          int lane) {
  constexpr int kSize = sizeof(Piece);
  constexpr int kPieces = kRowBytes / kSize;
  const int64_t source = source_row(a.row_order, strip, lane % kStripRows, a.rows);
  const int64_t row_of_lane = source < a.rows ? source * a.row_bytes : -1;
#pragma unroll 8
  for (int j = 0; j < kStripRows * kPieces / kLanes; ++j) {
    const int i = j * kLanes + lane;
    const int at = i % kPieces * kSize;
    uint8_t* const piece = to + i / kPieces * kStride + at;
    const int64_t row = __shfl_sync(~0u, row_of_lane, i / kPieces);
    if (row < 0 || begin + at >= a.row_bytes) {
      *reinterpret_cast<Piece*>(piece) = Piece{};
    } else if constexpr (kSize == 16) {
      cp_async<16>(shared_address(piece), a.codes + row + begin + at);
    } else {
      *piece = a.codes[row + begin + at];
    }
  }
  cp_async_commit();
}

/// What follows the last code of a row in its byte is anything: it becomes zero. A lane a row.
__device__ void clear_after_last(uint8_t* row, const PackArguments& a, int bits, int begin,
                                 int row_bytes) {
  const int last = a.row_bytes - 1 - begin;
  const int used = a.cols * bits % 8;
  if (used != 0 && last >= 0 && last < row_bytes) row[last] &= (1 << used) - 1;
}

/// The codes of a tile in one row, kBits words for each 32 columns.
template <int kBits>
struct RowOfTile {
  alignas(16) uint32_t words[2 * kBits];

  __device__ explicit RowOfTile(const uint8_t* from) {
    using Load = std::conditional_t<kBits % 2 == 0, uint4, uint2>;  // a tile is some of them
    constexpr int kLoads = 8 * kBits / sizeof(Load);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      reinterpret_cast<Load*>(words)[i] = reinterpret_cast<const Load*>(from)[i];
    }
  }

  /// The codes of columns 8 `eight` + 2 t and the next: the second above the first.
  __device__ uint32_t pair(int eight, int t) const {
    using Eight = std::conditional_t<(kBits > 4), uint64_t, uint32_t>;
    const int bit = 8 * kBits * eight;
    uint64_t codes = words[bit / 32];
    if (bit / 32 + 1 < 2 * kBits) codes |= uint64_t{words[bit / 32 + 1]} << 32;
    const Eight codes_of_eight = static_cast<Eight>(codes >> bit % 32);
    return static_cast<uint32_t>(codes_of_eight >> 2 * kBits * t) & ((1u << 2 * kBits) - 1);
  }
};

/// From kPairs to kHalves: the low nibbles of the four bytes, then the high ones.
__device__ uint32_t low_nibbles_first(uint32_t pairs) {
  const uint32_t differ = (pairs ^ pairs >> 4) & 0x00f000f0;
  return __byte_perm(pairs ^ differ ^ differ << 4, 0, 0x3120);
}

/// 4 bits, where each pair is a byte.
template <CodeOrder kOrder>
__device__ void pack_nibbles(uint32_t (&words)[4], const RowOfTile<4>& top,
                             const RowOfTile<4>& bottom, int t) {
  const uint32_t byte_of_both = t | (4 + t) << 4;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t pairs = __byte_perm(
        __byte_perm(top.words[2 * step], bottom.words[2 * step], byte_of_both),
        __byte_perm(top.words[2 * step + 1], bottom.words[2 * step + 1], byte_of_both), 0x5410);
    words[step] = kOrder == CodeOrder::kPairs ? pairs : low_nibbles_first(pairs);
  }
}

/// 2 bits, where four inputs of a row are a byte.
__device__ void pack_fours(uint32_t (&words)[2], const RowOfTile<2>& top,
                           const RowOfTile<2>& bottom, int t) {
  const uint32_t byte_of_both = t | (4 + t) << 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[i] = __byte_perm(__byte_perm(top.words[2 * i], bottom.words[2 * i], byte_of_both),
                           __byte_perm(top.words[2 * i + 1], bottom.words[2 * i + 1], byte_of_both),
                           0x5410);
  }
}

/// The words of a lane of a tile, of its rows lane / 4 and lane / 4 + 8.
template <int kBits, CodeOrder kOrder>
__device__ void pack_tile(uint32_t (&words)[kBits], const RowOfTile<kBits>& top,
                          const RowOfTile<kBits>& bottom, int t) {
#pragma unroll
  for (int i = 0; i < kSteps * 4; ++i) {
    const uint32_t pair = (i % 2 == 0 ? top : bottom).pair(i / 2, t);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t code = pair >> h * kBits & ((1u << kBits) - 1);
      const Slot place = {0, i / 4, i % 4, h};  // in its words the same for all lanes
      const int together = bits_together(place, kBits, kOrder);
      const BitPlace first = bit_place(place, 0, kBits, kOrder);
      words[first.word] |= (code & ((1u << together) - 1)) << first.bit;
#pragma unroll
      for (int bit = 1; bit < kBits; ++bit) {
        const BitPlace at = bit_place(place, bit, kBits, kOrder);
        if (bit >= together) words[at.word] |= (code >> bit & 1) << at.bit;
      }
    }
  }
}

/// The words of a piece with one instruction.
template <int kWords>
__device__ void store_piece(uint32_t* to, const uint32_t* words) {
  if constexpr (kWords == 4) {
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
  } else {
    to[0] = words[0];
  }
}

template <int kBits, CodeOrder kOrder>
__device__ void pack_and_store(uint32_t* to, const uint8_t* row, int row_stride, int lane) {
  uint32_t words[kBits] = {};
  if constexpr (kBits == 16) {
    // A word is two neighbours of a row.
#pragma unroll
    for (int i = 0; i < kBits; ++i) {
      const uint8_t* const from = row + i % 2 * 8 * row_stride + i / 2 * 16 + lane % 4 * 4;
      words[i] = *reinterpret_cast<const uint32_t*>(from);
    }
  } else {
    const RowOfTile<kBits> top(row);
    const RowOfTile<kBits> bottom(row + 8 * row_stride);
    if constexpr (kBits == 4) {
      pack_nibbles<kOrder>(words, top, bottom, lane % 4);
    } else if constexpr (kOrder == CodeOrder::kFours) {
      pack_fours(words, top, bottom, lane % 4);
    } else {
      pack_tile<kBits, kOrder>(words, top, bottom, lane % 4);
    }
  }
  constexpr int kFirst = first_piece(kBits);
  store_piece<kFirst>(to + word_in_tile(lane, 0, kBits), words);
  if constexpr (second_piece(kBits) > 0) {
#pragma unroll
    for (int i = 0; i < pieces_after_first(kBits); ++i) {
      const int word = kFirst + i * second_piece(kBits);
      store_piece<second_piece(kBits)>(to + word_in_tile(lane, word, kBits), words + word);
    }
  }
}

/// While the codes of a warp are on their way it packs its share of everything else.
template <int kBits, CodeOrder kOrder>
__global__ void __launch_bounds__(kThreads) pack(const __grid_constant__ PackArguments a) {
  constexpr int kTiles = tiles_of_warp(kBits);
  constexpr int kRowBytes = kTiles * 8 * kBits;
  constexpr int kStride = kRowBytes + 16;  // rows begin in different banks
  __shared__ __align__(16) uint8_t shared[kWarps][kStripRows * kStride];
  const int lane = threadIdx.x % kLanes;
  const uint32_t warp = blockIdx.x * kWarps + threadIdx.x / kLanes;
  if (warp >= a.warps) return;
  uint8_t* const rows = shared[threadIdx.x / kLanes];
  const uint32_t strip = warp / a.warps_of_strip;
  const uint32_t first = (warp - strip * a.warps_of_strip) * kTiles;
  const int begin = static_cast<int>(first) * (8 * kBits);
  if (a.aligned) {
    load_rows<uint4, kRowBytes, kStride>(rows, a, strip, begin, lane);
  } else {
    load_rows<uint8_t, kRowBytes, kStride>(rows, a, strip, begin, lane);
  }
  for (int64_t i = int64_t{warp} * kLanes + lane; i < a.elements; i += int64_t{a.warps} * kLanes) {
    put(a.padding, i, -1);
    if (a.superblocks == 0) {
      const int64_t scale = scale_of_element(a, i);
      put(a.scales, i, scale);
      put(a.zeros, i, scale);
    } else if (i < a.scales.size) {
      put_of_superblock(a, i);
    }
    put(a.gather, i, i < a.cols ? i : -1);
  }
  cp_async_wait<0>();
  __syncwarp();
  if (lane < kStripRows) clear_after_last(rows + lane * kStride, a, kBits, begin, kRowBytes);
  __syncwarp();
  const uint8_t* const row = rows + lane / 4 * kStride;
  const int64_t tile = int64_t{strip} * a.tiles + first;
  std::byte* const to = a.to + tile * tile_bytes(kBits);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if (first + i >= a.tiles) break;
    pack_and_store<kBits, kOrder>(reinterpret_cast<uint32_t*>(to + i * tile_bytes(kBits)),
                                  row + i * 8 * kBits, kStride, lane);
  }
}

using PackKernel = void (*)(PackArguments);

PackKernel kernel_for(const PackedFormat& format) {
  if (code_order(format) == CodeOrder::kFours) return pack<2, CodeOrder::kFours>;
  if (code_order(format) == CodeOrder::kPairs) {
    return format.bits == 2   ? pack<2, CodeOrder::kPairs>
           : format.bits == 3 ? pack<3, CodeOrder::kPairs>
           : format.bits == 4 ? pack<4, CodeOrder::kPairs>
                              : pack<5, CodeOrder::kPairs>;
  }
  switch (format.bits) {
    case 2:
      return pack<2, CodeOrder::kHalves>;
    case 3:
      return pack<3, CodeOrder::kHalves>;
    case 4:
      return pack<4, CodeOrder::kHalves>;
    case 5:
      return pack<5, CodeOrder::kHalves>;
    case 6:
      return pack<6, CodeOrder::kHalves>;
    case 8:
      return pack<8, CodeOrder::kHalves>;
    default:
      return pack<16, CodeOrder::kHalves>;
  }
}

PackArguments arguments_of(std::byte* to, const MatrixView& matrix, const PackedFormat& format) {
  const int tiles = tiles_of_warp(format.bits);
  const int64_t warps_of_strip = (format.tiles + tiles - 1) / tiles;
  PackArguments a = {};
  a.to = to;
  a.codes = reinterpret_cast<const uint8_t*>(matrix.codes.data());
  a.rows = format.rows;
  a.row_bytes = static_cast<int>(matrix.row_bytes());  // packed_format() has at most 2^22 columns
  a.cols = static_cast<int>(format.cols);
  a.groups = static_cast<uint32_t>(matrix.groups());
  a.warps = static_cast<uint32_t>(format.strips * warps_of_strip);
  a.warps_of_strip = static_cast<uint32_t>(warps_of_strip);
  a.tiles = static_cast<uint32_t>(format.tiles);
  a.scales_of_strip = static_cast<uint32_t>(format.blocks * format.groups_per_tile * kStripRows);
  a.groups_log2 = std::countr_zero(static_cast<unsigned>(format.groups_per_tile));
  a.aligned = (reinterpret_cast<uintptr_t>(a.codes) | a.row_bytes) % 16 == 0;
  a.row_order = format.row_order;
  // A section that is not there begins where the next one does.
  const int64_t codes_end = format.strips * format.tiles * tile_bytes(format.bits);
  const int64_t scales_end = std::min(format.zeros_begin, format.gather_begin);
  const auto section = [&](int64_t begin, int64_t end, const void* from, int width,
                           int from_width) {
    return Section{to + begin, static_cast<const uint8_t*>(from), (end - begin) / width, width,
                   from_width};
  };
  const bool has_superblocks = in_superblocks(format);
  const int scale_size = has_superblocks ? 1 : scale_bytes(format.scale_kind);
  a.padding = section(codes_end, format.scales_begin, nullptr, 1, 1);
  a.scales = section(format.scales_begin, scales_end, matrix.scales.data(), scale_size, scale_size);
  if (format.zero_bytes != 0) {
    a.zeros = section(format.zeros_begin, format.gather_begin, matrix.zeros.data(),
                      format.zero_bytes, zero_bytes(matrix.format.zero));
  }
  if (has_superblocks) {
    a.form = superblock_of(format);
    a.numbers = canonical_numbers(matrix);
    a.superblocks = static_cast<uint32_t>(format.blocks);
    a.all_superblocks = format.strips * format.blocks;
  }
  a.gather = section(format.gather_begin, format.vectors_begin, matrix.input_order.data(), 4, 4);
  a.elements = std::max({a.padding.size, a.scales.size, a.zeros.size, a.gather.size});
  return a;
}

}  // namespace

Status pack_on_device(std::byte* to, const MatrixView& matrix, const PackedFormat& format,
                      Stream stream) {
  const PackArguments a = arguments_of(to, matrix, format);
  const unsigned blocks = a.warps / kWarps + (a.warps % kWarps != 0);
  kernel_for(format)<<<blocks, kThreads, 0, stream>>>(a);
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess && format.decoder == DecoderKind::kVectors) {
    // From the host, which has it copied when this returns.
    error = cudaMemcpyAsync(to + format.vectors_begin, matrix.codebook.data(),
                            matrix.codebook.size_bytes(), cudaMemcpyHostToDevice, stream);
  }
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("pack_on_device: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
