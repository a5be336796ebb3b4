#pragma once
// How CTAs leave results for each other without a barrier: as tagged floats, words of 32 bits that
// say themselves whether they are there.
//
//   31                    8 7      0
//   [ sign, exponent, 15 bits | tag ]     a float, rounded to nearest, and the number of the write
//
// A reader loads the word until it has the tag that it waits for. A word is written and read at
// once, so nothing has to be ordered by fences: one trip to the L2 cache instead of three (release,
// counter, data). 16 bits of significand are 2^-17 of rounding, less than f16 has.

#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

inline constexpr uint32_t kTagMask = 0xff;

/// The word of a float. NaN stays one, and infinity.
__device__ __forceinline__ uint32_t tagged(float value, uint32_t tag) {
  const uint32_t bits = __float_as_uint(value == value ? value : __uint_as_float(0x7fc00000u));
  return ((bits + 0x80) & ~kTagMask) | tag;
}
__device__ __forceinline__ float untagged(uint32_t word) {
  return __uint_as_float(word & ~kTagMask);
}

__device__ __forceinline__ void st_relaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t ld_relaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_tagged(const StepResult& to, int token, int64_t at,
                                             float value) {
  if (to.tagged != nullptr) st_relaxed(to.tagged + token * to.stride + at, tagged(value, to.tag));
}
/// Two neighbours, each of which is read at once.
__device__ __forceinline__ uint2 ld_relaxed_x2(const uint32_t* from) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(from)
               : "memory");
  return v;
}

/// Counts one more, from `last` to 0; what it was before.
__device__ __forceinline__ uint32_t atom_acq_rel_inc(uint32_t* counter, uint32_t last) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(last)
               : "memory");
  return before;
}

/// The barrier of the warps of a CTA that multiply and attend.
__device__ __forceinline__ void step_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kStepThreads) : "memory");
}

}  // namespace subbyte::cuda
