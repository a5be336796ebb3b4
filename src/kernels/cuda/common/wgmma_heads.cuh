#pragma once
// wgmma (sm_90a) of attention: queries from shared memory by keys, and weights from registers by
// values, whose numbers of a position are neighbours. Accumulators are 64 rows by tiles of eight
// columns, as mma has them.

#include "kernels/cuda/common/wgmma.cuh"

namespace subbyte::cuda {

/// Matrix descriptor of values [positions][64] with the 128-byte swizzle in which TMA writes them,
/// N-major; the next 64 numbers of all positions lie `step` bytes further. The next 16 positions
/// are 2,048 bytes further: add 128.
__device__ __forceinline__ uint64_t wgmma_descriptor_of_values(uint32_t address, int step) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStrideOf8Positions = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kStrideOf8Positions | static_cast<uint64_t>(step >> 4) << 16 |
         (address >> 4 & 0x3fff);
}

/// What reads accumulators stays after the wait before it.
template <int kTiles>
__device__ __forceinline__ void wgmma_arrived(float (&d)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
  }
}

#define SUBBYTE_D(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define SUBBYTE_D8(d, i)                                                          \
  SUBBYTE_D(d, i), SUBBYTE_D(d, i + 1), SUBBYTE_D(d, i + 2), SUBBYTE_D(d, i + 3), \
      SUBBYTE_D(d, i + 4), SUBBYTE_D(d, i + 5), SUBBYTE_D(d, i + 6), SUBBYTE_D(d, i + 7)
#define SUBBYTE_0_TO_31                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15," \
  " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUBBYTE_32_TO_63                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48," \
  " %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUBBYTE_64_TO_127                                                                    \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80,"   \
  " %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97,"    \
  " %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112," \
  " %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Operands a and b are descriptors; the accumulators are overwritten if `accumulate` is 0.
#define SUBBYTE_SCORES_64(TYPE)                                                        \
  asm volatile(                                                                        \
      "{.reg .pred p; setp.ne.b32 p, %34, 0;"                                          \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" SUBBYTE_0_TO_31 \
      "}, %32, %33, p, 1, 1, 0, 0;}"                                                   \
      : SUBBYTE_D8(d, 0)                                                               \
      : "l"(a), "l"(b), "r"(accumulate))
#define SUBBYTE_SCORES_128(TYPE)                                           \
  asm volatile(                                                            \
      "{.reg .pred p; setp.ne.b32 p, %66, 0;"                              \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE         \
      " {" SUBBYTE_0_TO_31 SUBBYTE_32_TO_63 "}, %64, %65, p, 1, 1, 0, 0;}" \
      : SUBBYTE_D8(d, 0), SUBBYTE_D8(d, 8)                                 \
      : "l"(a), "l"(b), "r"(accumulate))
#define SUBBYTE_VALUES_128(TYPE)                                                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                      \
               " {" SUBBYTE_0_TO_31 SUBBYTE_32_TO_63 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;" \
               : SUBBYTE_D8(d, 0), SUBBYTE_D8(d, 8)                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define SUBBYTE_VALUES_256(TYPE)                                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE               \
               " {" SUBBYTE_0_TO_31 SUBBYTE_32_TO_63 SUBBYTE_64_TO_127                    \
               "}, {%128, %129, %130, %131}, %132,"                                       \
               " 1, 1, 1, 1;"                                                             \
               : SUBBYTE_D8(d, 0), SUBBYTE_D8(d, 8), SUBBYTE_D8(d, 16), SUBBYTE_D8(d, 24) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/// d += a b; a: 64 queries x 16 numbers, b: as many keys as columns.
template <class Number, int kTiles>
__device__ __forceinline__ void wgmma_scores(float (&d)[kTiles][4], uint64_t a, uint64_t b,
                                             int accumulate) {
  static_assert(kTiles == 8 || kTiles == 16);
  if constexpr (kTiles == 8 && Number::kIsF16) {
    SUBBYTE_SCORES_64("f16");
  } else if constexpr (kTiles == 8) {
    SUBBYTE_SCORES_64("bf16");
  } else if constexpr (Number::kIsF16) {
    SUBBYTE_SCORES_128("f16");
  } else {
    SUBBYTE_SCORES_128("bf16");
  }
}

/// d += a b; a: weights of 64 rows x 16 positions, b: their values.
template <class Number, int kTiles>
__device__ __forceinline__ void wgmma_values(float (&d)[kTiles][4], const uint32_t (&a)[4],
                                             uint64_t b) {
  static_assert(kTiles == 16 || kTiles == 32);
  if constexpr (kTiles == 16 && Number::kIsF16) {
    SUBBYTE_VALUES_128("f16");
  } else if constexpr (kTiles == 16) {
    SUBBYTE_VALUES_128("bf16");
  } else if constexpr (Number::kIsF16) {
    SUBBYTE_VALUES_256("f16");
  } else {
    SUBBYTE_VALUES_256("bf16");
  }
}

#undef SUBBYTE_VALUES_256
#undef SUBBYTE_VALUES_128
#undef SUBBYTE_SCORES_128
#undef SUBBYTE_SCORES_64
#undef SUBBYTE_64_TO_127
#undef SUBBYTE_32_TO_63
#undef SUBBYTE_0_TO_31
#undef SUBBYTE_D8
#undef SUBBYTE_D

}  // namespace subbyte::cuda
