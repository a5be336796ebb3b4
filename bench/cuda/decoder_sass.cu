// One kernel for each decoder, which decodes one tile: 32 weights of a lane. tools/count_sass.py
// compiles it and counts the instructions between the loads and the stores.

#include "bench/cuda/single_table.h"
#include "kernels/gpu/decoders.h"
#include "kernels/gpu/tile_order.h"

namespace subbyte::gpu {
namespace {

template <class Decoder>
__device__ __forceinline__ void decode_tile(const uint4* in, uint4* out, ZeroPair zero) {
  const uint4 a = in[threadIdx.x];
  const uint4 b = in[threadIdx.x + 32];
  const uint4 c = in[threadIdx.x + 64];
  const Table table = {0, c.x, c.y};  // where it begins is known, as in the kernels
  const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  for (int step = 0; step < 4; ++step) {
    uint32_t r[4];
    decode_step<Decoder>(words, step, zero, table, r);
    out[32 * step + threadIdx.x] = make_uint4(r[0], r[1], r[2], r[3]);
  }
}

}  // namespace
}  // namespace subbyte::gpu

#define SUBBYTE_PROBE(name, ...)                                                         \
  extern "C" __global__ void name(const uint4* __restrict__ in, uint4* __restrict__ out, \
                                  subbyte::gpu::ZeroPair zero) {                         \
    using namespace subbyte::gpu;                                                        \
    decode_tile<__VA_ARGS__>(in, out, zero);                                             \
  }
#define SUBBYTE_PROBE_BOTH(name, Decoder, bits) \
  SUBBYTE_PROBE(name##_f16, Decoder<F16, bits>) \
  SUBBYTE_PROBE(name##_bf16, Decoder<BF16, bits>)

SUBBYTE_PROBE_BOTH(integers2, Integers, 2)
SUBBYTE_PROBE_BOTH(integers3, Integers, 3)
SUBBYTE_PROBE_BOTH(integers4, Integers, 4)
SUBBYTE_PROBE_BOTH(integers8, Integers, 8)
SUBBYTE_PROBE(e2m1_f16, E2M1<F16>)
SUBBYTE_PROBE(e2m1_bf16, E2M1<BF16>)
SUBBYTE_PROBE(e4m3_f16, E4M3<F16>)
SUBBYTE_PROBE(e4m3_bf16, E4M3<BF16>)
SUBBYTE_PROBE(codebook2, Codebook<F16, 2>)
SUBBYTE_PROBE(codebook3, Codebook<F16, 3>)
SUBBYTE_PROBE(codebook4, Codebook<F16, 4>)
SUBBYTE_PROBE(codebook5, Codebook<F16, 5>)
SUBBYTE_PROBE(vectors2, Vectors<F16, 2>)
SUBBYTE_PROBE(vectors4, Vectors<F16, 4>)
SUBBYTE_PROBE(single_table4, subbyte::bench::SingleTable)
