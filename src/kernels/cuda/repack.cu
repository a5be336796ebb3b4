// Packing on the GPU: pack_on_host(), done by as many warps as there are tiles.

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/linear.h"

namespace subbyte::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kLanes;

struct PackArguments {
  std::byte* to;
  const uint8_t* codes;   // canonical
  const uint8_t* scales;  // [rows][groups]
  const uint8_t* zeros;
  int64_t row_bytes;
  int64_t rows;
  int64_t cols;
  int64_t groups;  // of a row
  int64_t strips;
  int64_t tiles;
  int64_t blocks;
  int64_t scales_begin;
  int64_t zeros_begin;
  int groups_per_tile;
  int scale_bytes;
  int zero_bytes;
  RowOrder row_order;
};

/// The codes of 64 inputs of a row are 8 * kBits bytes, zeros beyond the matrix. Two lanes a row.
template <int kBits>
__device__ void load_row(uint8_t* to, const PackArguments& a, int64_t row, int64_t tile, int half) {
  constexpr int kBytes = 8 * kBits;
  const int64_t begin = tile * kBytes;
  const uint8_t* from = a.codes + row * a.row_bytes + begin;
  const int64_t there = row < a.rows ? a.row_bytes - begin : 0;
  if (there >= kBytes && reinterpret_cast<uintptr_t>(from) % 8 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 8; i += 2) {
      if (i + half >= kBytes / 8) break;
      const uint2 v = __ldcs(reinterpret_cast<const uint2*>(from) + i + half);
      uint32_t* words = reinterpret_cast<uint32_t*>(to) + 2 * (i + half);
      words[0] = v.x;
      words[1] = v.y;
    }
    return;
  }
  for (int i = half; i < kBytes; i += 2) to[i] = i < there ? from[i] : 0;
}

/// The codes of columns col, which is even, and col + 1: the second above the first.
template <int kBits>
__device__ uint32_t pair_of(const uint8_t* row, int col) {
  const int bit = col * kBits;
  const uint8_t* from = row + bit / 8;
  uint32_t bytes = from[0];
  if constexpr (kBits > 4 || kBits == 3) bytes |= uint32_t{from[1]} << 8;
  if constexpr (kBits == 5) bytes |= uint32_t{from[2]} << 16;
  return bytes >> bit % 8 & ((1u << 2 * kBits) - 1);
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

/// A warp packs a tile: rows to shared memory, words from there.
template <int kBits, CodeOrder kOrder>
__global__ void __launch_bounds__(kThreads) pack_codes(const __grid_constant__ PackArguments a) {
  // Four bytes more, so that rows begin in different banks and a pair may be read beyond the last.
  constexpr int kRowBytes = 8 * kBits + 4;
  constexpr int kLowBits = kBits == 3 ? 2 : kBits == 5 ? 4 : kBits;
  constexpr uint32_t kLowMask = (1u << kLowBits) - 1;
  __shared__ __align__(8) uint8_t shared[kWarps][kStripRows * kRowBytes];
  const int lane = threadIdx.x % kLanes;
  uint8_t* const rows = shared[threadIdx.x / kLanes];
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; t < a.strips * a.tiles;
       t += step) {
    const uint32_t strip = static_cast<uint32_t>(t) / static_cast<uint32_t>(a.tiles);
    const uint32_t tile = static_cast<uint32_t>(t) - strip * static_cast<uint32_t>(a.tiles);
    __syncwarp();
    load_row<kBits>(rows + lane / 2 * kRowBytes, a,
                    source_row(a.row_order, strip, lane / 2, a.rows), tile, lane % 2);
    __syncwarp();
    const bool is_last = (int64_t{tile} + 1) * kTileCols > a.cols;
    uint32_t words[kBits] = {};
#pragma unroll
    for (int i = 0; i < kSteps * 4; ++i) {
      const Slot slot = {lane, i / 4, i % 4, 0};
      uint32_t pair = pair_of<kBits>(rows + row_of(slot) * kRowBytes, col_of(slot));
      if (is_last) {  // what follows the last code in its byte is anything
        const int64_t left = a.cols - int64_t{tile} * kTileCols - col_of(slot);
        pair = left <= 0 ? 0 : left == 1 ? pair & ((1u << kBits) - 1) : pair;
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t code = pair >> h * kBits & ((1u << kBits) - 1);
        // In its words a code has the same place in all lanes.
        const Slot place = {0, i / 4, i % 4, h};
        const BitPlace low = bit_place(place, 0, kBits, kOrder);
        words[low.word] |= (code & kLowMask) << low.bit;
        if constexpr (kBits > kLowBits) {
          const BitPlace high = bit_place(place, kBits - 1, kBits, kOrder);
          words[high.word] |= code >> kLowBits << high.bit;
        }
      }
    }
    uint32_t* const to = reinterpret_cast<uint32_t*>(a.to + t * tile_bytes(kBits));
    store_piece<first_piece(kBits)>(to + word_in_tile(lane, 0, kBits), words);
    if constexpr (second_piece(kBits) > 0) {
      store_piece<second_piece(kBits)>(to + word_in_tile(lane, first_piece(kBits), kBits),
                                       words + first_piece(kBits));
    }
  }
}

/// Scales or zero points of `width` bytes; those of padding are zero.
__global__ void pack_groups(const __grid_constant__ PackArguments a, std::byte* to,
                            const uint8_t* from, int width) {
  const int64_t of_block = int64_t{a.groups_per_tile} * kStripRows;
  const int64_t size = a.strips * a.blocks * of_block;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    const int64_t strip = i / of_block / a.blocks;
    const int64_t block = i / of_block % a.blocks;
    const int in_block = static_cast<int>(i % of_block);  // [row % 8][group][row / 8]
    const int row = in_block / 2 / a.groups_per_tile + in_block % 2 * 8;
    const int64_t group = block * a.groups_per_tile + in_block / 2 % a.groups_per_tile;
    const int64_t source = source_row(a.row_order, strip, row, a.rows);
    for (int byte = 0; byte < width; ++byte) {
      to[i * width + byte] = source < a.rows && group < a.groups
                                 ? std::byte{from[(source * a.groups + group) * width + byte]}
                                 : std::byte{0};
    }
  }
}

using PackKernel = void (*)(PackArguments);

PackKernel kernel_for(const PackedFormat& format) {
  if (code_order(format) == CodeOrder::kPairs) {
    return format.bits == 2   ? pack_codes<2, CodeOrder::kPairs>
           : format.bits == 3 ? pack_codes<3, CodeOrder::kPairs>
                              : pack_codes<4, CodeOrder::kPairs>;
  }
  switch (format.bits) {
    case 2:
      return pack_codes<2, CodeOrder::kHalves>;
    case 3:
      return pack_codes<3, CodeOrder::kHalves>;
    case 4:
      return pack_codes<4, CodeOrder::kHalves>;
    case 5:
      return pack_codes<5, CodeOrder::kHalves>;
    default:
      return pack_codes<8, CodeOrder::kHalves>;
  }
}

PackArguments arguments_of(std::byte* to, const MatrixView& matrix, const PackedFormat& format) {
  PackArguments a = {};
  a.to = to;
  a.codes = reinterpret_cast<const uint8_t*>(matrix.codes.data());
  a.scales = reinterpret_cast<const uint8_t*>(matrix.scales.data());
  a.zeros = reinterpret_cast<const uint8_t*>(matrix.zeros.data());
  a.row_bytes = matrix.row_bytes();
  a.rows = format.rows;
  a.cols = format.cols;
  a.groups = matrix.groups();
  a.strips = format.strips;
  a.tiles = format.tiles;
  a.blocks = format.blocks;
  a.scales_begin = format.scales_begin;
  a.zeros_begin = format.zeros_begin;
  a.groups_per_tile = format.groups_per_tile;
  a.scale_bytes = scale_bytes(format.scale_kind);
  a.zero_bytes = format.zero_bytes;
  a.row_order = format.row_order;
  return a;
}

unsigned blocks_for(int64_t size, int64_t each) {
  return static_cast<unsigned>(std::clamp<int64_t>((size + each - 1) / each, 1, 1 << 16));
}

}  // namespace

Status pack_on_device(std::byte* to, const MatrixView& matrix, const PackedFormat& format,
                      Stream stream) {
  const PackArguments a = arguments_of(to, matrix, format);
  const int64_t codes_end = a.strips * a.tiles * tile_bytes(format.bits);
  cudaError_t error = cudaMemsetAsync(to + codes_end, 0, format.bytes - codes_end, stream);
  if (error == cudaSuccess) {
    kernel_for(format)<<<blocks_for(a.strips * a.tiles, kWarps), kThreads, 0, stream>>>(a);
    const int64_t groups = a.strips * a.blocks * a.groups_per_tile * kStripRows;
    pack_groups<<<blocks_for(groups, 256), 256, 0, stream>>>(a, to + a.scales_begin, a.scales,
                                                             a.scale_bytes);
    if (a.zero_bytes != 0) {
      pack_groups<<<blocks_for(groups, 256), 256, 0, stream>>>(a, to + a.zeros_begin, a.zeros,
                                                               a.zero_bytes);
    }
    error = cudaGetLastError();
  }
  if (error == cudaSuccess && !matrix.input_order.empty()) {
    error = cudaMemcpyAsync(to + format.gather_begin, matrix.input_order.data(),
                            matrix.input_order.size_bytes(), cudaMemcpyDeviceToDevice, stream);
  }
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("pack_on_device: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
