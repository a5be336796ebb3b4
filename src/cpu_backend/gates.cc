#include "cpu_backend/gates.h"

namespace subbyte {

void silu_gate(const cpu::Kernels& kernels, std::span<float> gate, std::span<const float> up,
               int64_t m, int64_t begin, int64_t end) {
  const int64_t inner = std::ssize(gate) / m;
  for (int64_t i = begin; i < m * inner; i += inner) {
    kernels.vectors->silu_gate(gate.data() + i, up.data() + i, end - begin);
  }
}

void clamped_swiglu(const cpu::Kernels& kernels, std::span<float> out,
                    std::span<const float> gate_up, int64_t m, int64_t begin, int64_t end,
                    float alpha, float limit) {
  const int64_t inner = std::ssize(out) / m;
  for (int64_t i = begin; i < m * inner; i += inner) {
    kernels.vectors->clamped_swiglu(out.data() + i, gate_up.data() + 2 * i, end - begin, alpha,
                                    limit);
  }
}

}  // namespace subbyte
