#include "cpu_backend/gates.h"

namespace subbyte {

void silu_gate(const cpu::Kernels& kernels, std::span<float> gate, std::span<const float> up,
               int64_t inner, const DonePart& part) {
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    const int64_t at = m * inner + part.begin;
    kernels.vectors->silu_gate(gate.data() + at, up.data() + at, part.end - part.begin);
  }
}

void clamped_swiglu(const cpu::Kernels& kernels, std::span<float> out,
                    std::span<const float> gate_up, int64_t inner, const DonePart& part,
                    const SwiGLU& swiglu) {
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    const int64_t at = m * inner + part.begin / 2;
    kernels.vectors->clamped_swiglu(out.data() + at, gate_up.data() + 2 * at,
                                    (part.end - part.begin) / 2, swiglu.alpha, swiglu.limit,
                                    swiglu.up_offset);
  }
}

}  // namespace subbyte
