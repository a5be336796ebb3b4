#pragma once
// A gated delta net (ops/delta_net.h) over the tokens of some sequences. Many tokens go in chunks
// from the first of a step on, except in batch-invariant mode: there what is computed of a token
// does not depend on the step that it is in, and a prompt may be cut anywhere with the same bits.

#include <cstdint>
#include <span>

#include "cpu_backend/kv_memory.h"
#include "kernels/cpu/execution.h"
#include "ops/delta_net.h"

namespace subbyte {

struct DeltaNetNumbers {
  std::span<const float> filters;         // [taps][channels]
  std::span<const float> rates, dt_bias;  // [value_heads]
  std::span<const float> norm;            // [value_size]
};

/// y [rows][value_width], qkvz [rows][channels + value_width], ba [rows][2 * value_heads]; the rows
/// are the tokens of the parts, one part after the other.
void gated_delta_net(Execution& execution, std::span<float> y, std::span<const float> qkvz,
                     std::span<const float> ba, std::span<const StatePart> parts,
                     const DeltaNetShape& shape, const DeltaNetNumbers& numbers);

}  // namespace subbyte
