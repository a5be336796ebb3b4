// linear and dequantize for every format of weights.

#include "kernels/cpu/blocks.h"
#include "torch_operators/epilogue.h"
#include "torch_operators/product.h"
#include "torch_operators/products_on_gpu.h"
#include "torch_operators/weights.h"

namespace subbyte::torch_operators {
namespace {

// K is what `format` says, which depends on the bytes of codes.
#define SUBBYTE_WEIGHTS                                                                       \
  "Tensor codes{any [N=, _]}, Tensor? scales{any}, Tensor? zeros{any}, str format{K=codes}, " \
  "Tensor? tensor_scale{anywhere f32|f64 (1: number)}=None, Tensor? codebook{f32}=None, "     \
  "Tensor? input_order{i32 [K]}=None"
#define SUBBYTE_Y "x [..., N // (1 + (activation > 2))]"  // the last three are gates
#define SUBBYTE_LINEAR                                                                      \
  "Tensor x{floats [..., K]}, " SUBBYTE_WEIGHTS                                             \
  ", Tensor? bias{floats [N]}=None, "                                                       \
  "Tensor? residual{" SUBBYTE_Y                                                             \
  "}=None, "                                                                                \
  "str? activation{relu|gelu|silu_gate|gelu_gate|clamped_gate}=None, bool in_turns=False, " \
  "float alpha=1.702, float limit=7.0, float up_offset=1.0"

Status linear(Call& call) {
  const Tensor x = call.tensor();
  const WeightTensors weights(call);
  const Epilogue epilogue(call);
  SUBBYTE_TRY(const MatrixView view, matrix_of(weights, call));
  if (epilogue.has_gate() && view.rows % 2 != 0) {
    return refuse("codes", "as many outputs of gate as of up",
                  std::to_string(view.rows) + " outputs");
  }
  SUBBYTE_TRY(Tensor out, call.result());
  if (out.count() == 0) return call.add(std::move(out));
  if (!x.on_cpu()) {
    SUBBYTE_CHECK(linear_on_gpu(x, weights, view, epilogue, out));
    return call.add(std::move(out));
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow(x.count() * view.rows));
  SUBBYTE_TRY(const device::HostWeights ready, make_ready(machine, view, weights.sources()));
  const Epilogue* const rest = epilogue.is_plain() ? nullptr : &epilogue;
  SUBBYTE_CHECK(multiply(machine, x, ready, epilogue.bias, out, rest));
  return call.add(std::move(out));
}

Status dequantize(Call& call) {
  const WeightTensors weights(call);
  const std::optional<int64_t> cols = call.optional_integer();
  call.dtype();
  SUBBYTE_TRY(const MatrixView view, matrix_of(weights, call, cols));
  SUBBYTE_TRY(Tensor out, call.result());
  if (view.rows > 0 && !out.on_cpu()) {
    SUBBYTE_CHECK(dequantize_on_gpu(weights, view, out));
  } else if (view.rows > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    SUBBYTE_CHECK(
        cpu::dequantize(view, out.format(), out.data(), machine.kernels(), machine.executor()));
  }
  return call.add(std::move(out));
}

#define SUBBYTE_DEQUANTIZE "(" SUBBYTE_WEIGHTS ", *, int? cols=None, ScalarType dtype{floats}"

constexpr Operator kOperators[] = {
    {"linear(" SUBBYTE_LINEAR ") -> Tensor{" SUBBYTE_Y "}", linear},
    {"linear_out(" SUBBYTE_LINEAR ", *, Tensor(a!) out{" SUBBYTE_Y "}) -> ()", linear},
    {"dequantize" SUBBYTE_DEQUANTIZE ") -> Tensor{dtype [N, K]}", dequantize},
    {"dequantize_out" SUBBYTE_DEQUANTIZE ", Tensor(a!) out{dtype [N, K]}) -> ()", dequantize},
};

}  // namespace

std::span<const Operator> linear_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
