#pragma once
// Gated delta nets of the shape of Qwen3.5: single tokens of some sequences beside the bytes of
// their states, and prompts.

#include <cstdint>
#include <vector>

namespace subbyte::bench {

struct DeltaNetSuite {
  int64_t key_heads = 16;
  int64_t value_heads = 48;
  std::vector<int64_t> sequences = {1, 2, 8, 16, 64};  // with a token each
  std::vector<int64_t> prompts = {16, 64, 512, 4096};  // tokens of one sequence
  int replays = 9;
  bool bf16 = false;
  bool recurrent = false;
};

/// Prints a line for each step.
void run_delta_net_suite(const DeltaNetSuite& options);

}  // namespace subbyte::bench
