#pragma once
// The decoder of a line of weights.def.

#include <type_traits>

#include "kernels/cuda/common/two_levels.cuh"
#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {

using namespace gpu;

/// Integers and Codebook have their bits as an argument, E2M1, E4M3 and Floats have none.
template <template <class, int> class Decoder, class Number, int kBits, int kLevels = 1>
std::conditional_t<kLevels == 2, InSuperblocks<Decoder<Number, kBits>>, Decoder<Number, kBits>>
decoder_of();
template <template <class> class Decoder, class Number, int kBits, int kLevels = 1>
Decoder<Number> decoder_of();

}  // namespace subbyte::cuda
