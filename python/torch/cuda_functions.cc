// Operators on GPUs of NVIDIA: the kernels for CUDA, on torch's current stream.

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/cuda/ops/activations.h"
#include "kernels/cuda/ops/dequantize.h"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/gpu/supported_format.h"
#include "on_device.h"
#include "torch_operators/kept.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

Status quantize(const BlockQuantization& blocks, const std::optional<FourOverSix>& search,
                const Tensor* global_scale, const Tensor& x, Tensor& codes, Tensor& scales) {
  const OnDevice device(x);
  cuda::Nvfp4Options options;
  if (global_scale != nullptr) options.global_scale_there = global_scale->data<float>();
  if (search) {
    options.four_over_six = true;
    options.is_squared = search->error == BlockError::kSquared;
    options.global_scale = search->global_scale;
  }
  return cuda::quantize_blocks(blocks, aligned(x).data(), codes.data(), scales.data(),
                               device.stream(), options);
}

Status dequantize(const WeightTensors& weights, const MatrixView& view, Tensor& out) {
  if (weights.codebook) return refuse(*weights.codebook, "none on a GPU");
  if (weights.input_order) return refuse(*weights.input_order, "none on a GPU");
  const OnDevice device(out);
  return cuda::dequantize(view, element_of(out.format()), out.data(), device.stream());
}

/// Weights as the kernels read them, in memory of the GPU, and plans of the products so far.
struct OnGpu {
  OnGpu(const cuda::PackedFormat& layout, double factor, const cuda::Device& gpu, Tensor memory)
      : format(layout), device(gpu), bytes(std::move(memory)) {
    for (const cuda::Number number : {cuda::Number::kF16, cuda::Number::kBF16}) {
      arguments[static_cast<std::size_t>(number)] =
          cuda::weight_arguments(bytes.data(), format, factor, number);
    }
  }

  /// Planning takes longer than launching.
  Result<cuda::Plan> plan(cuda::Number number, int64_t m, bool aligned) {
    const auto key = std::make_tuple(number, m, aligned);
    const std::lock_guard lock(mutex);
    if (const auto found = plans.find(key); found != plans.end()) return found->second;
    SUBBYTE_TRY(const cuda::Plan made, cuda::plan_linear({format, number, m, aligned}, device));
    constexpr std::size_t kMostPlans = 1024;
    if (plans.size() == kMostPlans) plans.clear();
    plans.emplace(key, made);
    return made;
  }

  cuda::PackedFormat format;
  std::array<cuda::WeightArguments, 2> arguments;  // by Number
  cuda::Device device;
  Tensor bytes;

 private:
  std::mutex mutex;
  std::map<std::tuple<cuda::Number, int64_t, bool>, cuda::Plan> plans;
};

Result<Matrix> with_plans(PackedOnGpu packed, double tensor_scale) {
  SUBBYTE_TRY(const cuda::Device device, cuda::query_device(packed.bytes.device_index()));
  auto on_gpu =
      std::make_shared<OnGpu>(packed.format, tensor_scale, device, std::move(packed.bytes));
  Matrix matrix;
  matrix.view.rows = on_gpu->format.rows;
  matrix.view.cols = on_gpu->format.cols;
  matrix.view.codes = on_gpu->bytes.span();  // counted here, and read by the GPU alone
  matrix.owners.push_back(std::move(on_gpu));
  return matrix;
}

/// Packs a matrix of the host for the GPU of `like`.
Result<Matrix> put_on_gpu(const Matrix& made, const Tensor& like, cuda::Stream stream) {
  SUBBYTE_TRY(const Matrix host, as_packed_format(made.view));
  SUBBYTE_TRY(PackedOnGpu packed, pack_from_host(host.view, like, stream));
  return with_plans(std::move(packed), host.view.tensor_scale);
}

/// Packs weights that lie on the GPU of `like` there, or by the host, which checks them as products
/// on the CPU do it.
Result<Matrix> pack_weights(const WeightTensors& weights, const MatrixView& view,
                            const Tensor& like, cuda::Stream stream) {
  MatrixView there = view;
  std::optional<Tensor> codebook;
  if (weights.codebook) {
    codebook.emplace(weights.codebook->to_cpu());
    there.codebook = codebook->span<const float>();
  }
  SUBBYTE_TRY(auto packed, pack_there(there, 1, cuda::RowOrder::kNatural, like, stream));
  if (packed) return with_plans(std::move(*packed), view.tensor_scale);
  const WeightTensors host = weights.to_cpu();
  SUBBYTE_TRY(const MatrixView matrix, matrix_of(host, view.cols));
  return put_on_gpu(Matrix{matrix, {}}, like, stream);
}

/// Rows of activations and results.
struct Rows {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  int64_t count = 0;
};

/// Launches y = x W^T + bias + residual.
Status launch(OnGpu& packed, const Tensor& x, const Rows& part, const std::optional<Tensor>& bias,
              const std::optional<Tensor>& residual, int64_t rows, cuda::Stream stream) {
  const cuda::Number number = number_of(x);
  cuda::LinearCall call;
  call.weights = packed.arguments[static_cast<std::size_t>(number)];
  call.format = &packed.format;
  call.x = part.x;
  call.y = part.y;
  call.bias = bias ? bias->data() : nullptr;
  call.residual = residual ? residual->data() : nullptr;
  call.x_stride = x.size(-1);
  call.y_stride = rows;
  call.residual_stride = rows;
  call.m = part.count;
  const bool aligned = x.size(-1) % 8 == 0 && reinterpret_cast<uintptr_t>(call.x) % 16 == 0;
  SUBBYTE_TRY(const cuda::Plan plan, packed.plan(number, call.m, aligned));
  if (plan.workspace_bytes == 0) return cuda::run_linear(plan, call, number, nullptr, stream);
  const Tensor workspace = bytes_on_gpu(plan.workspace_bytes, x);
  return cuda::run_linear(plan, call, number, workspace.data(), stream);
}

Status launch(OnGpu& packed, const Tensor& x, const std::optional<Tensor>& bias,
              const std::optional<Tensor>& residual, const Tensor& out, int64_t rows,
              cuda::Stream stream) {
  return launch(packed, x, {x.data(), out.data(), x.count() / x.size(-1)}, bias, residual, rows,
                stream);
}

/// Launches what follows a product that has been rounded to the type of its activations.
Status launch_rest(const Epilogue& epilogue, const Tensor& sums, const Tensor& out, int64_t rows,
                   cuda::Stream stream) {
  cuda::EpilogueCall call;
  call.sums = sums.data();
  call.sums_element = call.element = element_of(out.format());
  call.y = out.data();
  call.residual = epilogue.residual ? epilogue.residual->data() : nullptr;
  call.cols = epilogue.outputs(rows);
  call.m = out.count() / call.cols;
  call.sums_stride = rows;
  call.y_stride = call.residual_stride = call.cols;
  call.gate_up_pairs = epilogue.in_turns;
  switch (epilogue.activation) {
    case EpilogueActivation::kNone:
      break;
    case EpilogueActivation::kRelu:
      call.unary = cuda::Unary::kRelu;
      break;
    case EpilogueActivation::kGelu:
      call.unary = cuda::Unary::kGelu;
      break;
    case EpilogueActivation::kSiluGate:
      call.gate = cuda::Activation::kSwiGLU;
      break;
    case EpilogueActivation::kGeluGate:
      call.gate = cuda::Activation::kGeGLU;
      break;
    case EpilogueActivation::kClampedGate:
      call.gate = cuda::Activation::kClampedSwiGLU;
      call.swiglu = epilogue.clamp;
      break;
  }
  return cuda::run_epilogue(call, stream);
}

Status check_numbers(const Tensor& x, const std::optional<Tensor>& bias) {
  if (x.format() == Format::kF32) return refuse(x, "f16 or bf16 on a GPU");
  if (bias && bias->dtype() != x.dtype()) return refuse(*bias, "the type of x on a GPU");
  return {};
}

/// What with_plans() makes.
Result<std::shared_ptr<OnGpu>> keep_packed(Recipe recipe, std::span<const Tensor* const> sources,
                                           const Tensor& x, FunctionRef<Result<Matrix>()> make) {
  recipe.numbers.push_back(-1 - x.device_index());
  SUBBYTE_TRY(const auto kept, keep(recipe, sources, make));
  return std::const_pointer_cast<OnGpu>(
      std::static_pointer_cast<const OnGpu>(kept->owners.front()));
}

/// Of a matrix that `make` makes on the host.
Result<std::shared_ptr<OnGpu>> keep_on_gpu(const Recipe& recipe,
                                           std::span<const Tensor* const> sources, const Tensor& x,
                                           cuda::Stream stream,
                                           FunctionRef<Result<Matrix>()> make) {
  return keep_packed(recipe, sources, x, [&]() -> Result<Matrix> {
    SUBBYTE_TRY(const Matrix host, make());
    return put_on_gpu(host, x, stream);
  });
}

Status multiply(const Tensor& x, const Recipe& recipe, std::span<const Tensor* const> sources,
                FunctionRef<Result<Matrix>()> make, const std::optional<Tensor>& bias,
                Tensor& out) {
  SUBBYTE_CHECK(check_numbers(x, bias));
  if (out.count() == 0) return {};
  const OnDevice device(x);
  SUBBYTE_TRY(const auto packed, keep_on_gpu(recipe, sources, x, device.stream(), make));
  return launch(*packed, x, bias, std::nullopt, out, out.size(-1), device.stream());
}

Status multiply_rows(const Tensor& x, int64_t first, int64_t count, const Recipe& recipe,
                     std::span<const Tensor* const> sources, FunctionRef<Result<Matrix>()> make,
                     Tensor& out) {
  SUBBYTE_CHECK(check_numbers(x, std::nullopt));
  if (count == 0) return {};
  const OnDevice device(x);
  SUBBYTE_TRY(const auto packed, keep_on_gpu(recipe, sources, x, device.stream(), make));
  constexpr int64_t kNumberBytes = 2;
  const Rows rows = {x.data() + first * x.size(-1) * kNumberBytes,
                     out.data() + first * out.size(-1) * kNumberBytes, count};
  return launch(*packed, x, rows, std::nullopt, std::nullopt, out.size(-1), device.stream());
}

Status linear(const Tensor& x, const WeightTensors& weights, const MatrixView& view,
              const Epilogue& epilogue, Tensor& out) {
  SUBBYTE_CHECK(check_numbers(x, epilogue.bias));
  if (out.count() == 0) return {};
  const OnDevice device(x);
  SUBBYTE_TRY(const auto packed,
              keep_packed({"cuda", {view.rows, view.cols}, weights.format}, weights.sources(), x,
                          [&] { return pack_weights(weights, view, x, device.stream()); }));
  if (epilogue.activation == EpilogueActivation::kNone) {
    return launch(*packed, x, epilogue.bias, epilogue.residual, out, view.rows, device.stream());
  }
  const Tensor sums = Tensor::empty(product_sizes(x, view.rows), x.dtype(), x);
  SUBBYTE_CHECK(launch(*packed, x, epilogue.bias, std::nullopt, sums, view.rows, device.stream()));
  return launch_rest(epilogue, sums, out, view.rows, device.stream());
}

constexpr DeviceFunctions kFunctions = {is_captured_on_gpu,
                                        quantize,
                                        dequantize,
                                        linear,
                                        multiply,
                                        multiply_rows,
                                        quantize_blocks_on_gpu,
                                        dequantize_blocks_on_gpu,
                                        repack_blocks_on_gpu,
                                        rotate_on_gpu,
                                        group_gemm_on_gpu,
                                        quantize_weights_on_gpu,
                                        repack_marlin_on_gpu,
                                        convert_int4_on_gpu,
                                        quantize_nibbles_on_gpu,
                                        dequantize_nibbles_on_gpu,
                                        dequantize_awq_on_gpu,
                                        dequantize_fp4_on_gpu,
                                        interleave_scales_on_gpu,
                                        experts_on_gpu};

}  // namespace

Result<Matrix> as_packed_format(const MatrixView& matrix) {
  Matrix same = {matrix, {}};
  if (gpu::packed_format(matrix).ok()) return same;
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_TRY(Matrix held, gpu::support(std::move(same), machine.executor()));
  if (!is_dense(held.view.format)) return held;
  return refuse("format", "one that the kernels for GPUs have (docs/kernels/cuda.md)",
                to_string(matrix.format));
}

void use_cuda() {
  set_cuda_functions(kFunctions);
}

}  // namespace subbyte::torch_operators
