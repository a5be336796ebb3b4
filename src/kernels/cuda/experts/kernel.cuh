#pragma once
// Products of the experts of a layer for few tokens each, or without wgmma: small_m once for each
// tile of tokens of an expert. (Many tokens: large_m.cuh.)
//
//   CTA i   tile i / parts: at most 8, 16 or 64 routes of one expert
//           part i % parts of the strips of that expert, without split-K
//
// The tiles, and so their parts, are known on the device alone (ops/route.h, experts/parts.h). The
// grid has as many CTAs as there can be work for, and those without any leave at once. Rows of x
// and y are found through the routes: nothing is gathered before or scattered after.
//
// The second product of a layer (linear.is_dependent) waits for its inputs only when its first
// weights are on their way. The tiles are there before it begins: the first product lets it begin
// after its own wait for them.

#include "kernels/cuda/experts/of_expert.cuh"
#include "kernels/cuda/small_m/kernel.cuh"

namespace subbyte::cuda {

/// How many tiles have routes, by all threads.
__device__ inline int used_tiles(const ExpertArguments& a) {
  const int threads = static_cast<int>(blockDim.x);
  int used = 0;
  for (int first = 0; first == used && first < a.num_tiles; first += threads) {
    const int tile = first + static_cast<int>(threadIdx.x);
    used += __syncthreads_count(tile < a.num_tiles && __ldcg(&a.tiles[tile].count) > 0);
  }
  return used;
}

/// The rows of a tile. Its gains, which memory has to look for and nothing needs before the sums,
/// are loaded while the first weights are on their way.
struct RowsOfTile : RoutedRows {
  const ExpertArguments& arguments;
  LinearArguments& linear;
  int expert;

  __device__ void finish_arguments() const {
    if (threadIdx.x == 0) set_gains(linear, arguments, expert);
  }
};

template <class Number, class Decoder, int kGroups, int kTokens8>
__global__ void __launch_bounds__(small_m_warps(kTokens8 * 8) * kLanes, 1)
    experts_kernel(const __grid_constant__ ExpertArguments a,
                   const __grid_constant__ SmallMPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ LinearArguments linear;
  if (!a.linear.is_dependent) griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  int parts = a.parts.least;
  if (!a.parts.are_fixed()) {
    const int used = used_tiles(a);
    if (used == 0) return;
    parts = a.parts.of_tile(used);
  }
  const int index = static_cast<int>(blockIdx.x) / parts;
  const int part = static_cast<int>(blockIdx.x) % parts;
  if (index >= a.num_tiles) return;
  const ExpertTile tile = {__ldcg(&a.tiles[index].expert), __ldcg(&a.tiles[index].first),
                           __ldcg(&a.tiles[index].count)};
  if (tile.count == 0) return;
  if (threadIdx.x == 0) linear = of_expert(a, tile);
  __syncthreads();
  const Parts strips = parts_of(a.parts.strips, parts);
  const SmallMWork work = {strips.begin(part), strips.size(part), 0, p.pairs.size(0), tile.first};
  SmallMCta<Number, Decoder, kGroups, kTokens8, RowsOfTile>(
      linear, p, shared, work, {{a.x_rows, a.y_rows}, a, linear, tile.expert})
      .run();
}

}  // namespace subbyte::cuda
