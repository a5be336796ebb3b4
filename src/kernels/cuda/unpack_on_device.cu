// The canonical matrix of a packed one, the inverse of pack_on_device().

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/linear.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

struct UnpackArguments {
  uint8_t* codes;
  const uint8_t* packed;
  int64_t rows;
  int64_t row_bytes;
  int64_t tiles;
  uint32_t cols;
  int bits;
  CodeOrder order;
  RowOrder row_order;
};

__device__ uint32_t code_of(const UnpackArguments& a, const PackedRow& place, uint32_t col) {
  const uint8_t* const tile =
      a.packed + (place.strip * a.tiles + col / kTileCols) * tile_bytes(a.bits);
  const Slot slot = slot_of(place.row, static_cast<int>(col % kTileCols));
  uint32_t code = 0;
  for (int bit = 0; bit < a.bits; ++bit) {
    const BitPlace at = bit_place(slot, bit, a.bits, a.order);
    const int word = word_in_tile(slot.lane, at.word, a.bits);
    code |= (reinterpret_cast<const uint32_t*>(tile)[word] >> at.bit & 1) << bit;
  }
  return code;
}

/// A thread has eight codes: whole bytes, but for the end of a row.
__global__ void __launch_bounds__(kThreads) unpack(const __grid_constant__ UnpackArguments a) {
  const int64_t chunks = (a.cols + 7) / 8;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.rows * chunks; i += step) {
    const int64_t row = i / chunks;
    const auto first = static_cast<uint32_t>((i - row * chunks) * 8);
    const uint32_t count = min(8u, a.cols - first);
    const PackedRow place = packed_row(a.row_order, row, a.rows);
    uint64_t codes = 0;
    for (uint32_t j = 0; j < count; ++j) {
      codes |= uint64_t{code_of(a, place, first + j)} << j * a.bits;
    }
    uint8_t* const to = a.codes + row * a.row_bytes + int64_t{first} / 8 * a.bits;
    for (uint32_t byte = 0; byte < (count * a.bits + 7) / 8; ++byte) {
      to[byte] = static_cast<uint8_t>(codes >> 8 * byte);
    }
  }
}

struct GroupArguments {
  uint8_t* to;
  const uint8_t* from;
  int64_t rows;
  int64_t groups;
  int64_t blocks;
  int groups_per_tile;
  int to_width;
  int from_width;
  RowOrder row_order;
};

__global__ void __launch_bounds__(kThreads)
    unpack_groups(const __grid_constant__ GroupArguments a) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.rows * a.groups; i += step) {
    const int64_t row = i / a.groups;
    const int64_t group = i - row * a.groups;
    const PackedRow place = packed_row(a.row_order, row, a.rows);
    const int64_t block = place.strip * a.blocks + group / a.groups_per_tile;
    const int64_t pair =
        (block * 8 + place.row % 8) * a.groups_per_tile + group % a.groups_per_tile;
    const uint8_t* const from = a.from + (pair * 2 + place.row / 8) * a.from_width;
    for (int byte = 0; byte < a.to_width; ++byte) {
      a.to[i * a.to_width + byte] = byte < a.from_width ? from[byte] : 0;
    }
  }
}

/// Scales, or offsets, of two levels.
struct NumberArguments {
  uint8_t* to;
  const uint8_t* from;
  int64_t rows;
  int64_t blocks;
  Superblock form;
  CanonicalNumbers numbers;  // without its pointers
  bool are_offsets;
  RowOrder row_order;
};

__device__ uint8_t byte_of_row(const NumberArguments& a, int64_t row, int64_t i) {
  const PackedRow place = packed_row(a.row_order, row, a.rows);
  const uint8_t* const strip = a.from + place.strip * a.blocks * a.form.bytes();
  if (i >= a.numbers.groups) {
    const int64_t byte = i - a.numbers.groups;
    return strip[byte / 2 * a.form.bytes() + factor_at(a.form, place.row, a.are_offsets) +
                 byte % 2];
  }
  const int64_t tile = i / a.form.groups;
  const int at = integer_at(a.form, place.row, static_cast<int>(tile % kSuperblockTiles),
                            static_cast<int>(i % a.form.groups), a.are_offsets);
  return canonical_integer(a.form, strip[tile / kSuperblockTiles * a.form.bytes() + at],
                           a.are_offsets,
                           a.are_offsets ? a.numbers.offset_bias : a.numbers.scale_bias);
}

__global__ void __launch_bounds__(kThreads)
    unpack_numbers(const __grid_constant__ NumberArguments a) {
  const int64_t row_bytes = a.numbers.row_bytes();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.rows * row_bytes;
       i += step) {
    const int64_t row = i / row_bytes;
    a.to[i] = byte_of_row(a, row, i - row * row_bytes);
  }
}

unsigned ctas_for(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMaxCtas));
}

void unpack_superblocks(std::byte* scales, std::byte* zeros, const uint8_t* packed,
                        const MatrixView& shape, const PackedFormat& format, Stream stream) {
  NumberArguments a = {reinterpret_cast<uint8_t*>(scales),
                       packed + format.scales_begin,
                       format.rows,
                       format.blocks,
                       superblock_of(format),
                       canonical_numbers(shape),
                       false,
                       format.row_order};
  const unsigned ctas = ctas_for(a.rows * a.numbers.row_bytes());
  unpack_numbers<<<ctas, kThreads, 0, stream>>>(a);
  if (!a.form.has_offsets) return;
  a.to = reinterpret_cast<uint8_t*>(zeros);
  a.are_offsets = true;
  unpack_numbers<<<ctas, kThreads, 0, stream>>>(a);
}

/// Scales and zero points, or offsets, of one level.
void unpack_all_groups(std::byte* scales, std::byte* zeros, const uint8_t* from,
                       const MatrixView& shape, const PackedFormat& format, Stream stream) {
  const int width = scale_bytes(format.scale_kind);
  GroupArguments groups = {reinterpret_cast<uint8_t*>(scales),
                           from + format.scales_begin,
                           format.rows,
                           shape.groups(),
                           format.blocks,
                           format.groups_per_tile,
                           width,
                           width,
                           format.row_order};
  const unsigned ctas = ctas_for(format.rows * shape.groups());
  unpack_groups<<<ctas, kThreads, 0, stream>>>(groups);
  if (format.zero_bytes == 0) return;
  groups.to = reinterpret_cast<uint8_t*>(zeros);
  groups.from = from + format.zeros_begin;
  groups.to_width = zero_bytes(format.source.zero);
  groups.from_width = format.zero_bytes;
  unpack_groups<<<ctas, kThreads, 0, stream>>>(groups);
}

}  // namespace

Status unpack_on_device(std::byte* codes, std::byte* scales, std::byte* zeros,
                        const std::byte* packed, const PackedFormat& format, Stream stream) {
  if (format.bits > 8) {
    return Error{"cuda.format", "unpack_on_device: expected codes of at most 8 bits, found " +
                                    to_string(format.source)};
  }
  MatrixView shape;
  shape.format = format.source;
  shape.rows = format.rows;
  shape.cols = format.cols;
  const auto* const from = reinterpret_cast<const uint8_t*>(packed);
  const UnpackArguments a = {reinterpret_cast<uint8_t*>(codes),
                             from,
                             format.rows,
                             shape.row_bytes(),
                             format.tiles,
                             static_cast<uint32_t>(format.cols),
                             format.bits,
                             code_order(format),
                             format.row_order};
  unpack<<<ctas_for(format.rows * ((format.cols + 7) / 8)), kThreads, 0, stream>>>(a);
  if (in_superblocks(format)) {
    unpack_superblocks(scales, zeros, from, shape, format, stream);
  } else {
    unpack_all_groups(scales, zeros, from, shape, format, stream);
  }
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("unpack_on_device: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
