#include "cpu_backend/gates.h"

#include <algorithm>
#include <cmath>

namespace subbyte {
namespace {

constexpr int64_t kGateGrain = 1 << 12;  // numbers that are worth a thread
constexpr int64_t kChunk = 256;          // of gate and up, which are put in turns or apart

}  // namespace

void silu_gate(const cpu::Kernels& kernels, std::span<float> gate, std::span<const float> up,
               int64_t inner, const DonePart& part) {
  apply_gate(kernels, Gate::kSilu, gate, up, inner, part);
}

void apply_gate(const cpu::Kernels& kernels, Gate kind, std::span<float> gate,
                std::span<const float> up, int64_t inner, const DonePart& part) {
  const auto apply = kind == Gate::kGelu ? kernels.vectors->gelu_gate : kernels.vectors->silu_gate;
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    const int64_t at = m * inner + part.begin;
    apply(gate.data() + at, up.data() + at, part.end - part.begin);
  }
}

void gate_columns(Execution& execution, Gate gate, std::span<float> y, std::span<const float> x,
                  int64_t cols, const GatedColumns& up) {
  const auto& vectors = *execution.kernels().vectors;
  const auto apply = gate == Gate::kGelu ? vectors.gelu_gate : vectors.silu_gate;
  const int64_t grain = std::max<int64_t>(1, kGateGrain / cols);
  execution.pool().parallel_for(std::ssize(x) / cols, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = y.data() + row * cols;
      if (to != x.data() + row * cols) std::copy_n(x.data() + row * cols, cols, to);
      apply(to, up.rows.data() + row * up.stride + up.first, cols);
    }
  });
}

void sigmoid_gate(Execution& execution, std::span<float> y, std::span<const float> x,
                  std::span<const float> gate, std::span<const float> base, int64_t cols) {
  const auto* const kernels = execution.kernels().vectors;
  const auto rows = std::ssize(x) / cols;
  const bool is_wide = cols != 1 && gate.size() == x.size();
  const int64_t grain = std::max<int64_t>(1, kGateGrain / cols);
  execution.pool().parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * cols;
      if (gate.empty()) {
        if (y.data() != x.data()) std::copy_n(x.data() + at, cols, y.data() + at);
      } else if (is_wide) {
        kernels->sigmoid_gate(y.data() + at, x.data() + at, gate.data() + at, cols);
      } else {
        const float factor = 1 / (1 + std::exp(-gate[row]));
        for (int64_t i = at; i < at + cols; ++i) y[i] = factor * x[i];
      }
      if (base.empty()) continue;
      for (int64_t i = at; i < at + cols; ++i) y[i] += base[i];
    }
  });
}

void gate_in_turns(const cpu::Kernels& kernels, Gate kind, const SwiGLU& swiglu,
                   std::span<float> out, std::span<const float> gate_up, int64_t inner,
                   const DonePart& part) {
  float up[kChunk];
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    const int64_t end = part.end / 2;
    for (int64_t first = part.begin / 2; first < end; first += kChunk) {
      float* const g = out.data() + m * inner + first;
      const float* const in_turns = gate_up.data() + 2 * (m * inner + first);
      const int64_t count = std::min(kChunk, end - first);
      if (kind == Gate::kSilu) {
        kernels.vectors->clamped_swiglu(g, in_turns, count, swiglu.alpha, swiglu.limit,
                                        swiglu.up_offset);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        g[i] = in_turns[2 * i];
        up[i] = in_turns[2 * i + 1];
      }
      kernels.vectors->gelu_gate(g, up, count);
    }
  }
}

void gate_apart(const cpu::Kernels& kernels, Gate kind, const SwiGLU& swiglu, std::span<float> gate,
                std::span<const float> up, int64_t inner, const DonePart& part) {
  if (kind == Gate::kGelu || swiglu == SwiGLU()) {
    return apply_gate(kernels, kind, gate, up, inner, part);
  }
  float in_turns[2 * kChunk];
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    for (int64_t first = part.begin; first < part.end; first += kChunk) {
      float* g = gate.data() + m * inner + first;
      const float* u = up.data() + m * inner + first;
      const int64_t count = std::min(kChunk, part.end - first);
      for (int64_t i = 0; i < count; ++i) {
        in_turns[2 * i] = g[i];
        in_turns[2 * i + 1] = u[i];
      }
      kernels.vectors->clamped_swiglu(g, in_turns, count, swiglu.alpha, swiglu.limit,
                                      swiglu.up_offset);
    }
  }
}

void squared_relu(std::span<float> x, int64_t stride, const DonePart& part) {
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    for (float& value : x.subspan(m * stride + part.begin, part.end - part.begin)) {
      value = value < 0 ? 0 : value * value;  // NaN stays
    }
  }
}

}  // namespace subbyte
