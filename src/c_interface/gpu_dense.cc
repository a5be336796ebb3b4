#include "c_interface/gpu_dense.h"

#include "c_interface/errors.h"
#include "c_interface/products.h"
#include "kernels/cuda/ops/activations.h"
#include "kernels/cuda/ops/dense.h"

namespace subbyte::c {

Result<DenseOnGpu> DenseOnGpu::create(const MatrixView& view, bool is_on_gpu, cudaStream_t stream) {
  if (!view.input_order.empty()) {
    return refuse("weights.input_order", "none with dense weights on a GPU", "one");
  }
  DenseOnGpu made;
  made.bytes_ = std::ssize(view.codes);
  made.element_ = view.format.element == Format::kF32   ? Element::kF32
                  : view.format.element == Format::kF16 ? Element::kF16
                                                        : Element::kBF16;
  made.rows_ = view.rows;
  made.cols_ = view.cols;
  made.gain_ = static_cast<float>(view.tensor_scale);
  SUBBYTE_TRY(made.memory_, GpuBytes::allocate(made.bytes_));
  cudaError_t error =
      cudaMemcpyAsync(made.memory_.data(), view.codes.data(), view.codes.size(),
                      is_on_gpu ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) return gpu_error("cuda.copy", "copy to the GPU", error);
  return made;
}

MatrixView DenseOnGpu::view() const {
  MatrixView view;
  view.format.element = element_ == Element::kF32   ? Format::kF32
                        : element_ == Element::kF16 ? Format::kF16
                                                    : Format::kBF16;
  view.rows = rows_;
  view.cols = cols_;
  view.codes = {memory_.data(), static_cast<std::size_t>(bytes_)};
  view.tensor_scale = gain_;
  return view;
}

Status DenseOnGpu::multiply(const subbyte_product& p, int64_t m, const std::byte* x, std::byte* y,
                            const std::byte* residual, bool gate_up_pairs,
                            std::byte* workspace) const {
  const Element number = p.number == SUBBYTE_F16 ? Element::kF16 : Element::kBF16;
  const auto stream = static_cast<cuda::Stream>(p.stream);
  cuda::run_dense({.weights = memory_.data(),
                   .weights_element = element_,
                   .x = x,
                   .x_element = number,
                   .y = workspace,
                   .y_element = Element::kF32,
                   .m = m,
                   .rows = rows_,
                   .cols = cols_,
                   .x_stride = p.x_stride,
                   .y_stride = rows_,
                   .batch_invariant = p.batch_invariant != 0},
                  stream);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return gpu_error("cuda.launch", "linear", error);
  const bool has_gate = is_gate(p.activation);
  return cuda::run_epilogue({.sums = workspace,
                             .y = y,
                             .bias = p.bias,
                             .residual = residual,
                             .element = number,
                             .m = m,
                             .cols = has_gate ? rows_ / 2 : rows_,
                             .sums_stride = rows_,
                             .y_stride = p.y_stride,
                             .residual_stride = p.residual_stride,
                             .gain = gain_,
                             .unary = unary_of(p.activation),
                             .gate = gate_of(p.activation),
                             .swiglu = clamp_of(p),
                             .gate_up_pairs = gate_up_pairs},
                            stream);
}

Status DenseOnGpu::dequantize(Element number, void* out, cudaStream_t stream) const {
  return cuda::run_epilogue({.sums = memory_.data(),
                             .sums_element = element_,
                             .y = out,
                             .element = number,
                             .m = rows_,
                             .cols = cols_,
                             .sums_stride = cols_,
                             .y_stride = cols_,
                             .gain = gain_},
                            static_cast<cuda::Stream>(stream));
}

}  // namespace subbyte::c
