#pragma once
// The instructions of the tensor cores and of the copy engines, by name.

#include <cuda.h>

#include <cstdint>

#include "kernels/gpu/dialect.h"

namespace subbyte::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// d += a b; a: 16 x 16 weights, b: 16 inputs x 8 tokens.
template <class Number>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (Number::kIsF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Four matrices of 8 x 8 16-bit numbers; lane l supplies the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

template <int kWords>
__device__ __forceinline__ void read_shared(uint32_t* to, uint32_t address) {
  if constexpr (kWords == 4) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kWords == 8) {
    read_shared<4>(to, address);
    read_shared<4>(to + 4, address + 16);
  } else {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(address) : "memory");
  }
}
__device__ __forceinline__ void write_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t read_shared_u16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

/// kBytes: 4, 8 or 16. Sixteen pass the first-level cache by: weights are read once.
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t to_shared, const void* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to_shared), "l"(from),
                 "n"(kBytes)
                 : "memory");
  }
}
/// Zeros instead, if nothing is `there`.
template <int kBytes>
__device__ __forceinline__ void copy_async_or_zero(uint32_t to_shared, const void* from,
                                                   bool there) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to_shared), "l"(from),
                 "n"(kBytes), "r"(there ? kBytes : 0)
                 : "memory");
  }
}
/// 16 bytes, or zeros if they are not `there`, by the lanes that work.
__device__ __forceinline__ void copy_16_if(bool works, uint32_t to_shared, const void* from,
                                           bool there) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %3, 0;"
      "@p cp.async.cg.shared.global [%0], [%1], 16, %2;}" ::"r"(to_shared),
      "l"(from), "r"(there ? 16 : 0), "r"(static_cast<int>(works))
      : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ __forceinline__ void commit_copies_if(int condition) {
  asm volatile("{.reg .pred p; setp.ne.s32 p, %0, 0; @p cp.async.commit_group;}" ::"r"(condition)
               : "memory");
}
/// Waits until at most kPending of this thread's groups of copies, the last ones, are under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Programmatic dependent launch: what a kernel does before wait_for_previous_kernel() overlaps
/// with the end of the one before it, and must not depend on it.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_cluster() {
  cluster_arrive();
  cluster_wait();
}

/// A float in the shared memory of block `rank` of the cluster, at the address it has in ours.
__device__ __forceinline__ float load_from_block(uint32_t address, int rank) {
  float value = 0;
#if __CUDA_ARCH__ >= 900
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
#endif
  return value;
}

// --- barriers in shared memory that count bytes, and copies that they count (sm_90 on) ---

#if __CUDA_ARCH__ >= 900
inline constexpr bool kHasCopyEngine = true;
#else
inline constexpr bool kHasCopyEngine = false;
#endif

__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
#endif
}
__device__ __forceinline__ void publish_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
__device__ __forceinline__ void wait_barrier(uint32_t barrier, int phase) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred done;"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
      "@done bra over;"
      "bra again;"
      "over: }" ::"r"(barrier),
      "r"(phase)
      : "memory");
#endif
}

/// A multiple of 16 bytes between addresses that are. Issued by one thread.
__device__ __forceinline__ void copy_bulk(uint32_t to_shared, const void* from, int bytes,
                                          uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to_shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
#endif
}

// --- Hopper only ---

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
