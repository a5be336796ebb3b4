#pragma once
// y = W_e x + bias_e for the tokens of each expert e of a layer, all experts in one launch: those
// of a mixture of experts with weights of any packed format. ops/route.h says on the device which
// tokens an expert has.
//
//   ExpertPlan plan = plan_experts(format, number, tiles, ...)
//   run_route(...)                     tiles of plan.tokens routes
//   run_gather_rows(...)               where reads_sorted_rows(): x in the order of the experts
//   run_experts(plan, gate_up, ...)    x by token or so, y in the order of the experts
//   run_experts(plan, down, ...)       x in the order of the experts, y in the order of the routes
//   run_add_routes(...)

#include "kernels/cuda/experts/arguments.h"
#include "kernels/cuda/experts/panel_partition.h"
#include "kernels/cuda/linear.h"

namespace subbyte::cuda {

/// How many routes there are, and how they are cut into tiles.
struct ExpertTiles {
  /// small_m8 to small_m64, panel16, large_m128, large_m256.
  KernelKind kernel = KernelKind::kSmallM8;
  int64_t count = 0;          // of tiles, at most
  bool are_all_used = false;  // whatever the routes are
};

/// Common properties of experts that decide on their kernel.
struct ExpertRules {
  int64_t experts = 1;
  int64_t top_k = 1;
  bool batch_invariant = false;  // the kernel does not depend on the number of tokens
  bool has_large_m = false;      // see has_large_m()
  bool has_panel = false;        // see has_panel()
};

/// Says whether large_m128 and large_m256 can multiply by these weights: on Hopper, where no row is
/// reordered and all begin at addresses that TMA can copy from.
bool has_large_m(const PackedFormat& format, Number number, const Device& device);

/// Says whether the panel kernel can multiply by these weights: integers on Hopper whose inputs fit
/// into shared memory, without an order of inputs, and offsets of two levels alone.
bool has_panel(const PackedFormat& format, const Device& device);

/// The tiles of `tokens` tokens.
ExpertTiles expert_tiles(int64_t tokens, const ExpertRules& rules);

/// Says whether that kernel reads x in the order of the experts (run_gather_rows()).
constexpr bool reads_sorted_rows(const ExpertTiles& tiles) {
  return is_large_m(tiles.kernel);
}

struct ExpertPlan : Plan {
  ExpertParts parts = {};     // of small_m
  PanelPartition panel = {};  // of panel16
};

/// How the CTAs divide experts of that format. In batch-invariant mode that of one tile does not
/// depend on the number of tiles. Code cuda.kernel where none fits.
Result<ExpertPlan> plan_experts(const PackedFormat& format, Number number, const ExpertTiles& tiles,
                                const Device& device, bool batch_invariant);

/// Where there is an activation, the rows of an expert are in an order of gate and up.
struct ExpertsCall {
  WeightArguments weights;  // of expert 0
  const PackedFormat* format = nullptr;
  int64_t expert_bytes = 0;         // from an expert to the next
  const float* gains = nullptr;     // [experts], WeightArguments::gain of each
  const float* up_gains = nullptr;  // of up, where it has other ones; nullptr: `gains`
  SharedExpert shared;              // without a bias then
  const void* x = nullptr;          // [..][x_stride]
  void* y = nullptr;                // [..][y_stride]
  const void* bias = nullptr;       // [experts][rows] or nullptr
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t x_count = 0;              // rows of x
  const int32_t* x_rows = nullptr;  // of each route in the order of the experts; nullptr: as many
  const int32_t* y_rows = nullptr;
  const ExpertTile* tiles = nullptr;  // [num_tiles] in device memory
  int64_t num_tiles = 0;
  /// The kernel before on the stream is run_experts() with the same tiles and without this; this
  /// reads its results.
  bool follows_experts = false;
  Activation activation = Activation::kNone;
  SwiGLU swiglu = kUsualClamp;  // of kClampedSwiGLU
  bool y_is_other = false;      // see LinearArguments
};

/// Launches. Codes: cuda.launch, cuda.kernel.
SUBBYTE_BY_NVCC Status run_experts(const ExpertPlan& plan, const ExpertsCall& call, Number number,
                                   Stream stream);

}  // namespace subbyte::cuda
