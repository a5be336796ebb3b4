// Four neighbouring lanes have a block, eight numbers each. What a lane has of the planes is a byte
// of each, so words are made, and taken apart, by a transposition of bits in a lane and one of
// bytes between the four.

#include "kernels/cuda/ops/kbit.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlock = 32;
constexpr int kOfLane = 8;                       // numbers
constexpr int kLanesOfBlock = kBlock / kOfLane;  // whose numbers follow each other
constexpr int kChunks = 4;                       // of a lane, loaded before the first is used
constexpr int kBlocksOfCta = 256;                // a tile of 128 outputs and 64 inputs
constexpr float kBitsandbytesFloor = 1e-8f;      // what it divides by at least
static_assert(kThreads * kChunks == kBlocksOfCta * kLanesOfBlock);

/// Bit j of byte i to bit i of byte j, of eight bytes.
__device__ __forceinline__ void transpose_bits(uint32_t& low, uint32_t& high) {
#pragma unroll
  for (uint32_t* const word : {&low, &high}) {
    uint32_t t = (*word ^ *word >> 7) & 0x00AA00AA;
    *word ^= t ^ t << 7;
    t = (*word ^ *word >> 14) & 0x0000CCCC;
    *word ^= t ^ t << 14;
  }
  const uint32_t t = (low ^ high << 4) & 0xF0F0F0F0;
  low ^= t;
  high ^= t >> 4;
}

/// Byte j of lane i of four to byte i of lane j.
__device__ __forceinline__ uint32_t transpose_bytes(uint32_t word, int lane) {
  uint32_t other = __shfl_xor_sync(~0u, word, 1);
  word = __byte_perm(word, other, lane % 2 == 0 ? 0x6240 : 0x3715);
  other = __shfl_xor_sync(~0u, word, 2);
  return __byte_perm(word, other, lane / 2 % 2 == 0 ? 0x5410 : 0x3276);
}

/// encode_e4m4_as_bitsandbytes() of quantize/kbit.h.
__device__ __forceinline__ uint32_t e4m4_as_bitsandbytes(float value) {
  constexpr int kBias = 11;
  if (!(value > 0)) return 0;
  const uint32_t bits = __float_as_uint(value);
  int exponent = static_cast<int>(bits >> 23) - 127;
  // Just below a power of two its logarithm, a float, is a whole number already.
  if ((bits & 0x7FFFFF) >= 0x7FFF00) {
    exponent = static_cast<int>(floorf(static_cast<float>(log2(static_cast<double>(value)))));
  }
  const int stored = min(max(exponent + kBias, 0), 15);
  const float sixteenths = stored == 0 ? value * 0x1p14f : ldexpf(value, 4 - exponent) - 16;
  const int mantissa = min(max(__float2int_rn(sixteenths), 0), 15);
  return static_cast<uint32_t>(stored << 4 | mantissa);
}

// --- quantizing ---

struct QuantizeArguments {
  const void* numbers;
  uint32_t* packed;
  uint8_t* absmax;
  int64_t count;
  int64_t blocks;
  Element number;
  bool is_aligned;
  bool has_tiny_threshold;  // so that quotients which are nearly 0 matter
  KbitThresholds thresholds;
};

/// As IEEE has it, for a divisor from 2^-40 to 2^60 whose reciprocal is rounded to nearest, where
/// quotients below 2^-60 do not matter.
__device__ __forceinline__ float quotient_of(float x, float divisor, float reciprocal) {
  const float about = x * reciprocal;
  return fmaf(fmaf(-about, divisor, x), reciprocal, about);
}

/// How many thresholds are below `value`. The first two are operands, the others in shared memory,
/// where each has a bank of its own.
template <int kBits>
__device__ __forceinline__ uint32_t code_of(float value, const KbitThresholds& thresholds,
                                            const float* shared) {
  constexpr int kHalf = 1 << (kBits - 1);
  const bool is_upper = value > thresholds.values[kHalf - 1];
  uint32_t code = is_upper ? kHalf : 0;
  const float second =
      is_upper ? thresholds.values[kHalf + kHalf / 2 - 1] : thresholds.values[kHalf / 2 - 1];
  code += value > second ? kHalf / 2 : 0;
#pragma unroll
  for (int step = kHalf / 4; step > 0; step /= 2) {
    if (value > shared[code + step - 1]) code += step;
  }
  return code;
}

template <int kBits>
__device__ __forceinline__ void quantize_chunk(const QuantizeArguments& a, int64_t block, int lane,
                                               const float (&x)[kOfLane], const float* shared) {
  float largest = 0;
#pragma unroll
  for (const float number : x) largest = fmaxf(largest, fabsf(number));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
  const float divisor = fmaxf(largest, kBitsandbytesFloor);
  const float reciprocal = __frcp_rn(divisor);
  const bool divides = a.has_tiny_threshold || divisor > 0x1p60f;
  uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const float quotient =
        divides ? __fdiv_rn(x[i], divisor) : quotient_of(x[i], divisor, reciprocal);
    words[i / 4] |= code_of<kBits>(quotient, a.thresholds, shared) << 8 * (i % 4);
  }
  transpose_bits(words[0], words[1]);
  const uint32_t plane = transpose_bytes(words[0], lane);
  uint32_t fifth = 0;
  if constexpr (kBits == 5) {
    fifth = (words[1] & 0xFF) << 8 * lane;
    fifth |= __shfl_xor_sync(~0u, fifth, 1);
    fifth |= __shfl_xor_sync(~0u, fifth, 2);
  }
  if (block >= a.blocks) return;
  if (lane < kBits) a.packed[block * kBits + lane] = plane;
  if (lane != 0) return;
  if constexpr (kBits == 5) a.packed[block * kBits + 4] = fifth;
  a.absmax[block] = static_cast<uint8_t>(e4m4_as_bitsandbytes(largest));
}

template <int kBits>
__global__ void __launch_bounds__(kThreads) quantize(const __grid_constant__ QuantizeArguments a) {
  __shared__ float thresholds[32];
  begin_operation();
  if (threadIdx.x < 31) thresholds[threadIdx.x] = a.thresholds.values[threadIdx.x];
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kChunks) + threadIdx.x;
  float x[kChunks][kOfLane];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int64_t at = (first + i * kThreads) * kOfLane;
    if (a.is_aligned && at + kOfLane <= a.count) {
      load_8(a.number, a.numbers, at, x[i]);
    } else {
      load_8_of(a.number, a.numbers, at, a.count, x[i]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int64_t chunk = first + i * kThreads;
    quantize_chunk<kBits>(a, chunk / kLanesOfBlock, static_cast<int>(chunk % kLanesOfBlock), x[i],
                          thresholds);
  }
}

// --- dequantizing ---

struct DequantizeArguments {
  const uint32_t* packed;
  const void* absmax;
  void* out;
  int64_t blocks;
  int64_t cols;
  int64_t groups;    // of a row
  uint32_t tiles_n;  // of 128 outputs; 0: flat
  int scale_bytes;   // 1, 2 or 4
  Element number;
  ScaleRule rule;  // of E4M4
  float codebook[32];
};

__device__ __forceinline__ float scale_of(const DequantizeArguments& a, int64_t block) {
  if (a.scale_bytes == 1) return scale_value(static_cast<const uint8_t*>(a.absmax)[block], a.rule);
  if (a.scale_bytes == 2) {
    return gpu::F16::to_float(static_cast<const uint16_t*>(a.absmax)[block]);
  }
  return scale_value(e4m4_as_bitsandbytes(static_cast<const float*>(a.absmax)[block]), a.rule);
}

/// What a lane loads of a block: its plane, and the fifth, which all four have.
struct LoadedBlock {
  uint32_t plane;
  uint32_t fifth;
  float scale;
};

template <int kBits>
__device__ __forceinline__ LoadedBlock load_block(const DequantizeArguments& a, int64_t block,
                                                  int lane) {
  if (block >= a.blocks) return {};
  LoadedBlock loaded = {};
  if (lane < kBits) loaded.plane = a.packed[block * kBits + lane];
  if constexpr (kBits == 5) loaded.fifth = a.packed[block * kBits + 4];
  loaded.scale = scale_of(a, block);
  return loaded;
}

template <int kBits>
__global__ void __launch_bounds__(kThreads)
    dequantize(const __grid_constant__ DequantizeArguments a) {
  __shared__ float codebook[32];
  begin_operation();
  if (threadIdx.x < 32) codebook[threadIdx.x] = a.codebook[threadIdx.x];
  const int lane = threadIdx.x % kLanesOfBlock;
  const int64_t first = int64_t{blockIdx.x} * kBlocksOfCta + threadIdx.x / kLanesOfBlock;
  LoadedBlock loaded[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    loaded[i] = load_block<kBits>(a, first + i * (kThreads / kLanesOfBlock), lane);
  }
  __syncthreads();
  const uint32_t tile_row = a.tiles_n == 0 ? 0 : blockIdx.x % a.tiles_n;
  const uint32_t tile_col = a.tiles_n == 0 ? 0 : blockIdx.x / a.tiles_n;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    uint32_t words[2] = {transpose_bytes(loaded[i].plane, lane),
                         loaded[i].fifth >> 8 * lane & 0xFF};
    transpose_bits(words[0], words[1]);
    const int64_t block = first + i * (kThreads / kLanesOfBlock);
    int64_t at = block * kBlock;
    if (a.tiles_n != 0) {
      const uint32_t in_tile = static_cast<uint32_t>(block) % kBlocksOfCta;
      const int64_t group = 2 * int64_t{tile_col} + in_tile % 2;
      if (group >= a.groups) continue;
      at = (int64_t{tile_row} * (kBlocksOfCta / 2) + in_tile / 2) * a.cols + group * kBlock;
    } else if (block >= a.blocks) {
      continue;
    }
    float weights[kOfLane];
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      weights[j] = codebook[words[j / 4] >> 8 * (j % 4) & 31] * loaded[i].scale;
    }
    store_8(a.number, a.out, at + lane * kOfLane, weights);
  }
}

// --- repacking ---

constexpr int kRepackRows = 32;
constexpr int kRepackTiles = 4;
constexpr int kRepackGroups = 2 * kRepackTiles;
static_assert(kRepackRows * kRepackGroups == kThreads);

struct RepackArguments {
  const uint32_t* packed_from;
  const uint8_t* absmax_from;
  uint32_t* packed;
  uint8_t* absmax;
  int64_t rows;
  int64_t groups;  // of a row
};

/// Where a block lies in the tiles.
__device__ __forceinline__ int64_t tiled_block(const RepackArguments& a, int64_t row,
                                               int64_t group) {
  const int64_t tile = group / 2 * (a.rows / 128) + row / 128;
  return (tile * 128 + row % 128) * 2 + group % 2;
}

/// A CTA has 32 rows of eight groups, four tiles, which lie in shared memory in the order of the
/// tiles, so that both sides are read and written by whole runs.
template <int kBits, bool kToTiled>
__global__ void __launch_bounds__(kThreads) repack(const __grid_constant__ RepackArguments a) {
  constexpr int kRun = 2 * kBits;              // words of a row in a tile
  constexpr int kOfTile = kRepackRows * kRun;  // words
  __shared__ uint32_t words[kRepackTiles * kOfTile];
  begin_operation();
  const int64_t row0 = int64_t{blockIdx.x} * kRepackRows;
  const int64_t group0 = int64_t{blockIdx.y} * kRepackGroups;
  const auto flat_place = [&](int i, int* in_shared) {  // of word i in the order of rows
    const int row = i / (kRepackGroups * kBits);
    const int word = i % (kRepackGroups * kBits);
    *in_shared = word / kRun * kOfTile + row * kRun + word % kRun;
    const bool is_there = group0 + word / kBits < a.groups;
    return is_there ? ((row0 + row) * a.groups + group0) * kBits + word : -1;
  };
  const auto tiled_place = [&](int i) {
    const int64_t group = group0 + i / kOfTile * 2;
    const bool is_there = group < a.groups;
    return is_there ? tiled_block(a, row0, group) * kBits + i % kOfTile : -1;
  };
  uint32_t loaded[kBits];
#pragma unroll
  for (int j = 0; j < kBits; ++j) {
    int unused = 0;
    const int i = j * kThreads + threadIdx.x;
    const int64_t from = kToTiled ? flat_place(i, &unused) : tiled_place(i);
    loaded[j] = from >= 0 ? a.packed_from[from] : 0;
  }
  const int row = threadIdx.x / 2 % kRepackRows;
  const int group = threadIdx.x / (2 * kRepackRows) * 2 + threadIdx.x % 2;
  const bool has_block = group0 + group < a.groups;
  const int64_t flat_scale = (row0 + row) * a.groups + group0 + group;
  if (group0 + group / 2 * 2 < a.groups) {
    const int64_t tiled_scale = tiled_block(a, row0 + row, group0 + group);
    if (kToTiled) {
      a.absmax[tiled_scale] = has_block ? a.absmax_from[flat_scale] : 0;
    } else if (has_block) {
      a.absmax[flat_scale] = a.absmax_from[tiled_scale];
    }
  }
#pragma unroll
  for (int j = 0; j < kBits; ++j) {
    int place = j * kThreads + threadIdx.x;
    if (kToTiled) flat_place(j * kThreads + threadIdx.x, &place);
    words[place] = loaded[j];
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kBits; ++j) {
    const int i = j * kThreads + threadIdx.x;
    int place = i;
    const int64_t to = kToTiled ? tiled_place(i) : flat_place(i, &place);
    if (to >= 0) a.packed[to] = words[place];
  }
}

// --- the host ---

Status wrong_shape(const char* what, const std::string& expected, int64_t found) {
  return Error{"cuda.shape",
               std::string(what) + ": expected " + expected + ", found " + std::to_string(found)};
}

Status launched(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

Status check_buffers(const char* what, const KbitBuffers& b, int64_t blocks) {
  if (b.k < 2 || b.k > 5) return wrong_shape(what, "2 to 5 bits", b.k);
  if (b.packed_words < blocks * b.k) {
    return wrong_shape(what, std::to_string(blocks * b.k) + " words of codes or more",
                       b.packed_words);
  }
  if (b.absmax_elements >= blocks) return {};
  return wrong_shape(what, std::to_string(blocks) + " scales or more", b.absmax_elements);
}

/// Zeros after the blocks.
void pad(const KbitBuffers& to, int64_t blocks, Stream stream) {
  const int64_t words = to.packed_words - blocks * to.k;
  const int64_t scales = to.absmax_elements - blocks;
  if (words > 0) cudaMemsetAsync(to.packed + blocks * to.k, 0, words * 4, stream);
  if (scales > 0) {
    cudaMemsetAsync(static_cast<uint8_t*>(to.absmax) + blocks, 0, scales, stream);
  }
}

Element element_of_number(Format number) {
  return number == Format::kF32   ? Element::kF32
         : number == Format::kF16 ? Element::kF16
                                  : Element::kBF16;
}

/// Of 2, 3, 4 or 5 bits.
template <class Kernel>
Kernel by_bits(int bits, const Kernel (&kernels)[4]) {
  return kernels[bits - 2];
}

}  // namespace

Status quantize_kbit(const void* numbers, Format number, int64_t count,
                     const KbitThresholds& thresholds, const KbitBuffers& to, Stream stream) {
  constexpr const char* kWhat = "quantize kbit";
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const int64_t ctas = (blocks + kBlocksOfCta - 1) / kBlocksOfCta;
  SUBBYTE_CHECK(check_buffers(kWhat, to, blocks));
  if (to.scale != Format::kE4M4) return Error{"cuda.shape", "quantize kbit: expected E4M4 scales"};
  if (ctas > INT32_MAX) return wrong_shape(kWhat, "fewer than 2^44 numbers", count);
  QuantizeArguments a = {};
  a.numbers = numbers;
  a.packed = to.packed;
  a.absmax = static_cast<uint8_t*>(to.absmax);
  a.count = count;
  a.blocks = blocks;
  a.number = element_of_number(number);
  a.is_aligned = reinterpret_cast<uintptr_t>(numbers) % 16 == 0;
  a.thresholds = thresholds;
  for (int i = 0; i < (1 << to.k) - 1; ++i) {
    a.has_tiny_threshold = a.has_tiny_threshold || std::fabs(thresholds.values[i]) < 0x1p-60f;
  }
  constexpr void (*kKernels[])(QuantizeArguments) = {quantize<2>, quantize<3>, quantize<4>,
                                                     quantize<5>};
  if (ctas > 0) {
    launch(by_bits(to.k, kKernels), {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  }
  pad(to, blocks, stream);
  return launched(kWhat);
}

Status dequantize_kbit(const KbitDequantization& call, Stream stream) {
  constexpr const char* kWhat = "dequantize kbit";
  const int64_t groups = call.cols / kBlock;
  const int64_t blocks = call.rows * (call.is_tiled ? (groups + 1) / 2 * 2 : groups);
  const int64_t ctas = (blocks + kBlocksOfCta - 1) / kBlocksOfCta;
  if (call.cols % kBlock != 0) return wrong_shape(kWhat, "inputs in 32s", call.cols);
  if (call.is_tiled && call.rows % 128 != 0)
    return wrong_shape(kWhat, "outputs in 128s", call.rows);
  SUBBYTE_CHECK(check_buffers(kWhat, call.from, blocks));
  if (ctas > INT32_MAX) return wrong_shape(kWhat, "fewer than 2^39 blocks", blocks);
  if (reinterpret_cast<uintptr_t>(call.out) % 16 != 0) {
    return Error{"cuda.shape", "dequantize kbit: expected results at a multiple of 16 bytes"};
  }
  DequantizeArguments a = {};
  a.packed = call.from.packed;
  a.absmax = call.from.absmax;
  a.out = call.out;
  a.blocks = blocks;
  a.cols = call.cols;
  a.groups = groups;
  a.tiles_n = call.is_tiled ? static_cast<uint32_t>(call.rows / 128) : 0;
  a.scale_bytes = call.from.scale == Format::kE4M4 ? 1 : call.from.scale == Format::kF16 ? 2 : 4;
  a.number = element_of_number(call.number);
  a.rule = scale_rule(ScaleKind::kE4M4);
  const std::size_t values = std::min<std::size_t>(call.codebook.size(), 32);
  std::copy_n(call.codebook.begin(), values, a.codebook);
  constexpr void (*kKernels[])(DequantizeArguments) = {dequantize<2>, dequantize<3>, dequantize<4>,
                                                       dequantize<5>};
  if (ctas == 0) return {};
  launch(by_bits(call.from.k, kKernels), {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  return launched(kWhat);
}

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
  if (tiles > 65535) return wrong_shape(kWhat, "at most 2^24 inputs", cols);
  if (rows / kRepackRows > INT32_MAX) return wrong_shape(kWhat, "at most 2^36 outputs", rows);
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
