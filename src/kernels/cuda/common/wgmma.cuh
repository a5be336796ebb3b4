#pragma once
// wgmma (sm_90a): products of a warpgroup, whose operand A comes from registers and B from shared
// memory.

#include <cstdint>

namespace subbyte::cuda {

/// Matrix descriptor of a tile of [tokens][64] numbers, K-major with the 128-byte swizzle in which
/// TMA writes it. `address` is 1024-byte aligned. The next 16 inputs are 32 bytes further: add 2.
__device__ __forceinline__ constexpr uint64_t wgmma_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStrideOf8Rows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kStrideOf8Rows | uint64_t{1} << 16 | (address >> 4 & 0x3fff);
}

/// The same of [tokens][64] bytes with the 64-byte swizzle. The next 32 inputs are 32 bytes
/// further, too.
__device__ __forceinline__ uint64_t wgmma_descriptor_of_bytes(uint32_t address) {
  constexpr uint64_t kSwizzle64 = uint64_t{2} << 62;
  constexpr uint64_t kStrideOf8Rows = uint64_t{512 >> 4} << 32;
  return kSwizzle64 | kStrideOf8Rows | uint64_t{1} << 16 | (address >> 4 & 0x3fff);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define SUBBYTE_F8(d, i)                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUBBYTE_F32(d, i) \
  SUBBYTE_F8(d, i), SUBBYTE_F8(d, i + 8), SUBBYTE_F8(d, i + 16), SUBBYTE_F8(d, i + 24)

// The accumulators are overwritten if `accumulate` is 0.
#define SUBBYTE_WGMMA_8(TYPE)                                    \
  asm volatile(                                                  \
      "{.reg .pred p; setp.ne.b32 p, %9, 0;"                     \
      "wgmma.mma_async.sync.aligned.m64n8k16.f32." TYPE "." TYPE \
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;}"    \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SUBBYTE_WGMMA_16(TYPE)                                                   \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %13, 0;"                                    \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE                \
      " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;}" \
      : SUBBYTE_F8(d, 0)                                                         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SUBBYTE_WGMMA_32(TYPE)                                                   \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %21, 0;"                                    \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}," \
      " {%16, %17, %18, %19}, %20, p, 1, 1, 0;}"                                 \
      : SUBBYTE_F8(d, 0), SUBBYTE_F8(d, 8)                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SUBBYTE_WGMMA_64(TYPE)                                                            \
  asm volatile(                                                                           \
      "{.reg .pred p; setp.ne.b32 p, %37, 0;"                                             \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                         \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"           \
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}," \
      " {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"                                          \
      : SUBBYTE_F32(d, 0)                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

// LAST: of 16-bit numbers, that b is K-major.
#define SUBBYTE_WGMMA_128(K, TYPE, LAST)                                                  \
  asm volatile(                                                                           \
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"                                             \
      "wgmma.mma_async.sync.aligned.m64n128k" K ".f32." TYPE "." TYPE                     \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"           \
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"  \
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"  \
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}," \
      " {%64, %65, %66, %67}, %68, p, 1, 1" LAST ";}"                                     \
      : SUBBYTE_F32(d, 0), SUBBYTE_F32(d, 32)                                             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define SUBBYTE_WGMMA_256(K, TYPE, LAST)                                                     \
  asm volatile(                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %133, 0;"                                               \
      "wgmma.mma_async.sync.aligned.m64n256k" K ".f32." TYPE "." TYPE                        \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "   \
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "     \
      "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "     \
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "     \
      "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "     \
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "     \
      "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "   \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
      "%126, %127},"                                                                         \
      " {%128, %129, %130, %131}, %132, p, 1, 1" LAST ";}"                                   \
      : SUBBYTE_F32(d, 0), SUBBYTE_F32(d, 32), SUBBYTE_F32(d, 64), SUBBYTE_F32(d, 96)        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

/// d += a b; a: 64 x 16 weights, 16 rows in each warp, b: 16 inputs x kTokens tokens.
template <class Number, int kTokens>
__device__ __forceinline__ void wgmma(float (&d)[kTokens / 2], const uint32_t (&a)[4], uint64_t b,
                                      int accumulate) {
  static_assert(kTokens == 8 || kTokens == 16 || kTokens == 32 || kTokens == 64 || kTokens == 128 ||
                kTokens == 256);
  if constexpr (kTokens == 8 && Number::kIsF16) {
    SUBBYTE_WGMMA_8("f16");
  } else if constexpr (kTokens == 8) {
    SUBBYTE_WGMMA_8("bf16");
  } else if constexpr (kTokens == 16 && Number::kIsF16) {
    SUBBYTE_WGMMA_16("f16");
  } else if constexpr (kTokens == 16) {
    SUBBYTE_WGMMA_16("bf16");
  } else if constexpr (kTokens == 32 && Number::kIsF16) {
    SUBBYTE_WGMMA_32("f16");
  } else if constexpr (kTokens == 32) {
    SUBBYTE_WGMMA_32("bf16");
  } else if constexpr (kTokens == 64 && Number::kIsF16) {
    SUBBYTE_WGMMA_64("f16");
  } else if constexpr (kTokens == 64) {
    SUBBYTE_WGMMA_64("bf16");
  } else if constexpr (kTokens == 128 && Number::kIsF16) {
    SUBBYTE_WGMMA_128("16", "f16", ", 0");
  } else if constexpr (kTokens == 128) {
    SUBBYTE_WGMMA_128("16", "bf16", ", 0");
  } else if constexpr (Number::kIsF16) {
    SUBBYTE_WGMMA_256("16", "f16", ", 0");
  } else {
    SUBBYTE_WGMMA_256("16", "bf16", ", 0");
  }
}

/// d += a b in E4M3; a: 64 x 32 weights, 16 rows in each warp, b: 32 inputs x 256 tokens.
__device__ __forceinline__ void wgmma_e4m3(float (&d)[128], const uint32_t (&a)[4], uint64_t b,
                                           int accumulate) {
  SUBBYTE_WGMMA_256("32", "e4m3", "");
}
/// The same of 128 tokens.
__device__ __forceinline__ void wgmma_e4m3(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                           int accumulate) {
  SUBBYTE_WGMMA_128("32", "e4m3", "");
}

#undef SUBBYTE_WGMMA_8
#undef SUBBYTE_WGMMA_16
#undef SUBBYTE_WGMMA_32
#undef SUBBYTE_WGMMA_64
#undef SUBBYTE_WGMMA_128
#undef SUBBYTE_WGMMA_256
#undef SUBBYTE_F32
#undef SUBBYTE_F8

}  // namespace subbyte::cuda
