#include "kernels/cuda/step/superblocks.h"

#include "kernels/cuda/step/kernel.cuh"

namespace subbyte::cuda {
namespace {

template <class Number, int kBits, int kGroups>
using Kind = StepKind<InSuperblocks<Integers<Number, kBits>>, kGroups>;

template <class Number, bool kIsFull>
const void* kernel_of() {
  return reinterpret_cast<const void*>(
      step_kernel<Number, kIsFull, Kind<Number, 4, 2>, Kind<Number, 6, 4>, Kind<Number, 5, 2>,
                  Kind<Number, 3, 4>, Kind<Number, 2, 4>>);
}

}  // namespace

const void* superblocks_step(bool is_f16, bool is_full) {
  if (is_full) return is_f16 ? kernel_of<F16, true>() : kernel_of<BF16, true>();
  return is_f16 ? kernel_of<F16, false>() : kernel_of<BF16, false>();
}

}  // namespace subbyte::cuda
