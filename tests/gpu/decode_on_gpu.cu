#include "decode_on_gpu.h"

#include "kernels/cuda/common/prologue_epilogue.cuh"

namespace subbyte::testing {
namespace {

using cuda::BF16;
using cuda::Codebook;
using cuda::F16;
using cuda::Integers;

template <class Number, int kBits>
using E2M1Of = cuda::E2M1<Number>;
template <class Number, int>
using E4M3Of = cuda::E4M3<Number>;
/// As where no instruction converts E4M3.
template <class Number>
struct MovingBits : Number {
  static constexpr bool kHasE4M3 = false;
};
template <class Number, int>
using E4M3BitsOf = cuda::E4M3<MovingBits<Number>>;

constexpr int kThreads = 128;

template <class Decoder>
__device__ cuda::Table fill(const uint16_t* codebook, uint32_t* shared) {
  const int lane = threadIdx.x % 32;
  cuda::Table table = {cuda::shared_address(shared), lane * 4u, 0};
  if constexpr (Decoder::kHasTable) {
    for (int i = threadIdx.x; i < Decoder::kPairs * 32; i += blockDim.x) {
      shared[i] = codebook[Decoder::low_code(i / 32)] |
                  uint32_t{codebook[Decoder::high_code(i / 32)]} << 16;
    }
    if constexpr (Decoder::kPairs == 0) table.value = codebook[lane];
  }
  __syncthreads();
  return table;
}

template <class Decoder>
__global__ void decode(const uint32_t* words, int lanes, Zeros zeros, const uint16_t* codebook,
                       uint32_t* registers) {
  extern __shared__ uint32_t shared[];
  const cuda::Table table = fill<Decoder>(codebook, shared);
  const int lane = blockIdx.x * blockDim.x + threadIdx.x;
  if (lane >= lanes) return;  // whole warps: lanes is a multiple of 32
  uint32_t mine[Decoder::kBits];
  for (int i = 0; i < Decoder::kBits; ++i) mine[i] = words[lane * Decoder::kBits + i];
  cuda::ZeroPair zero = {};
  if constexpr (Decoder::kHasZeros) zero = Decoder::zeros(zeros.even, zeros.odd);
  for (int step = 0; step < 4; ++step) {
    uint32_t r[4];
    cuda::decode_step<Decoder>(mine, step, zero, table, r);
    for (int i = 0; i < 4; ++i) registers[(lane * 4 + step) * 4 + i] = r[i];
  }
}

template <class Decoder>
void launch(const uint32_t* words, int lanes, Zeros zeros, const uint16_t* codebook,
            uint32_t* registers) {
  int bytes = 0;
  if constexpr (Decoder::kHasTable) bytes = Decoder::kPairs * 32 * 4;
  decode<Decoder><<<(lanes + kThreads - 1) / kThreads, kThreads, bytes>>>(words, lanes, zeros,
                                                                          codebook, registers);
}

__global__ void read_scales(cuda::ScaleRule rule, const uint32_t* codes, int count, float* values) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = cuda::scale_value(codes[i], rule);
}

}  // namespace

bool decode_on_gpu(std::string_view decoder, const uint32_t* words, int lanes, Zeros zeros,
                   const uint16_t* codebook, uint32_t* registers) {
#define SUBBYTE_LAUNCH(name, Decoder, bits)                                \
  if (decoder == #name "_f16") {                                           \
    launch<Decoder<F16, bits>>(words, lanes, zeros, codebook, registers);  \
    return true;                                                           \
  }                                                                        \
  if (decoder == #name "_bf16") {                                          \
    launch<Decoder<BF16, bits>>(words, lanes, zeros, codebook, registers); \
    return true;                                                           \
  }
  SUBBYTE_EACH_DECODER(SUBBYTE_LAUNCH)
#undef SUBBYTE_LAUNCH
  return false;
}

bool converts_e4m3_on_gpu() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, &decode<cuda::E4M3<F16>>);
  return error == cudaSuccess && attributes.ptxVersion >= 89;
}

void read_scales_on_gpu(const cuda::ScaleRule& rule, const uint32_t* codes, int count,
                        float* values) {
  read_scales<<<(count + kThreads - 1) / kThreads, kThreads>>>(rule, codes, count, values);
}

}  // namespace subbyte::testing
