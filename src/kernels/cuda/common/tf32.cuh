#pragma once
// Tensor cores on tf32: floats with ten bits after the leading one. They hold f16 and bf16 exactly,
// so one kernel serves every mixture of the types.

#include <cstdint>

namespace subbyte::cuda {

/// Rounded to nearest; the unit is 2^-11.
__device__ __forceinline__ float to_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}

/// d += a b, a [16][8], b [8][8]. With g = lane / 4 and t = lane % 4 a lane has
///   a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)     b: (t, g), (t + 4, g)
///   d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
__device__ __forceinline__ void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace subbyte::cuda
