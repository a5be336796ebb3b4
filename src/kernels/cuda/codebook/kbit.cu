// Four neighbouring lanes have a block, eight numbers each. What a lane has of the planes is a byte
// of each, so words are made, and taken apart, by a transposition of bits in a lane and one of
// bytes between the four.

#include "kernels/cuda/codebook/kbit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "kernels/cuda/codebook/kbit_blocks.cuh"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/weight_codes.h"

namespace subbyte::cuda {
namespace {

using namespace kbit;

constexpr int kChunks = 4;         // of a lane, loaded before the first is used
constexpr int kBlocksOfCta = 256;  // a tile of 128 outputs and 64 inputs
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

// --- quantizing ---

/// Quotients from -1 to 1 in cells of equal width, of which each has one threshold at most: a
/// quotient of a cell has the cell's code, or one more if it is above the threshold.
struct Cells {
  static constexpr int kCells = 64;
  static constexpr int kCount = kCells + 1;  // as they are rounded to the nearest
  float thresholds[kCount];
  int32_t codes[kCount];

  /// 2^23 and the cell, as a float: it never falls where the quotient rises, which is all that is
  /// asked of it. That of NaN is cell 0.
  static __host__ __device__ float of(float quotient) {
#ifdef __CUDA_ARCH__
    return fmaf(__saturatef(fmaf(quotient, 0.5f, 0.5f)), kCells, 0x1p23f);
#else
    return std::fma(std::clamp(std::fma(quotient, 0.5f, 0.5f), 0.0f, 1.0f), kCells, 0x1p23f);
#endif
  }
};

struct QuantizeArguments : QuantizedNumbers {
  uint32_t* packed = nullptr;
  bool is_aligned = false;
  // Quotients that are nearly 0 matter, or cells have several thresholds, or scales are nearest.
  bool is_slow = false;
  bool is_nearest = false;
  KbitThresholds thresholds = {};
  Cells cells = {};
  // Four times the bits of 2^23, which the assembler would subtract each time.
  uint32_t cells_bias = 0;
};

/// As IEEE has it, for a divisor from 2^-40 to 2^60 whose reciprocal is rounded to nearest; of
/// quotients below 2^-60 only the sign, and whether they are 0.
__device__ __forceinline__ float quotient_of(float x, float divisor, float reciprocal) {
  const float about = x * reciprocal;
  return fmaf(fmaf(-about, divisor, x), reciprocal, about);
}

/// Says whether quotient_of() serves these numbers: by none of them that is not 0 a quotient
/// becomes 0. The least numbers are 2^-24 in f16, 2^-133 in bf16 and 2^-149 in f32.
template <Element kNumber>
__device__ __forceinline__ bool divides_quickly(const float (&x)[kNumbersOfLane], float divisor) {
  if (kNumber == Element::kF16) return divisor <= 0x1p60f;
  if (kNumber == Element::kBF16) return divisor <= 0x1p16f;
  if (divisor <= 1) return true;
  uint32_t least = ~0u;  // of twice the bits less 1: 0 is the largest then
#pragma unroll
  for (const float number : x) least = min(least, 2 * __float_as_uint(number) - 1);
  return divisor <= 0x1p60f && least >= 2 * 0x17800000u - 1;  // 2^-80
}

/// Adds to byte `i` of a word how many thresholds are below `value`. `cells`: where they lie in
/// shared memory, less four times the bits of 2^23.
__device__ __forceinline__ void add_code(uint32_t& word, int i, float value, uint32_t cells) {
  const uint32_t at = __float_as_uint(Cells::of(value)) * 4 + cells;
  uint32_t code;
  float threshold;
  asm("ld.shared.u32 %0, [%1 + %2];" : "=r"(code) : "r"(at), "n"(Cells::kCount * 4));
  asm("ld.shared.f32 %0, [%1];" : "=f"(threshold) : "r"(at));
  word += code << 8 * i;
  if (value > threshold) word += 1u << 8 * i;
}

/// The codes of a lane's numbers by real divisions, for any thresholds that rise.
template <int kBits>
__device__ __noinline__ void encode_slowly(uint32_t* words, const float* x, float divisor,
                                           const float* thresholds) {
#pragma unroll 1
  for (int i = 0; i < kNumbersOfLane; ++i) {
    const float quotient = __fdiv_rn(x[i], divisor);
    uint32_t code = 0;
#pragma unroll
    for (int step = 1 << (kBits - 1); step > 0; step /= 2) {
      if (quotient > thresholds[code + step - 1]) code += step;
    }
    words[i / 4] |= code << 8 * (i % 4);
  }
}

/// The codes of a lane's numbers, a byte each. All lanes of a block have one divisor.
template <int kBits, Element kNumber>
__device__ __forceinline__ void encode(uint32_t (&words)[2], const float (&x)[kNumbersOfLane],
                                       float divisor, float reciprocal, const QuantizeArguments& a,
                                       const float* thresholds, uint32_t cells) {
  if (a.is_slow || !divides_quickly<kNumber>(x, divisor)) {
    float numbers[kNumbersOfLane];  // whose address is taken, while `x` stay in registers
    uint32_t codes[2] = {};
    if (a.is_nearest) {
      divisor = static_cast<float>(weights::decode<4, 11>(weights::e4m4_of(divisor)));
    }
#pragma unroll
    for (int i = 0; i < kNumbersOfLane; ++i) numbers[i] = x[i];
    // All codes of a scale of 0 mean 0.
    if (divisor > 0) encode_slowly<kBits>(codes, numbers, divisor, thresholds);
    words[0] = codes[0];
    words[1] = codes[1];
  } else {
#pragma unroll
    for (int i = 0; i < kNumbersOfLane; ++i) {
      add_code(words[i / 4], i % 4, quotient_of(x[i], divisor, reciprocal), cells);
    }
  }
}

/// Stores the planes of a block, of which a lane has the codes of eight numbers.
template <int kBits>
__device__ __forceinline__ void store_planes(uint32_t* packed, uint32_t (&words)[2], int lane,
                                             bool is_there) {
  transpose_bits(words[0], words[1]);
  const uint32_t plane = transpose_bytes(words[0], lane);
  uint32_t fifth = 0;
  if constexpr (kBits == 5) {
    fifth = (words[1] & 0xFF) << 8 * lane;
    fifth |= __shfl_xor_sync(~0u, fifth, 1);
    fifth |= __shfl_xor_sync(~0u, fifth, 2);
  }
  if (!is_there) return;
  if (lane < kBits) packed[lane] = plane;
  if (kBits == 5 && lane == 0) packed[4] = fifth;
}

template <Element kNumber>
__device__ __forceinline__ void load_chunks(const QuantizeArguments& a, const uint8_t* numbers,
                                            int count, float (&x)[kChunks][kNumbersOfLane]) {
  const int at = static_cast<int>(threadIdx.x) * kNumbersOfLane;
  constexpr int kOfChunk = kThreads * kNumbersOfLane;
  if (a.is_aligned && count == kChunks * kOfChunk) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) load_8(kNumber, numbers, i * kOfChunk + at, x[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    load_8_of(kNumber, numbers, i * kOfChunk + at, count, x[i]);
  }
}

/// What is computed once for a block, the first lane does for the first of four blocks, and so on.
template <int kBits, Element kNumber>
__global__ void __launch_bounds__(kThreads) quantize(const __grid_constant__ QuantizeArguments a) {
  static_assert(kChunks == kLanesOfBlock);
  __shared__ float thresholds[32];
  __shared__ Cells cells;
  begin_operation();
  if (threadIdx.x < 31) thresholds[threadIdx.x] = a.thresholds.values[threadIdx.x];
  if (threadIdx.x < Cells::kCount) {
    cells.thresholds[threadIdx.x] = a.cells.thresholds[threadIdx.x];
    cells.codes[threadIdx.x] = a.cells.codes[threadIdx.x];
  }
  const int64_t first = int64_t{blockIdx.x} * kBlocksOfCta;
  const int blocks = static_cast<int>(min(a.blocks - first, int64_t{kBlocksOfCta}));
  const int count = static_cast<int>(min(a.count - first * kBlock, int64_t{kBlocksOfCta} * kBlock));
  float x[kChunks][kNumbersOfLane];
  load_chunks<kNumber>(a, a.numbers + first * kBlock * (kNumber == Element::kF32 ? 4 : 2), count,
                       x);
  __syncthreads();
  const int lane = threadIdx.x % kLanesOfBlock;
  float largest[kChunks];
  float own = 0;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    largest[i] = largest_of_block(x[i]);
    own = i == lane ? largest[i] : own;
  }
  const auto block_of = [](int chunk) {
    return (chunk * kThreads + static_cast<int>(threadIdx.x)) / kLanesOfBlock;
  };
  if (block_of(lane) < blocks) {
    const uint32_t scale = a.is_nearest ? weights::e4m4_of(own) : e4m4_as_bitsandbytes(own);
    a.absmax[first + block_of(lane)] = static_cast<uint8_t>(scale);
  }
  const uint32_t cells_at = shared_address(&cells) - a.cells_bias;
  const float reciprocal = __frcp_rn(fmaxf(own, kBitsandbytesFloor));
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const float of_block = __shfl_sync(~0u, reciprocal, i, kLanesOfBlock);
    uint32_t words[2] = {};
    encode<kBits, kNumber>(words, x[i], fmaxf(largest[i], kBitsandbytesFloor), of_block, a,
                           thresholds, cells_at);
    store_planes<kBits>(a.packed + (first + block_of(i)) * kBits, words, lane,
                        block_of(i) < blocks);
  }
}

// --- dequantizing ---

struct DequantizeArguments : DequantizedBlocks {
  const uint32_t* packed = nullptr;
  float codebook[32] = {};
};

/// What a lane loads of a block: its plane, and the fifth, which all four have.
struct LoadedBlock {
  uint32_t plane = 0;
  uint32_t fifth = 0;
  float scale = 0;
};

/// The lane's eight weights.
__device__ __forceinline__ void dequantize_chunk(float (&weights)[kNumbersOfLane],
                                                 const LoadedBlock& loaded, int lane,
                                                 const float* codebook) {
  uint32_t words[2] = {transpose_bytes(loaded.plane, lane), loaded.fifth >> 8 * lane & 0xFF};
  transpose_bits(words[0], words[1]);
#pragma unroll
  for (int j = 0; j < kNumbersOfLane; ++j) {
    weights[j] = codebook[words[j / 4] >> 8 * (j % 4) & 31] * loaded.scale;
  }
}

/// A CTA has 256 blocks, in the order of the buffer: a tile, where there are tiles.
template <int kBits, bool kIsTiled>
__global__ void __launch_bounds__(kThreads)
    dequantize(const __grid_constant__ DequantizeArguments a) {
  constexpr int kBlocksAtOnce = kThreads / kLanesOfBlock;
  __shared__ float codebook[32];
  begin_operation();
  if (threadIdx.x < 32) codebook[threadIdx.x] = a.codebook[threadIdx.x];
  const int lane = threadIdx.x % kLanesOfBlock;
  const int64_t first = int64_t{blockIdx.x} * kBlocksOfCta;
  const int blocks = static_cast<int>(min(a.blocks - first, int64_t{kBlocksOfCta}));
  const uint32_t* const packed = a.packed + first * kBits;
  const uint8_t* const absmax = a.absmax + first * a.scale_bytes;
  LoadedBlock loaded[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int block = i * kBlocksAtOnce + threadIdx.x / kLanesOfBlock;
    if (block >= blocks) break;
    if (lane < kBits) loaded[i].plane = packed[block * kBits + lane];
    if constexpr (kBits == 5) loaded[i].fifth = packed[block * kBits + 4];
    loaded[i].scale = scale_of(absmax, block, a.scale_bytes, a.rule);
  }
  __syncthreads();
  const uint32_t tile_row = kIsTiled ? blockIdx.x % a.tiles_n : 0;
  const int group0 = kIsTiled ? static_cast<int>(2 * (blockIdx.x / a.tiles_n)) : 0;
  const int64_t origin =
      kIsTiled ? int64_t{tile_row} * (kBlocksOfCta / 2) * a.cols + int64_t{group0} * kBlock
               : first * kBlock;
  uint8_t* const out = a.out + origin * (a.number == Element::kF32 ? 4 : 2);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int block = i * kBlocksAtOnce + threadIdx.x / kLanesOfBlock;
    float weights[kNumbersOfLane];
    dequantize_chunk(weights, loaded[i], lane, codebook);
    if (kIsTiled ? group0 + block % 2 >= a.groups : block >= blocks) continue;
    const int64_t at =
        kIsTiled ? int64_t{block / 2} * a.cols + block % 2 * kBlock : int64_t{block} * kBlock;
    store_8(a.number, out, at + lane * kNumbersOfLane, weights);
  }
}

// --- the host ---

template <Element kNumber>
void (*quantize_kernel_of(int bits))(QuantizeArguments) {
  constexpr void (*kKernels[])(QuantizeArguments) = {quantize<2, kNumber>, quantize<3, kNumber>,
                                                     quantize<4, kNumber>, quantize<5, kNumber>};
  return by_bits(bits, kKernels);
}

auto quantize_kernel(Format number, int bits) {
  return number == Format::kF32   ? quantize_kernel_of<Element::kF32>(bits)
         : number == Format::kF16 ? quantize_kernel_of<Element::kF16>(bits)
                                  : quantize_kernel_of<Element::kBF16>(bits);
}

/// Fills cells for thresholds that rise. Says whether none has more than one, of those that a
/// quotient from -1 to 1 may be on either side of.
bool fill_cells(std::span<const float> thresholds, Cells& cells) {
  std::fill_n(cells.thresholds, Cells::kCount, std::numeric_limits<float>::infinity());
  std::size_t code = 0;
  while (code < thresholds.size() && thresholds[code] < -1) ++code;
  for (int i = 0; i < Cells::kCount; ++i) {
    cells.codes[i] = static_cast<int32_t>(code);
    for (; code < thresholds.size() && thresholds[code] < 1; ++code) {
      if (static_cast<int>(Cells::of(thresholds[code]) - 0x1p23f) != i) break;
      if (!std::isinf(cells.thresholds[i])) return false;
      cells.thresholds[i] = thresholds[code];
    }
  }
  return true;
}

}  // namespace

Status quantize_kbit(const void* numbers, Format number, int64_t count,
                     const KbitThresholds& thresholds, const KbitBuffers& to, Stream stream,
                     bool nearest_scales) {
  constexpr const char* kWhat = "quantize kbit";
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const int64_t ctas = (blocks + kBlocksOfCta - 1) / kBlocksOfCta;
  SUBBYTE_CHECK(check_buffers(kWhat, to, blocks));
  if (to.scale != Format::kE4M4) return Error{"cuda.shape", "quantize kbit: expected E4M4 scales"};
  if (ctas > INT32_MAX) return wrong_shape(kWhat, "fewer than 2^44 numbers", count);
  QuantizeArguments a = {quantized_numbers(numbers, count, to)};
  a.packed = to.packed;
  a.is_aligned = reinterpret_cast<uintptr_t>(numbers) % 16 == 0;
  a.thresholds = thresholds;
  a.cells_bias = 4 * 0x4B000000u;
  const auto used = std::span(thresholds.values).first((std::size_t{1} << to.k) - 1);
  a.is_nearest = nearest_scales;
  a.is_slow = !fill_cells(used, a.cells) || nearest_scales;
  for (const float threshold : used) {
    const float size = std::fabs(threshold);
    a.is_slow = a.is_slow || (size != 0 && size < 0x1p-60f);
  }
  if (ctas > 0) {
    launch(quantize_kernel(number, to.k), {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  }
  pad(to, blocks, stream);
  return launched(kWhat);
}

Status dequantize_kbit(const KbitDequantization& call, Stream stream) {
  constexpr const char* kWhat = "dequantize kbit";
  SUBBYTE_TRY(const int64_t blocks, blocks_to_dequantize(kWhat, call));
  const int64_t ctas = (blocks + kBlocksOfCta - 1) / kBlocksOfCta;
  DequantizeArguments a = {dequantized_blocks(call, blocks)};
  a.packed = call.from.packed;
  const std::size_t values = std::min<std::size_t>(call.codebook.size(), 32);
  std::copy_n(call.codebook.begin(), values, a.codebook);
  constexpr void (*kFlat[])(DequantizeArguments) = {dequantize<2, false>, dequantize<3, false>,
                                                    dequantize<4, false>, dequantize<5, false>};
  constexpr void (*kTiled[])(DequantizeArguments) = {dequantize<2, true>, dequantize<3, true>,
                                                     dequantize<4, true>, dequantize<5, true>};
  if (ctas == 0) return {};
  launch(by_bits(call.from.k, call.is_tiled ? kTiled : kFlat),
         {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  return launched(kWhat);
}

}  // namespace subbyte::cuda
