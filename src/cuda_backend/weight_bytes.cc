#include "cuda_backend/weight_bytes.h"

#include <string>
#include <utility>

#include "device/memory.h"
#include "kernels/gpu/packed_weights.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte {
namespace {

Result<int64_t> expert_matrix_bytes(const MatrixShape& shape) {
  // The floats of both types of activations have as many bytes.
  const WeightFormat served =
      is_dense(shape.format)
          ? gpu::packed_floats(gpu::Number::kF16)
          : gpu::supported_format(shape.format, shape.rows, shape.cols, shape.act_order);
  auto bytes = gpu::packed_bytes(served, shape.rows, shape.cols, shape.act_order);
  if (!bytes.ok()) return unsupported_experts(shape.format);
  const int64_t gains = device::aligned(shape.experts * int64_t{sizeof(float)});
  return device::aligned(shape.experts * *bytes) + gains;
}

}  // namespace

Result<int64_t> cuda_matrix_bytes(const MatrixShape& shape) {
  if (shape.is_of_moe) return expert_matrix_bytes(shape);
  const WeightFormat served =
      gpu::supported_format(shape.format, shape.rows, shape.cols, shape.act_order);
  if (is_dense(served)) {
    return device::aligned(shape.rows * shape.cols * (info(served.element).bits / 8));
  }
  auto bytes = gpu::packed_bytes(served, shape.rows, shape.cols, shape.act_order);
  if (!bytes.ok()) return Error{"linear.unsupported", std::move(bytes).error().message};
  return device::aligned(*bytes);
}

Error unsupported_experts(const WeightFormat& format) {
  return {
      "linear.unsupported",
      "experts of " + to_string(format) +
          ": the GPU runs experts in its packed formats (mxfp4, nvfp4, nf4, kbit, vq, integers) "
          "and in f32, f16 and bf16; --device cpu runs these"};
}

}  // namespace subbyte
