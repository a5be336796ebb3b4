#pragma once
// The gates of the feed-forward blocks.

#include <span>

#include "ops/execution.h"

namespace subbyte {

/// gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)).
void silu_gate(Execution& execution, std::span<float> gate, std::span<const float> up);

/// gpt-oss: gate and up alternate in gate_up [2 * n]; g = min(gate, limit),
/// u = clamp(up, -limit, limit), out[i] = g * sigmoid(alpha * g) * (u + 1). out may not overlap.
void clamped_swiglu(Execution& execution, std::span<float> out, std::span<const float> gate_up,
                    float alpha, float limit);

}  // namespace subbyte
