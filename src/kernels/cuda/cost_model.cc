#include "kernels/cuda/cost_model.h"

namespace subbyte::cuda {
namespace {

constexpr MeasuredGpu kH200 = {
    .name = "H200",
    .compute_capability = 90,
    .multiprocessors = 132,
    .clock_hz = 1.755e9,
    .cost =
        {
            .gemv = {.fixed = 3.1e-6,
                     .over_reading = 1.14,
                     .segment_change = 0.8e-6,
                     .segment_change_per_token = 0.3e-6,
                     .batch = 0.6e-6,
                     .several_tokens = 0.4e-6,
                     .several_tiles = 0.4,
                     .input_rate = 40e9},
            .small_m = {.launch = 1.5e-6,
                        .cluster_end = 1.6e-6,
                        .memory_latency = 1.0e-6,
                        .pair_instructions = {110, 145, 938.4},
                        .run_instructions = 100,
                        .warp_instructions = 500,
                        .chunk = 1.0e-6,
                        .issue_rate = 0.62,
                        .overhead = 1.33,
                        .other_depth = 0.4e-6,
                        .doubling_of_groups = 0.08,
                        .two_levels = 0.1},
            .large_m = {.k_tile = {0.178e-6, 0.2023e-6, 0.256e-6, 0.3337e-6, 0.6223e-6},
                        .l2_rate = 10.68e12,
                        .not_hidden = 0.08426,
                        .launch = 0.9641e-6,
                        .tile_end = 1.911e-6,
                        .tile_end_per_token = 0.6529e-9,
                        .exchange = 0.6866e-6,
                        .exchange_per_token = 8.722e-9,
                        .cluster_doubling = 0.4709e-6},
        },
};

/// One for each GPU that was measured.
constexpr const MeasuredGpu* kMeasured[] = {&kH200};

CostModel scaled(const MeasuredGpu& from, const Device& to) {
  const double faster = to.clock_hz / from.clock_hz;
  CostModel cost = from.cost;
  cost.gemv.input_rate *= faster;
  for (double& seconds : cost.large_m.k_tile) seconds /= faster;
  cost.large_m.tile_end_per_token /= faster;
  cost.large_m.exchange_per_token /= faster;
  cost.large_m.l2_rate *= faster * to.multiprocessors / from.multiprocessors;
  return cost;
}

}  // namespace

const MeasuredGpu& reference_gpu() {
  return kH200;
}

CostModel cost_model(const Device& device) {
  for (const MeasuredGpu* gpu : kMeasured) {
    if (gpu->compute_capability == device.compute_capability &&
        gpu->multiprocessors == device.multiprocessors) {
      return gpu->cost;
    }
  }
  return scaled(reference_gpu(), device);
}

}  // namespace subbyte::cuda
