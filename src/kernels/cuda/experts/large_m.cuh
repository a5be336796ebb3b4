#pragma once
// Products of the experts of a layer for many tokens, Hopper: large_m, whose items are those of all
// experts.
//
//   item i   tile i / clusters_n of the routes (at most kTokens of one expert), outputs of cluster
//            i % clusters_n
//
// Rows of x lie in the order of the experts, as TMA copies rows that are neighbours; those after
// the last one of an expert are of the next, and their results are not stored. Clusters walk
// through the items until they come to an empty tile, as all after it are empty, too.

#include "kernels/cuda/experts/of_expert.cuh"
#include "kernels/cuda/large_m/kernel.cuh"

namespace subbyte::cuda {

class ExpertItems {
 public:
  /// `results`: shared memory for each of the two consumer warpgroups.
  __device__ ExpertItems(const ExpertArguments& a, const LargeMPartition& p,
                         LinearArguments* results)
      : cta(large_m_cta(p)), a_(a), p_(p), results_(results) {}

  __device__ bool has(int i) const { return i < p_.tiles_m * clusters_n() && tile(i).count > 0; }
  __device__ LargeMItem item(int i) const {
    return {i % clusters_n() * p_.multicast + cta.row, tile(i).first, 0, a_.linear.weights.tiles,
            false};
  }
  __device__ int64_t weight_offset(int i) const { return tile(i).expert * a_.expert_bytes; }

  /// Results of the item before have been stored when the first thread of the warpgroup replaces
  /// the arguments, and nobody reads them until it has.
  __device__ const LinearArguments& arguments(int i, int warpgroup) const {
    sync_warpgroup();
    if (threadIdx.x % 128 == 0) {
      results_[warpgroup] = of_expert(a_, tile(i));
      set_gains(results_[warpgroup], a_, tile(i).expert);
    }
    sync_warpgroup();
    return results_[warpgroup];
  }
  __device__ RoutedRows rows() const { return {nullptr, a_.y_rows}; }

  const LargeMCta cta;

 private:
  __device__ int clusters_n() const { return p_.tiles_n / p_.multicast; }
  __device__ const ExpertTile& tile(int i) const { return a_.tiles[i / clusters_n()]; }

  const ExpertArguments& a_;
  const LargeMPartition& p_;
  LinearArguments* const results_;
};

template <class Number, class Decoder, int kGroups, int kTokens>
__global__ void __launch_bounds__(kLargeMThreads, 1)
    experts_large_m_kernel(const __grid_constant__ ExpertArguments a,
                           const __grid_constant__ LargeMPartition p,
                           const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t shared[];
  __shared__ LinearArguments results[2];
  griddepcontrol_wait();  // the tiles come from the kernel before
  run_large_m<ProductsIn16Bits<Number, Decoder, kGroups, kTokens>>(
      a.linear, p, x, ExpertItems(a, p, results), shared);
#endif
}

}  // namespace subbyte::cuda
