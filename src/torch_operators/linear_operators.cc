// linear and dequantize for every format of weights.

#include <array>

#include "kernels/cpu/blocks.h"
#include "torch_operators/epilogue.h"
#include "torch_operators/product.h"
#include "torch_operators/products_on_gpu.h"
#include "torch_operators/weights.h"

namespace subbyte::torch_operators {
namespace {

#define SUBBYTE_WEIGHTS                                                                  \
  "Tensor codes, Tensor? scales, Tensor? zeros, str format, Tensor? tensor_scale=None, " \
  "Tensor? codebook=None, Tensor? input_order=None"
#define SUBBYTE_EPILOGUE                                                                  \
  "Tensor? bias=None, Tensor? residual=None, str? activation=None, bool in_turns=False, " \
  "float alpha=1.702, float limit=7.0, float up_offset=1.0"

/// Checks that everything is where `like` is; a tensor_scale may be anywhere.
Status check_same_device(const Tensor& like, const WeightTensors& weights,
                         const Epilogue* epilogue = nullptr) {
  for (const Tensor* tensor : weights.sources()) {
    const bool free = weights.tensor_scale && tensor == &*weights.tensor_scale;
    if (tensor == nullptr || free) continue;
    SUBBYTE_CHECK(check_device(*tensor, like));
  }
  if (epilogue == nullptr) return {};
  if (epilogue->bias) SUBBYTE_CHECK(check_device(*epilogue->bias, like));
  return epilogue->residual ? check_device(*epilogue->residual, like) : Status();
}

struct Linear {
  explicit Linear(Arguments& arguments)
      : x(arguments.packed_tensor("x")), weights(arguments), epilogue(arguments) {}

  std::vector<int64_t> out_sizes(const MatrixView& view) const {
    return product_sizes(x, epilogue.outputs(view.rows));
  }

  Tensor x;
  WeightTensors weights;
  Epilogue epilogue;
};

Status compute(const Linear& in, const MatrixView& view, Tensor& out) {
  SUBBYTE_CHECK(check_same_device(in.x, in.weights, &in.epilogue));
  if (out.count() == 0) return {};
  if (!in.x.on_cpu()) return linear_on_gpu(in.x, in.weights, view, in.epilogue, out);
  SUBBYTE_TRY(Machine machine, Machine::borrow(in.x.count() * view.rows));
  SUBBYTE_TRY(const device::HostWeights ready, make_ready(machine, view, in.weights.sources()));
  const Epilogue* const rest = in.epilogue.is_plain() ? nullptr : &in.epilogue;
  return multiply(machine, in.x, ready, in.epilogue.bias, out, rest);
}

Result<MatrixView> checked(const Linear& in) {
  if (in.x.dim() < 1) return refuse(in.x, "a dimension of inputs");
  SUBBYTE_TRY(const MatrixView view, matrix_of(in.weights));
  if (in.x.size(-1) != view.cols) {
    return refuse(in.x, "a last dimension of " + std::to_string(view.cols));
  }
  SUBBYTE_CHECK(in.epilogue.check(in.x, view));
  return view;
}

Status linear_op(Arguments& arguments, Results& results) {
  const Linear in(arguments);
  SUBBYTE_TRY(const MatrixView view, checked(in));
  Tensor out = Tensor::empty(in.out_sizes(view), in.x.dtype(), in.x);
  SUBBYTE_CHECK(compute(in, view, out));
  results.add(std::move(out));
  return {};
}

Status linear_out(Arguments& arguments, Results&) {
  const Linear in(arguments);
  Tensor out = arguments.tensor("out");
  SUBBYTE_TRY(const MatrixView view, checked(in));
  SUBBYTE_CHECK(check_out(out, in.out_sizes(view), in.x.dtype()));
  return compute(in, view, out);
}

struct Dequantize {
  explicit Dequantize(Arguments& arguments)
      : weights(arguments), cols(arguments.optional_integer()), dtype(arguments.dtype()) {}

  WeightTensors weights;
  std::optional<int64_t> cols;
  int32_t dtype;
};

Result<MatrixView> checked(const Dequantize& in) {
  const Numbers& n = numbers();
  if (in.dtype != n.f32 && in.dtype != n.f16 && in.dtype != n.bf16) {
    return refuse("dtype", "f32, f16 or bf16", name_of(in.dtype));
  }
  return matrix_of(in.weights, in.cols);
}

Status compute(const Dequantize& in, const MatrixView& view, Tensor& out) {
  SUBBYTE_CHECK(check_same_device(out, in.weights));
  if (view.rows == 0) return {};
  if (!out.on_cpu()) return dequantize_on_gpu(in.weights, view, out);
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  return cpu::dequantize(view, out.format(), out.data(), machine.kernels(), machine.executor());
}

Status dequantize_op(Arguments& arguments, Results& results) {
  const Dequantize in(arguments);
  SUBBYTE_TRY(const MatrixView view, checked(in));
  Tensor out = Tensor::empty(std::array{view.rows, view.cols}, in.dtype, in.weights.codes);
  SUBBYTE_CHECK(compute(in, view, out));
  results.add(std::move(out));
  return {};
}

Status dequantize_out(Arguments& arguments, Results&) {
  const Dequantize in(arguments);
  Tensor out = arguments.tensor("out");
  SUBBYTE_TRY(const MatrixView view, checked(in));
  SUBBYTE_CHECK(check_out(out, std::array{view.rows, view.cols}, in.dtype));
  return compute(in, view, out);
}

constexpr Operator kOperators[] = {
    {"linear(Tensor x, " SUBBYTE_WEIGHTS ", " SUBBYTE_EPILOGUE ") -> Tensor", kernel<linear_op>,
     kernel<linear_op>},
    {"linear_out(Tensor x, " SUBBYTE_WEIGHTS ", " SUBBYTE_EPILOGUE ", *, Tensor(a!) out) -> ()",
     kernel<linear_out>, kernel<linear_out>},
    {"dequantize(" SUBBYTE_WEIGHTS ", *, int? cols=None, ScalarType dtype) -> Tensor",
     kernel<dequantize_op>, kernel<dequantize_op>},
    {"dequantize_out(" SUBBYTE_WEIGHTS
     ", *, int? cols=None, ScalarType dtype, Tensor(a!) out) -> ()",
     kernel<dequantize_out>, kernel<dequantize_out>},
};

}  // namespace

std::span<const Operator> linear_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
