#pragma once
// Instantiates the kernels of one kind of weights.

#include "kernels/cuda/decoder_of.cuh"
#include "kernels/cuda/gemv/kernel.cuh"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/large_m/kernel.cuh"
#include "kernels/cuda/small_m/kernel.cuh"

namespace subbyte::cuda {

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
           pointer(large_m_kernel<Number, Decoder, kGroups, 16>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 32>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 64>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 128>),
           pointer(large_m_kernel<Number, Decoder, kGroups, 256>)}};
}

}  // namespace subbyte::cuda
