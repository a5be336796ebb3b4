#include "kernels/cuda/step/superblocks.h"

#include "kernels/cuda/step/kernel.cuh"

namespace subbyte::cuda {
namespace {

template <class Number, int kBits, int kGroups>
using Kind = StepKind<InSuperblocks<Integers<Number, kBits>>, kGroups>;

template <class Number>
const void* kernel_of() {
  return reinterpret_cast<const void*>(
      step_kernel<Number, Kind<Number, 4, 2>, Kind<Number, 6, 4>, Kind<Number, 5, 2>,
                  Kind<Number, 3, 4>, Kind<Number, 2, 4>>);
}

}  // namespace

const void* superblocks_step(bool is_f16) {
  return is_f16 ? kernel_of<F16>() : kernel_of<BF16>();
}

}  // namespace subbyte::cuda
