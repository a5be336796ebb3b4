#pragma once
// The barrier of all CTAs of a grid that is resident as a whole, and loads of what others wrote.

#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

__device__ __forceinline__ void red_release_add(uint32_t* counter, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t atom_acq_rel_add(uint32_t* counter, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(value)
               : "memory");
  return before;
}
__device__ __forceinline__ uint32_t ld_relaxed(const uint32_t* counter) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

/// The barrier of the warps of a CTA that multiply and attend.
__device__ __forceinline__ void step_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kStepThreads) : "memory");
}

/// Counts arrivals and never goes back: the n-th barrier waits for n times the CTAs.
class GridBarrier {
 public:
  __device__ GridBarrier(uint32_t* arrived, uint32_t before) : arrived_(arrived), target_(before) {}

  /// All threads of the CTA: what they wrote is there for those who wait.
  __device__ void arrive() {
    step_sync();
    if (threadIdx.x == 0) red_release_add(arrived_, 1);
    target_ += gridDim.x;
  }
  /// All threads of the CTA, after arrive().
  __device__ void wait() const {
    if (threadIdx.x == 0) {
      while (static_cast<int32_t>(ld_relaxed(arrived_) - target_) < 0) {
      }
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
    step_sync();
  }

 private:
  uint32_t* const arrived_;
  uint32_t target_;
};

}  // namespace subbyte::cuda
