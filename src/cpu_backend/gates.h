#pragma once
// The gates of the feed-forward blocks, on the calling thread and for a part of the columns and
// rows: a thread that has just computed these goes on with them while they are in its cache
// (linear_group's `after`). Element by element, so that the parts do not change a bit.

#include <cstdint>
#include <span>

#include "kernels/cpu/linear.h"
#include "ops/weights.h"

namespace subbyte {

/// A part of gate and up [m][inner]: gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)).
void silu_gate(const cpu::Kernels& kernels, std::span<float> gate, std::span<const float> up,
               int64_t inner, const DonePart& part);

/// The same by any gate.
void apply_gate(const cpu::Kernels& kernels, Gate kind, std::span<float> gate,
                std::span<const float> up, int64_t inner, const DonePart& part);

/// Columns of rows of `stride` numbers, from `first` on.
struct GatedColumns {
  std::span<const float> rows;
  int64_t stride = 0;
  int64_t first = 0;
};

/// y [m][cols] = gate(x) * up; y may be x.
void gate_columns(Execution& execution, Gate gate, std::span<float> y, std::span<const float> x,
                  int64_t cols, const GatedColumns& up);

/// y [m][cols] = sigmoid(gate) * x + base. The gate has as many columns as x, or one for all of
/// them, or is empty: y = x + base; `base` may be empty, and y may be x.
void sigmoid_gate(Execution& execution, std::span<float> y, std::span<const float> x,
                  std::span<const float> gate, std::span<const float> base, int64_t cols);

/// Computes the gate of an expert, whose gate and up alternate in gate_up [m][2 * inner], of which
/// `part` is. Writes its columns of out [m][inner], which may not overlap gate_up. `swiglu`: of
/// Gate::kSilu.
void gate_in_turns(const cpu::Kernels& kernels, Gate kind, const SwiGLU& swiglu,
                   std::span<float> out, std::span<const float> gate_up, int64_t inner,
                   const DonePart& part);

/// The same of gate and up [m][inner], of which `part` is; its columns of gate become the result.
void gate_apart(const cpu::Kernels& kernels, Gate kind, const SwiGLU& swiglu, std::span<float> gate,
                std::span<const float> up, int64_t inner, const DonePart& part);

/// A part of x, whose rows are `stride` numbers apart, becomes max(x, 0)^2.
void squared_relu(std::span<float> x, int64_t stride, const DonePart& part);

}  // namespace subbyte
