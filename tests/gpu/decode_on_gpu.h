#pragma once
// The decoders and scale rules of the CUDA kernels by themselves, one thread for each lane.

#include <cstdint>
#include <string_view>

#include "kernels/cuda/common/arguments.h"

// X(name, decoder, bits of a code)
#define SUBBYTE_EACH_DECODER(X) \
  X(integers2, Integers, 2)     \
  X(integers3, Integers, 3)     \
  X(integers4, Integers, 4)     \
  X(integers8, Integers, 8)     \
  X(e2m1, E2M1Of, 4)            \
  X(e4m3, E4M3Of, 8)            \
  X(e4m3_bits, E4M3BitsOf, 8)   \
  X(codebook2, Codebook, 2)     \
  X(codebook3, Codebook, 3)     \
  X(codebook4, Codebook, 4)     \
  X(codebook5, Codebook, 5)

namespace subbyte::testing {

struct Zeros {
  uint32_t even;
  uint32_t odd;
};

/// registers[lane][step][r] of words[lane][bits], all in device memory; `lanes` is a multiple of
/// 32. `decoder` is "integers4_f16". False: there is none of that name.
bool decode_on_gpu(std::string_view decoder, const uint32_t* words, int lanes, Zeros zeros,
                   const uint16_t* codebook, uint32_t* registers);

/// Says whether e4m3 is an instruction in the code that this GPU runs. It keeps NaN.
bool converts_e4m3_on_gpu();

/// values[i] = scale of codes[i], in device memory.
void read_scales_on_gpu(const cuda::ScaleRule& rule, const uint32_t* codes, int count,
                        float* values);

}  // namespace subbyte::testing
