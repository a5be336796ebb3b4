#include "ops/activation.h"

#include <algorithm>
#include <cmath>

namespace subbyte {

void silu_gate(std::span<float> gate, std::span<const float> up) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

void clamped_swiglu(std::span<float> out, std::span<const float> gate_up, float alpha,
                    float limit) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    // std::min(NaN, x) would be NaN only in this order of arguments, and NaN must stay NaN.
    const float gate = std::min(gate_up[2 * i], limit);
    const float up = std::clamp(gate_up[2 * i + 1], -limit, limit);
    out[i] = gate / (1.0f + std::exp(-alpha * gate)) * (up + 1.0f);
  }
}

}  // namespace subbyte
