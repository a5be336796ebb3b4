#include "torch_operators/products_on_gpu.h"

#include "device/dequantize.h"
#include "device/packed_matrix.h"
#include "matrix/codebook.h"
#include "torch_operators/gpu.h"
#include "torch_operators/machine.h"

namespace subbyte::torch_operators {
namespace {

using device::Gpu;
using device::PackedMatrix;
using Packed = std::shared_ptr<const PackedMatrix>;

Status check_numbers(const Tensor& x, const std::optional<Tensor>& bias) {
  if (bias && bias->dtype() != x.dtype()) return refuse(*bias, "the type of x on a GPU");
  return {};
}

/// Of each GPU there is another matrix.
Recipe on_gpu(Recipe recipe, const Gpu& gpu) {
  recipe.numbers.push_back(-1 - gpu.index());
  return recipe;
}

/// The weights where they lie, and the codebook on the host.
Result<device::StridedMatrix> staged(const WeightTensors& weights, const MatrixView& view,
                                     std::shared_ptr<const Matrix>& codebook) {
  device::StridedMatrix there;
  there.view = view;
  if (weights.codebook) {
    SUBBYTE_TRY(codebook, keep_on_host(*weights.codebook, "codebook on the host"));
    const std::span<const std::byte> bytes = codebook->view.codes;
    there.view.codebook = {reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4};
    const std::string fault = codebook_fault(there.view.codebook, view.format.element);
    if (!fault.empty()) return refuse(*weights.codebook, fault);
  }
  return there;
}

Result<Packed> pack(const WeightTensors& weights, const MatrixView& view, const Gpu& gpu) {
  std::shared_ptr<const Matrix> codebook;
  SUBBYTE_TRY(const device::StridedMatrix there, staged(weights, view, codebook));
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  return PackedMatrix::pack(there, gpu::RowOrder::kNatural, gpu, machine.executor());
}

/// x, y and bias; all rows follow each other.
device::Product product_of(const PackedMatrix& weights, const Tensor& x,
                           const std::optional<Tensor>& bias, const Tensor& out) {
  device::Product product;
  product.number = x.format();
  product.m = x.count() / weights.cols();
  product.x = x.data();
  product.y = out.data();
  product.bias = bias ? bias->data() : nullptr;
  product.x_stride = weights.cols();
  product.y_stride = out.size(-1);
  return product;
}

}  // namespace

Status linear_on_gpu(const Tensor& x, const WeightTensors& weights, const MatrixView& view,
                     const Epilogue& epilogue, Tensor& out) {
  SUBBYTE_CHECK(check_numbers(x, epilogue.bias));
  if (out.count() == 0) return {};
  SUBBYTE_TRY(const Gpu gpu, gpu_of(x));
  SUBBYTE_TRY(
      const Packed packed,
      keep_shared<PackedMatrix>(on_gpu({"cuda", {view.rows, view.cols}, weights.format}, gpu),
                                weights.sources(), [&] { return pack(weights, view, gpu); }));
  device::Product product = product_of(*packed, x, epilogue.bias, out);
  product.residual = epilogue.residual ? epilogue.residual->data() : nullptr;
  product.residual_stride = out.size(-1);
  product.activation = epilogue.activation;
  product.clamp = epilogue.clamp;
  product.gate_in_turns = epilogue.in_turns;
  return packed->multiply(product, gpu);
}

Status multiply_on_gpu(const Tensor& x, int64_t first, int64_t count, const Recipe& recipe,
                       std::span<const Tensor* const> sources, FunctionRef<Result<Matrix>()> make,
                       const std::optional<Tensor>& bias, Tensor& out) {
  SUBBYTE_CHECK(check_numbers(x, bias));
  if (count == 0 || out.size(-1) == 0) return {};
  SUBBYTE_TRY(const Gpu gpu, gpu_of(x));
  SUBBYTE_TRY(const Packed packed,
              keep_shared<PackedMatrix>(on_gpu(recipe, gpu), sources, [&]() -> Result<Packed> {
                SUBBYTE_TRY(Matrix host, make());
                SUBBYTE_TRY(Machine machine, Machine::borrow());
                return PackedMatrix::upload(std::move(host), gpu::RowOrder::kNatural, gpu,
                                            machine.executor());
              }));
  device::Product product = product_of(*packed, x, bias, out);
  const int64_t width = info(x.format()).bits / 8;
  product.m = count;
  product.x = x.data() + first * product.x_stride * width;
  product.y = out.data() + first * product.y_stride * width;
  return packed->multiply(product, gpu);
}

Status dequantize_on_gpu(const WeightTensors& weights, const MatrixView& view, Tensor& out) {
  SUBBYTE_TRY(const Gpu gpu, gpu_of(out));
  std::shared_ptr<const Matrix> codebook;
  SUBBYTE_TRY(const device::StridedMatrix there, staged(weights, view, codebook));
  return device::dequantize(there, out.format(), out.data(), gpu);
}

}  // namespace subbyte::torch_operators
