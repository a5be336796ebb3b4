#pragma once
// What things cost on a GPU: the constants of the plans' cost model, a table for each measured GPU.
// docs/kernels/cuda.md says how they were found.

#include <string_view>

#include "kernels/cuda/plan.h"

namespace subbyte::cuda {

/// Times are in seconds, rates in bytes a second. Instructions are those of one warp.
struct CostModel {
  struct Gemv {
    double fixed;                     // launch, first loads, last reduction
    double over_reading;              // factor on the time that reading the weights takes
    double segment_change;            // each time that a warp changes its inputs
    double segment_change_per_token;  // more, where these inputs are copied only then
    double batch;                     // each batch of strips after the first
    double several_tokens;            // more than one token
    double several_tiles;             // share of the time that tiles of tokens add
    double input_rate;                // bytes of activations that a multiprocessor gets
  };
  struct SmallM {
    double launch;
    double cluster_end;           // reduction of the partials of a cluster through DSMEM
    double memory_latency;        // of device memory
    double pair_instructions[3];  // for a pair of tiles: small_m8, small_m16, small_m64
    double run_instructions;      // for each run of a warp
    double warp_instructions;     // before a warp's first pair and after its last
    double chunk;                 // two barriers and a latency of the L2 cache
    double issue_rate;            // share of the cycles in which a scheduler issues
    double overhead;              // factor: warps that wait, CTAs that end late
    double other_depth;           // integers are faster with kSmallMDepth slots, others with half
    // Shares of the time that more than 8 tokens add:
    double doubling_of_groups;  // for each doubling of the groups of a tile
    double two_levels;          // scales of two levels
  };
  struct LargeM {
    double k_tile[5];   // 64 inputs of an output tile: large_m16 to large_m256
    double l2_rate;     // what all CTAs read together comes from the L2 cache
    double not_hidden;  // share of the shorter of products and copies
    double launch;
    double tile_end;            // epilogue of an output tile
    double tile_end_per_token;  // more
    double exchange;            // partials of an output tile, through DSMEM
    double exchange_per_token;  // more
    double cluster_doubling;    // for each doubling of the CTAs that start together
  };
  Gemv gemv;
  SmallM small_m;
  LargeM large_m;
};

/// A GPU that was measured, known by its compute capability and number of multiprocessors: its
/// memory may differ (H100 and H200 are one chip), as Device says how fast that is.
struct MeasuredGpu {
  std::string_view name;
  int compute_capability;
  int multiprocessors;
  double clock_hz;
  CostModel cost;
};

/// The H200.
const MeasuredGpu& reference_gpu();

/// The table of this device if it was measured. Otherwise that of the H200 by the following rule,
/// which no measurement backs:
///
///   instructions, factors, shares   the same, as the kernels are
///   times of products and partials  times (clock of the H200 / clock)
///   rate of a multiprocessor        times (clock / clock of the H200)
///   rate of the L2 cache            the same, times the ratio of the multiprocessors
///   launches, latencies, barriers   the same
CostModel cost_model(const Device& device);

}  // namespace subbyte::cuda
