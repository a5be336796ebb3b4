#pragma once

#include "kernels/cuda/delta_net/delta_net.h"
#include "ops/delta_net.h"

namespace subbyte {

/// The sizes of a gated delta net, as kernels take them.
constexpr cuda::DeltaNetSizes delta_net_sizes(const DeltaNetShape& shape) {
  return {static_cast<int32_t>(shape.key_heads),
          static_cast<int32_t>(shape.value_heads),
          static_cast<int32_t>(shape.values_per_key()),
          static_cast<int32_t>(shape.key_size),
          static_cast<int32_t>(shape.value_size),
          static_cast<int32_t>(shape.taps),
          shape.gives_tiles};
}

}  // namespace subbyte
