#pragma once
// PTX instructions by their names in the manual: tensor cores (mma, ldmatrix), copies to shared
// memory (cp.async, cp.async.bulk, TMA), mbarriers, clusters, programmatic dependent launch.
// What needs sm_90 is empty below it, so that one text compiles for all; the host does not choose
// it.

#include <cuda.h>

#include <cstdint>

#include "kernels/gpu/dialect.h"

namespace subbyte::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// The same 32-bit value, which the compiler keeps in a register instead of computing it again at
/// each use.
template <class T>
__device__ __forceinline__ T keep_in_register(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// Of a >= 0; NaN if one is, with a clear sign.
__device__ __forceinline__ float larger_magnitude(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(fabsf(b)));
  return larger;
}

/// Two codes of e4m3, the first one in the low bits: to nearest even, the largest number beyond it.
/// Below sm_89 zero.
__device__ __forceinline__ uint32_t e4m3_x2(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return 0;
#endif
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

/// d += a b, exactly; a: 16 x 32 unsigned bytes, b: 32 signed bytes x 8 columns.
__device__ __forceinline__ void mma_u8_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four matrices of 8 x 8 16-bit numbers; lane l supplies the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

/// What ldmatrix_x4_trans() loads, stored: lane l has two neighbours of column l / 4 of each matrix
/// and supplies the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, const uint32_t (&v)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
#endif
}

/// A matrix of 8 x 8 16-bit numbers, of which lane l has two of row l / 4, transposed.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t pair) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

template <int kWords>
__device__ __forceinline__ void ld_shared(uint32_t* to, uint32_t address) {
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
    ld_shared<4>(to, address);
    ld_shared<4>(to + 4, address + 16);
  } else {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(address) : "memory");
  }
}
__device__ __forceinline__ void st_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void st_shared_x2(uint32_t address, uint32_t first, uint32_t second) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(address), "r"(first), "r"(second)
               : "memory");
}
__device__ __forceinline__ void st_shared_x4(uint32_t address, const uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}
__device__ __forceinline__ void st_shared_v4(uint32_t address, const float* v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}
__device__ __forceinline__ uint32_t ld_shared_u16(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t ld_shared_u8(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

/// Loads nothing unless the lane is `active`.
__device__ __forceinline__ void ld_shared_x4_if(bool active, uint32_t (&to)[4], uint32_t address) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %5, 0;"
      "@p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
      : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
      : "r"(address), "r"(static_cast<int>(active))
      : "memory");
}

// --- cp.async: asynchronous copies by every lane, waited for by number (sm_80 on) ---

/// kBytes: 4, 8 or 16. Those of 16 bypass the L1 cache: weights are read once.
template <int kBytes>
__device__ __forceinline__ void cp_async(uint32_t to_shared, const void* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to_shared), "l"(from),
                 "n"(kBytes)
                 : "memory");
  }
}
/// Writes zeros instead unless it is `there`.
template <int kBytes>
__device__ __forceinline__ void cp_async_zfill(uint32_t to_shared, const void* from, bool there) {
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
/// 16 bytes, or zeros unless they are `there`, if the lane is `active`.
__device__ __forceinline__ void cp_async_16_if(bool active, uint32_t to_shared, const void* from,
                                               bool there) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %3, 0;"
      "@p cp.async.cg.shared.global [%0], [%1], 16, %2;}" ::"r"(to_shared),
      "l"(from), "r"(there ? 16 : 0), "r"(static_cast<int>(active))
      : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ __forceinline__ void cp_async_commit_if(int condition) {
  asm volatile("{.reg .pred p; setp.ne.s32 p, %0, 0; @p cp.async.commit_group;}" ::"r"(condition)
               : "memory");
}
/// Waits until at most the last kPending committed groups of this thread are in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// --- programmatic dependent launch, clusters, DSMEM (sm_90 on) ---

/// What a kernel does before griddepcontrol_wait() overlaps with the end of the kernel before it
/// and must not depend on its results.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void griddepcontrol_wait() {
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

/// The same where what this thread has written need not be seen by others: it does not wait until
/// that has gone through.
__device__ __forceinline__ void cluster_arrive_relaxed() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_sync_relaxed() {
  cluster_arrive_relaxed();
  cluster_wait();
}

__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/// A float in the shared memory of CTA `rank` of the cluster, at the address that it has in ours.
__device__ __forceinline__ float ld_dsmem(uint32_t address, int rank) {
  float value = 0;
#if __CUDA_ARCH__ >= 900
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
#endif
  return value;
}

/// Four floats in the shared memory of CTA `rank` of the cluster, at the address of ours.
__device__ __forceinline__ void ld_dsmem_v4(float* v, uint32_t address, int rank) {
  asm volatile(
      "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5;"
      "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];}"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
      : "r"(address), "r"(rank)
      : "memory");
}

/// Stores to the shared memory of CTA `rank` of the cluster, at the address that it has in ours.
__device__ __forceinline__ void st_dsmem(uint32_t address, int rank, float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
      "st.shared::cluster.f32 [remote], %2;}" ::"r"(address),
      "r"(rank), "f"(value)
      : "memory");
#endif
}

// --- mbarriers that count bytes, and the bulk copies that they count (sm_90 on) ---

#if __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulkCopy = true;
#else
inline constexpr bool kHasBulkCopy = false;
#endif

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
#endif
}
__device__ __forceinline__ void fence_mbarrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
/// Arrives when all cp.async that this thread has issued are there.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, int phase) {
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

/// Orders accesses to shared memory before it with bulk copies after it (the async proxy), which a
/// barrier separates.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// A multiple of 16 bytes between 16-byte aligned addresses. Issued by one thread.
__device__ __forceinline__ void cp_async_bulk(uint32_t to_shared, const void* from, int bytes,
                                              uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to_shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
#endif
}

// --- TMA, registers of warpgroups (sm_90a); wgmma is in wgmma.cuh ---

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// The address in CTA `rank` of the cluster of what this CTA has at `address`.
__device__ __forceinline__ uint32_t mapa(uint32_t address, int rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
/// On a barrier at an address of mapa(). No fence: what the barrier guards was read by a wgmma that
/// has been waited for.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Brings a map to where tma_load_2d() looks for it first.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/// Copies the map's box at (col, row) to `to` and counts its bytes at the barrier; with `multicast`
/// in every CTA of `ctas`, a bit for each.
__device__ __forceinline__ void tma_load_2d(uint32_t to, const CUtensorMap& map, int col, int row,
                                            uint32_t barrier, int ctas, bool multicast) {
  if (!multicast) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(col), "r"(row), "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(ctas))
        : "memory");
  }
}

}  // namespace subbyte::cuda
