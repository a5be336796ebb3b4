#pragma once
// What follows a product in the same operator: y = activation(x W^T + bias) + residual.
//
//   activation      y                                             columns of y
//   none            s                                             rows of W
//   "relu"          max(s, 0)                                     rows of W
//   "gelu"          s / 2 (1 + tanh(sqrt(2 / pi) (s + 0.044715 s^3)))
//   "silu_gate"     g / (1 + exp(-g)) u                           half of the rows of W
//   "gelu_gate"     gelu(g) u                                     half
//   "clamped_gate"  g = min(g, limit), u = clamp(u, -limit, limit):
//                   g / (1 + exp(-alpha g)) (u + up_offset)       half
//
// g are the first half of the sums s and u the second; where they alternate, s = g, u, g, u ...

#include <optional>

#include "base/operands.h"
#include "base/status.h"
#include "device/product.h"
#include "matrix/matrix.h"
#include "torch_operators/operators.h"

namespace subbyte::torch_operators {

struct Epilogue {
  /// Reads bias, residual, activation, in_turns, alpha, limit and up_offset.
  explicit Epilogue(Call& call)
      : bias(call.optional_tensor()),
        residual(call.optional_tensor()),
        activation(static_cast<device::Activation>(call.choice())),
        in_turns(call.boolean()) {
    clamp.alpha = static_cast<float>(call.number());
    clamp.limit = static_cast<float>(call.number());
    clamp.up_offset = static_cast<float>(call.number());
  }

  bool has_gate() const { return device::is_gate(activation); }
  /// Says whether a product with its bias is all there is.
  bool is_plain() const { return activation == device::Activation::kNone && !residual; }
  int64_t outputs(int64_t rows) const { return has_gate() ? rows / 2 : rows; }

  std::optional<Tensor> bias;
  std::optional<Tensor> residual;
  device::Activation activation;  // in the order of the signature
  bool in_turns;                  // gate and up alternate
  SwiGLU clamp;
};

}  // namespace subbyte::torch_operators
