#pragma once
// The decay of a state, and how much of what is new it takes.

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/delta_net/delta_net.h"

namespace subbyte::cuda {

struct DeltaGates {
  float decay;
  float beta;
};

/// The columns of b and a of a value head in a row of gates.
__device__ __forceinline__ int2 gate_columns(const DeltaNetCall& a, int value_head) {
  const int head = value_head / a.sizes.values_per_key;
  const int member = value_head % a.sizes.values_per_key;
  return {member + a.b.first + head * a.b.stride, member + a.a.first + head * a.a.stride};
}

/// The logarithm of the decay, which is negative, and beta.
__device__ __forceinline__ float2 log_gates(float of_b, float of_a, float rate, float dt_bias) {
  const float x = __fadd_rn(of_a, dt_bias);
  const float softplus = x > 20 ? x : log1pf(expf(x));
  return {__fmul_rn(rate, softplus), 1.0f / __fadd_rn(1.0f, expf(-of_b))};
}

__device__ __forceinline__ float2 log_gates_of(const DeltaNetCall& a, int64_t row, int value_head) {
  const int2 columns = gate_columns(a, value_head);
  const int64_t at = row * 2 * a.sizes.value_heads;
  return log_gates(load_element(a.element, a.ba, at + columns.x),
                   load_element(a.element, a.ba, at + columns.y), a.rates[value_head],
                   a.dt_bias[value_head]);
}

__device__ __forceinline__ DeltaGates gates_of(const DeltaNetCall& a, int64_t row, int value_head) {
  const float2 gates = log_gates_of(a, row, value_head);
  return {expf(gates.x), gates.y};
}

}  // namespace subbyte::cuda
