#include "bench/cuda/decoder_time.h"

#include "bench/cuda/single_table.h"
#include "kernels/gpu/decoders.h"
#include "kernels/gpu/tile_order.h"

namespace subbyte::bench {
namespace {

using namespace gpu;

constexpr int kTiles = 8;  // in shared memory, for all warps

/// The words as they are: what the loop costs.
template <int kCodeBits>
struct NoDecoder {
  static constexpr int kBits = kCodeBits;
  static constexpr bool kHasZeros = false;
  static constexpr bool kHasTable = false;

  static __device__ __forceinline__ void decode(const uint32_t* words, int step,
                                                uint32_t* registers) {
    for (int r = 0; r < 4; ++r) registers[r] = words[(4 * step + r) % kBits];
  }
};

template <class Decoder>
__host__ __device__ constexpr int table_words() {
  if constexpr (requires { Decoder::kPairs; }) {
    return Decoder::kPairs == 0 ? 1 : Decoder::kPairs * kLanes;
  } else {
    return 16;
  }
}

__device__ uint32_t random_word(uint32_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  return static_cast<uint32_t>(z >> 32);
}

/// a ^ b ^ c, which the compiler takes for something else and keeps.
__device__ __forceinline__ void join(uint32_t& a, uint32_t b, uint32_t c) {
  asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(a) : "r"(b), "r"(c));
}

template <int kWords>
__device__ __forceinline__ void read_words(uint32_t* to, const uint32_t* from) {
  if constexpr (kWords == 4) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from);
  } else {
    to[0] = from[0];
  }
}

template <class Decoder>
__device__ __forceinline__ void decode_and_join(const uint32_t* tile, int lane, const Table& table,
                                                ZeroPair zero, uint32_t& joined) {
  constexpr int kBits = Decoder::kBits;
  alignas(16) uint32_t words[8];
  read_words<first_piece(kBits)>(words, tile + word_in_tile(lane, 0, kBits));
  if constexpr (second_piece(kBits) > 0) {
    read_words<second_piece(kBits)>(words + first_piece(kBits),
                                    tile + word_in_tile(lane, first_piece(kBits), kBits));
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t r[4];
    decode_step<Decoder>(words, step, zero, table, r);
    join(joined, r[0], r[1]);
    join(joined, r[2], r[3]);
  }
}

template <class Decoder>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeBlocks) decode(DecodeCall call) {
  constexpr int kTileWords = kLanes * Decoder::kBits;
  __shared__ __align__(16) uint32_t codes[kTiles * kTileWords];
  __shared__ uint32_t pairs[table_words<Decoder>()];
  const int lane = threadIdx.x % kLanes;
  for (int i = threadIdx.x; i < kTiles * kTileWords; i += kDecodeThreads) {
    codes[i] = random_word(call.seed + i);
  }
  for (int i = threadIdx.x; i < table_words<Decoder>(); i += kDecodeThreads) {
    pairs[i] = random_word(call.seed - i);
  }
  // Copies of a table of pairs are in the banks of the lanes, the small one is for all.
  const uint32_t place = table_words<Decoder>() > 16 ? lane * 4 : 0;
  const Table table = {static_cast<uint32_t>(__cvta_generic_to_shared(pairs)), place,
                       random_word(lane)};
  ZeroPair zero = {};
  if constexpr (Decoder::kHasZeros) zero = Decoder::zeros(call.seed % 4, call.seed % 3);
  uint32_t joined = 0;
  __syncthreads();
  const int64_t begin = clock64();
#pragma unroll 1
  for (int i = 0; i < call.tiles; ++i) {
    decode_and_join<Decoder>(codes + i % kTiles * kTileWords, lane, table, zero, joined);
  }
  __syncthreads();
  const int64_t end = clock64();
  if (threadIdx.x == 0) call.cycles[blockIdx.x] = end - begin;
  if (joined == call.seed) *call.sink = joined;
}

template <class Decoder>
TimedDecoder timed(const char* name, bool is_loop = false) {
  return {name, Decoder::kBits, is_loop,
          [](int blocks, const DecodeCall& call, cudaStream_t stream) {
            decode<Decoder><<<blocks, kDecodeThreads, 0, stream>>>(call);
          }};
}

}  // namespace

std::vector<TimedDecoder> timed_decoders() {
  return {
      timed<NoDecoder<2>>("none, 2 bits", true),
      timed<NoDecoder<3>>("none, 3 bits", true),
      timed<NoDecoder<4>>("none, 4 bits", true),
      timed<NoDecoder<5>>("none, 5 bits", true),
      timed<NoDecoder<8>>("none, 8 bits", true),
      timed<Integers<F16, 4>>("INT4 f16"),
      timed<Integers<BF16, 4>>("INT4 bf16"),
      timed<Integers<F16, 8>>("INT8 f16"),
      timed<Integers<BF16, 8>>("INT8 bf16"),
      timed<Integers<F16, 2>>("INT2 f16"),
      timed<Integers<BF16, 2>>("INT2 bf16"),
      timed<Integers<F16, 3>>("INT3 f16"),
      timed<Integers<BF16, 3>>("INT3 bf16"),
      timed<E2M1<F16>>("E2M1 f16, by bits"),
      timed<E2M1<BF16>>("E2M1 bf16, by bits"),
      // The same for either type: what differs are the values in the table.
      timed<Codebook<F16, 2>>("codebook of 2 bits, pairs"),
      timed<Codebook<F16, 3>>("codebook of 3 bits, pairs"),
      timed<Codebook<F16, 4>>("codebook of 4 bits, pairs"),
      timed<Codebook<F16, 5>>("codebook of 5 bits, SHFL"),
      timed<SingleTable>("16 values in shared memory, one load for each weight"),
  };
}

}  // namespace subbyte::bench
