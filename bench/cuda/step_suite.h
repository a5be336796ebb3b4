#pragma once
// Where the time of a step that is one kernel goes: layers of a Qwen3 with random AWQ weights.

#include <cstdint>

#include "base/status.h"

namespace subbyte::bench {

struct StepSuite {
  int layers = 24;
  int64_t hidden = 4096;
  int64_t intermediate = 12288;
  int64_t heads = 32;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int tokens = 1;
  int keys = 200;
  int gpus = 1;  // ranks, each with a part of the heads and of the intermediate numbers

  /// What one of the ranks has.
  StepSuite of_rank() const {
    StepSuite own = *this;
    own.heads /= gpus;
    own.kv_heads /= gpus;
    own.intermediate /= gpus;
    return own;
  }
};

/// Prints the time of a layer, of ranks on the slowest, and what each operation spends it on, on
/// the first. Codes: those of run_step() and PeerMemory::connect(); bench.step where the kernel
/// does not serve these sizes.
Status run_step_suite(const StepSuite& suite);

}  // namespace subbyte::bench
