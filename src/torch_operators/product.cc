#include "torch_operators/product.h"

#include "device/host_product.h"
#include "torch_operators/epilogue.h"
#include "torch_operators/products_on_gpu.h"

namespace subbyte::torch_operators {
Status multiply(Machine& machine, const Tensor& x, const device::HostWeights& weights,
                const std::optional<Tensor>& bias, Tensor& out, const Epilogue* epilogue) {
  const int64_t rows = weights.main.rows;
  if (rows == 0) return {};
  device::Product product;
  product.number = x.format();
  product.m = x.count() / weights.main.cols;
  product.x = x.data();
  product.y = out.data();
  product.x_stride = weights.main.cols;
  product.y_stride = rows;
  if (bias) {
    product.bias = bias->data();
    product.bias_number = bias->format();
  }
  if (epilogue != nullptr) {
    product.y_stride = product.residual_stride = epilogue->outputs(rows);
    product.residual = epilogue->residual ? epilogue->residual->data() : nullptr;
    product.activation = epilogue->activation;
    product.clamp = epilogue->clamp;
    product.gate_in_turns = epilogue->in_turns;
  }
  return device::multiply(machine.execution(), weights, product);
}

Status multiply_kept(const Tensor& x, const Recipe& recipe, std::span<const Tensor* const> sources,
                     FunctionRef<Result<Matrix>()> make, const std::optional<Tensor>& bias,
                     Tensor& out) {
  if (out.count() == 0) return {};
  if (!x.on_cpu()) {
    return multiply_on_gpu(x, 0, x.count() / x.size(-1), recipe, sources, make, bias, out);
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow(x.count() * out.size(-1)));
  SUBBYTE_TRY(const auto matrix, keep(recipe, sources, make));
  SUBBYTE_TRY(const device::HostWeights ready, make_ready(machine, matrix->view, sources, recipe));
  return multiply(machine, x, ready, bias, out);
}

}  // namespace subbyte::torch_operators
