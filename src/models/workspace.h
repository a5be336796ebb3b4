#pragma once
// The activations of one forward call, in buffers of the execution that all layers and calls use
// again; and what links one block of a layer to the next.

#include <cstdint>
#include <span>

#include "models/model_config.h"
#include "ops/execution.h"
#include "ops/norm.h"

namespace subbyte {

class Workspace {
 public:
  /// Buffers for `tokens` tokens at the positions from `first_position` on, whose angles are
  /// `rope`'s. `inner`: floats of a token in each of gate and up; 0 where they are not used.
  Workspace(Execution& execution, const ModelConfig& config, const Rope& rope, int64_t tokens,
            int64_t first_position, int64_t inner);

  int64_t tokens = 0;
  std::span<float> h;         // [tokens][hidden]: the normalised input of a block
  std::span<float> delta;     // [tokens][hidden]: what a block adds to x
  std::span<float> q, k, v;   // [tokens][heads * head_dim | kv_heads * head_dim]
  std::span<float> mixed;     // [tokens][heads * head_dim]: values that attention has mixed
  std::span<float> gate, up;  // [tokens][inner]
  std::span<float> cos, sin;  // [tokens][head_dim / 2]

  /// Starts a block: x gets the delta of the block before it, and h the normalised x.
  void start_block(Execution& execution, std::span<float> x, const Norm& norm);
  /// Behind the last block: x gets its delta.
  void finish(Execution& execution, std::span<float> x) const;

 private:
  bool has_delta_ = false;
};

}  // namespace subbyte
