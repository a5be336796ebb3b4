#pragma once
// The place of a CTA in a grid of clusters, by the names of the PTX manual. Of a launch without
// clusters each CTA is one.

#include <cstdint>

namespace subbyte::cuda {

__device__ __forceinline__ int cluster_ctarank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ int clusterid() {
  int index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ int nclusterid() {
  int count;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}

}  // namespace subbyte::cuda
