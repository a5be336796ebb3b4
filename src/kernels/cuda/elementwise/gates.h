#pragma once
// What follows a product and is no epilogue of it.

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// y[rows][cols] = gate(g) * u of gate_up [rows][cols of g, then cols of u], rounded once.
struct GateCall {
  void* y = nullptr;
  const void* gate_up = nullptr;
  Activation activation = Activation::kSwiGLU;  // any but kNone
  SwiGLU swiglu = {};                           // of kClampedSwiGLU
  Element element = Element::kF16;
  int64_t rows = 0;
  int64_t cols = 0;
};
SUBBYTE_BY_NVCC void run_gate(const GateCall& call, Stream stream);

/// y[i] = gate(x[i]) * up[first + i] of each row, rounded once.
struct GateColumnsCall {
  void* y = nullptr;                            // [rows][cols]
  const void* x = nullptr;                      // the same
  const void* up = nullptr;                     // [rows][up_stride]
  Activation activation = Activation::kSwiGLU;  // or kGeGLU
  Element element = Element::kF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t up_stride = 0;
  int64_t first = 0;
};
void run_gate_columns(const GateColumnsCall& call, Stream stream);

/// `size` numbers become max(x, 0)^2.
SUBBYTE_BY_NVCC void run_squared_relu(void* x, Element element, int64_t size, Stream stream);

/// x = sigmoid(gate) * x + base for each number, or x + base, rounded once.
struct SigmoidGateCall {
  void* x = nullptr;                // [rows][cols]
  const void* gate = nullptr;       // [rows][cols], or where `is_of_row` [rows], or nullptr
  const void* base = nullptr;       // as x; nullptr: zero
  Element element = Element::kF16;  // of x and base
  Element gate_element = Element::kF16;
  bool is_of_row = false;
  int64_t rows = 0;
  int64_t cols = 0;
};
void run_sigmoid_gate(const SigmoidGateCall& call, Stream stream);

/// x = cap * tanh(factor * x / cap), or factor * x where `cap` is 0.
void run_soft_cap(float* x, int64_t size, float factor, float cap, Stream stream);

/// `size` numbers as floats.
void run_to_floats(float* y, const void* x, Element element, int64_t size, Stream stream);

}  // namespace subbyte::cuda
