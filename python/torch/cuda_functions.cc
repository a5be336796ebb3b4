// Operators on GPUs of NVIDIA: the kernels for CUDA, on torch's current stream.

#include <bit>
#include <memory>

#include "kernels/blocks_c.h"
#include "kernels/cuda/cuda_c.h"
#include "kernels/dequantize_c.h"
#include "torch_operators/device.h"
#include "torch_operators/kept.h"

namespace subbyte::torch_operators {
namespace {

/// Makes the GPU of a tensor the current one for a scope, and knows torch's stream there.
class OnDevice {
 public:
  explicit OnDevice(const Tensor& tensor) {
    const Functions& f = functions();
    check(f.aoti_torch_create_cuda_guard(tensor.device_index(), &guard_), "create_cuda_guard");
    check(f.aoti_torch_get_current_cuda_stream(tensor.device_index(), &stream_),
          "get_current_cuda_stream");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { functions().aoti_torch_delete_cuda_guard(guard_); }

  void* stream() const { return stream_; }

 private:
  GuardHandle guard_ = nullptr;
  void* stream_ = nullptr;
};

/// What a function for C has refused.
Status status_of(int failed, const char* line) {
  return failed == 0 ? Status() : Error{"torch.cuda", line};
}

constexpr const char* kFormats[] = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"};
constexpr const char* kRules[] = {"ocp_floor", "ceil", "bump_175"};
constexpr const char* kLayouts[] = {"linear", "128x4", "8x4"};

Status quantize(const BlockQuantization& blocks, const Tensor& x, Tensor& codes, Tensor& scales) {
  const OnDevice device(x);
  const std::string input(info(blocks.input).name);
  const SubbyteBlocks c = {kFormats[static_cast<int>(blocks.format)],
                           input.c_str(),
                           kRules[static_cast<int>(blocks.rule)],
                           kLayouts[static_cast<int>(blocks.layout)],
                           blocks.rows,
                           blocks.cols,
                           blocks.alignment,
                           blocks.tensor_scale};
  const char* line = "";
  const int failed = subbyte_cuda_quantize_blocks(&c, x.data(), codes.data(), scales.data(),
                                                  device.stream(), &line);
  return status_of(failed, line);
}

const char* name_of(Zero zero) {
  switch (zero) {
    case Zero::kU8:
      return "u8";
    case Zero::kU16:
      return "u16";
    case Zero::kF16:
      return "f16";
    case Zero::kBF16:
      return "bf16";
    case Zero::kNone:
      break;
  }
  return nullptr;
}

Status dequantize(const WeightTensors& weights, const MatrixView& view, Tensor& out) {
  if (weights.codebook) return refuse(*weights.codebook, "none on a GPU");
  if (weights.input_order) return refuse(*weights.input_order, "none on a GPU");
  if (is_dense(view.format)) return refuse(weights.codes, "codes with scales on a GPU");
  const OnDevice device(out);
  const std::string element(info(view.format.element).name);
  const std::string scale(info(view.format.scale).name);
  const std::string number(info(out.format()).name);
  const SubbyteWeights c = {element.c_str(),
                            scale.c_str(),
                            name_of(view.format.zero),
                            view.format.group_size,
                            view.rows,
                            view.cols,
                            view.codes.data(),
                            view.scales.data(),
                            view.format.zero == Zero::kNone ? nullptr : view.zeros.data(),
                            nullptr,
                            view.tensor_scale};
  const char* line = "";
  const int failed =
      subbyte_cuda_dequantize(&c, number.c_str(), out.data(), device.stream(), &line);
  return status_of(failed, line);
}

/// Weights as the kernels read them, in memory of the GPU.
struct OnGpu {
  explicit OnGpu(Tensor bytes) : packed(std::move(bytes)) {}
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() { subbyte_cuda_matrix_destroy(matrix); }

  SubbyteCudaMatrix* matrix = nullptr;
  Tensor packed;
};

Result<std::shared_ptr<OnGpu>> pack(const MatrixView& view, const Tensor& like) {
  if (is_offset(view.format.zero)) {
    return refuse("format", "no offsets on a GPU", to_string(view.format));
  }
  if (is_dense(view.format)) {
    return refuse("format", "codes with scales on a GPU", to_string(view.format));
  }
  if (!view.codebook.empty()) return refuse("codebook", "none on a GPU", "one");
  const std::string element(info(view.format.element).name);
  const std::string scale(info(view.format.scale).name);
  SubbyteCudaMatrixDescription d = {};
  d.element = element.c_str();
  d.scale = scale.c_str();
  d.zero_bytes = zero_bytes(view.format.zero);
  d.group_size = view.format.group_size;
  d.rows = view.rows;
  d.cols = view.cols;
  d.codes = view.codes.data();
  d.scales = view.scales.data();
  d.zeros = view.zeros.data();
  d.input_order = view.input_order.empty() ? nullptr : view.input_order.data();
  d.tensor_scale = view.tensor_scale;
  const char* line = "";
  SubbyteCudaMatrix* const matrix = subbyte_cuda_matrix_create(&d, &line);
  if (matrix == nullptr) return Error{"torch.cuda", line};
  const int64_t size = subbyte_cuda_matrix_bytes(matrix);
  auto made = std::make_shared<OnGpu>(Tensor::empty(std::array{size}, numbers().u8, like));
  made->matrix = matrix;
  const OnDevice device(like);
  SUBBYTE_CHECK(status_of(
      subbyte_cuda_matrix_pack(matrix, made->packed.data(), device.stream(), &line), line));
  return made;
}

/// Copies the tensors to the CPU, checks them there as products on the CPU do, and packs them.
Result<Matrix> make(const WeightTensors& weights, int64_t cols, const Tensor& like) {
  const WeightTensors host = weights.to_cpu();
  SUBBYTE_TRY(const MatrixView view, matrix_of(host, cols));
  SUBBYTE_TRY(std::shared_ptr<OnGpu> packed, pack(view, like));
  Matrix matrix;
  matrix.view.rows = view.rows;
  matrix.view.cols = view.cols;
  matrix.view.codes = packed->packed.span();  // counted, and read by the GPU alone
  matrix.owners.push_back(std::move(packed));
  return matrix;
}

Status linear(const Tensor& x, const WeightTensors& weights, const MatrixView& view,
              const std::optional<Tensor>& bias, Tensor& out) {
  if (x.format() == Format::kF32) return refuse(x, "f16 or bf16 on a GPU");
  if (bias && bias->dtype() != x.dtype()) return refuse(*bias, "the type of x on a GPU");
  if (out.count() == 0) return {};
  const OnDevice device(x);
  const Recipe recipe = {"cuda", {view.rows, view.cols, x.device_index()}, weights.format};
  SUBBYTE_TRY(const auto kept,
              keep(recipe, weights.sources(), [&] { return make(weights, view.cols, x); }));
  const auto& packed = *static_cast<const OnGpu*>(kept->owners.front().get());
  SubbyteCudaLinear call = {};
  call.is_bf16 = x.format() == Format::kBF16 ? 1 : 0;
  call.x = x.data();
  call.y = out.data();
  call.bias = bias ? bias->data() : nullptr;
  call.m = x.count() / view.cols;
  call.x_stride = view.cols;
  call.y_stride = view.rows;
  const char* line = "";
  int64_t bytes = 0;
  SUBBYTE_CHECK(
      status_of(subbyte_cuda_linear_workspace(packed.matrix, &call, &bytes, &line), line));
  const Tensor workspace = Tensor::empty(std::array{bytes}, numbers().u8, x);
  return status_of(subbyte_cuda_linear(packed.matrix, packed.packed.data(), &call, workspace.data(),
                                       device.stream(), &line),
                   line);
}

constexpr DeviceFunctions kFunctions = {quantize, dequantize, linear};

}  // namespace

void use_cuda() {
  set_cuda_functions(kFunctions);
}

}  // namespace subbyte::torch_operators
