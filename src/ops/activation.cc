#include "ops/activation.h"

namespace subbyte {
namespace {

constexpr int64_t kGrain = 1 << 12;  // outputs, about two microseconds

}  // namespace

void silu_gate(Execution& execution, std::span<float> gate, std::span<const float> up) {
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  execution.pool().parallel_for(
      static_cast<int64_t>(gate.size()), kGrain, [&](int64_t begin, int64_t end, int) {
        kernels.silu_gate(gate.data() + begin, up.data() + begin, end - begin);
      });
}

void clamped_swiglu(Execution& execution, std::span<float> out, std::span<const float> gate_up,
                    float alpha, float limit) {
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  execution.pool().parallel_for(
      static_cast<int64_t>(out.size()), kGrain, [&](int64_t begin, int64_t end, int) {
        kernels.clamped_swiglu(out.data() + begin, gate_up.data() + 2 * begin, end - begin, alpha,
                               limit);
      });
}

}  // namespace subbyte
