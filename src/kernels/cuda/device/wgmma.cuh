#pragma once
// Hopper's instructions: matrix products of a warpgroup with weights from registers, barriers in
// shared memory, and tiles copied by the tensor memory accelerator.

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"

namespace subbyte::cuda {

/// A tile of [tokens][64] numbers in shared memory, 128 bytes a row, whose 16-byte pieces lie
/// swizzled over groups of 8 rows as the accelerator writes them. `address` is 1024-byte aligned.
/// 32 bytes further are the next 16 inputs: add 2.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroupStride | uint64_t{1} << 16 | (address >> 4 & 0x3fff);
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

// The sums are overwritten if `add` is 0.
#define SUBBYTE_WGMMA_64(TYPE)                                                            \
  asm volatile(                                                                           \
      "{.reg .pred p; setp.ne.b32 p, %37, 0;"                                             \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                         \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"           \
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}," \
      " {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"                                          \
      : SUBBYTE_F32(d, 0)                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define SUBBYTE_WGMMA_128(TYPE)                                                           \
  asm volatile(                                                                           \
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"                                             \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                        \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"           \
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"  \
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"  \
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}," \
      " {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"                                          \
      : SUBBYTE_F32(d, 0), SUBBYTE_F32(d, 32)                                             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define SUBBYTE_WGMMA_256(TYPE)                                                              \
  asm volatile(                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %133, 0;"                                               \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE                           \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "   \
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "     \
      "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "     \
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "     \
      "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "     \
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "     \
      "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "   \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
      "%126, %127},"                                                                         \
      " {%128, %129, %130, %131}, %132, p, 1, 1, 0;}"                                        \
      : SUBBYTE_F32(d, 0), SUBBYTE_F32(d, 32), SUBBYTE_F32(d, 64), SUBBYTE_F32(d, 96)        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

/// d += a b; a: 64 x 16 weights, 16 rows in each warp, b: 16 inputs x kTokens tokens.
template <class Number, int kTokens>
__device__ __forceinline__ void wgmma(float (&d)[kTokens / 2], const uint32_t (&a)[4], uint64_t b,
                                      int add) {
  static_assert(kTokens == 64 || kTokens == 128 || kTokens == 256);
  if constexpr (kTokens == 64 && Number::kIsF16) {
    SUBBYTE_WGMMA_64("f16");
  } else if constexpr (kTokens == 64) {
    SUBBYTE_WGMMA_64("bf16");
  } else if constexpr (kTokens == 128 && Number::kIsF16) {
    SUBBYTE_WGMMA_128("f16");
  } else if constexpr (kTokens == 128) {
    SUBBYTE_WGMMA_128("bf16");
  } else if constexpr (Number::kIsF16) {
    SUBBYTE_WGMMA_256("f16");
  } else {
    SUBBYTE_WGMMA_256("bf16");
  }
}

#undef SUBBYTE_WGMMA_64
#undef SUBBYTE_WGMMA_128
#undef SUBBYTE_WGMMA_256
#undef SUBBYTE_F32
#undef SUBBYTE_F8

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Where block `rank` of the cluster has what this block has at `address`.
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, int rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
/// No fence: what the barrier guards is read by wgmma, which has been waited for.
__device__ __forceinline__ void arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Copies the map's box at (col, row) to `to`, and counts its bytes at the barrier; with `several`
/// of every block in `blocks`, a bit for each.
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap& map, int col, int row,
                                          uint32_t barrier, int blocks, bool several) {
  if (!several) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(col), "r"(row), "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(blocks))
        : "memory");
  }
}

}  // namespace subbyte::cuda
