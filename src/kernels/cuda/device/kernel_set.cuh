#pragma once
// Instantiates the kernels of one kind of weights.

#include "kernels/cuda/device/gemv.cuh"
#include "kernels/cuda/device/kernel_set.h"
#include "kernels/cuda/device/narrow.cuh"
#include "kernels/cuda/device/wide.cuh"

namespace subbyte::cuda {

/// Integers and Codebook have their bits as an argument, E2M1 has none.
template <template <class, int> class Decoder, class Number, int kBits>
Decoder<Number, kBits> decoder_of();
template <template <class> class Decoder, class Number, int kBits>
Decoder<Number> decoder_of();

template <class Number, class Decoder, int kGroups>
KernelSet make_kernel_set() {
  const auto pointer = [](auto* kernel) { return reinterpret_cast<const void*>(kernel); };
  return {{pointer(gemv_kernel<Number, Decoder, kGroups>),
           pointer(narrow_kernel<Number, Decoder, kGroups, 1>),
           pointer(narrow_kernel<Number, Decoder, kGroups, 2>),
           pointer(narrow_kernel<Number, Decoder, kGroups, 8>),
           pointer(wide_kernel<Number, Decoder, kGroups, 64>),
           pointer(wide_kernel<Number, Decoder, kGroups, 128>),
           pointer(wide_kernel<Number, Decoder, kGroups, 256>)}};
}

}  // namespace subbyte::cuda
