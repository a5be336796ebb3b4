#pragma once
// Instantiates the kernels of one kind of weights.

#include "kernels/cuda/gemv/kernel.cuh"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/large_m/kernel.cuh"
#include "kernels/cuda/small_m/kernel.cuh"
#include "kernels/cuda/step/kernel.cuh"

namespace subbyte::cuda {

/// Integers and Codebook have their bits as an argument, E2M1 has none.
template <template <class, int> class Decoder, class Number, int kBits>
Decoder<Number, kBits> decoder_of();
template <template <class> class Decoder, class Number, int kBits>
Decoder<Number> decoder_of();

template <class Number, class Decoder, int kGroups>
KernelSet make_kernel_set() {
  static_assert(IsNumber<Number>, "activations are F16 or BF16 of gpu/dialect.h");
  static_assert(IsDecoder<Decoder>, "the decoder does not keep the contract of gpu/decoders.h");
  static_assert(kGroups == 1 || kGroups == 2 || kGroups == 4,
                "a tile of 64 inputs has 1, 2 or 4 groups; longer groups count as 1");
  const auto pointer = [](auto* kernel) { return reinterpret_cast<const void*>(kernel); };
  return {{pointer(gemv_kernel<Number, Decoder, kGroups>),
           pointer(small_m_kernel<Number, Decoder, kGroups, 1>),
           pointer(small_m_kernel<Number, Decoder, kGroups, 2>),
           pointer(small_m_kernel<Number, Decoder, kGroups, 8>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 64>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 128>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 256>)},
          pointer(step_kernel<Number, Decoder, kGroups>)};
}

}  // namespace subbyte::cuda
