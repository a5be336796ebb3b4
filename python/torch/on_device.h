#pragma once
// What the operators on GPUs of NVIDIA share.

#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops/elements.h"
#include "torch_operators/device.h"

namespace subbyte::torch_operators {

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

  cuda::Stream stream() const { return static_cast<cuda::Stream>(stream_); }

 private:
  GuardHandle guard_ = nullptr;
  void* stream_ = nullptr;
};

inline Element element_of(Format format) {
  return format == Format::kF32   ? Element::kF32
         : format == Format::kF16 ? Element::kF16
                                  : Element::kBF16;
}

inline cuda::Number number_of(const Tensor& x) {
  return x.format() == Format::kBF16 ? cuda::Number::kBF16 : cuda::Number::kF16;
}

/// Numbers of `tensor` in that type: a copy where they are of another one, which the stream makes.
inline Tensor as_type(const Tensor& tensor, int32_t dtype) {
  if (tensor.dtype() == dtype) return tensor.share();
  Tensor copy = Tensor::empty(tensor.sizes(), dtype, tensor);
  check(functions().aoti_torch_copy_(copy.handle(), tensor.handle(), 0), "copy_");
  return copy;
}

/// Memory of the GPU of `like`, at a multiple of 256.
inline Tensor bytes_on_gpu(int64_t size, const Tensor& like) {
  const int64_t sizes[] = {size};
  return Tensor::empty(sizes, numbers().u8, like);
}

/// `matrix` in a format that packed kernels have with the same numbers. Code torch.argument where
/// there is none.
Result<Matrix> as_packed_format(const MatrixView& matrix);

// The functions of DeviceFunctions that files of their own have.
Status quantize_blocks_on_gpu(const Tensor& numbers, const BlockTensors& to);
Status dequantize_blocks_on_gpu(const BlockTensors& from, int64_t rows, int64_t cols, bool is_tiled,
                                Tensor& out);
Status repack_blocks_on_gpu(const BlockTensors& from, const BlockTensors& to, int64_t rows,
                            int64_t cols);
Status rotate_on_gpu(const Tensor& data, int64_t dim, const std::optional<Tensor>& signs);
Status group_gemm_on_gpu(const flashinfer::GroupGemm& gemm, const Tensor& a, const Tensor& a_scale,
                         const Tensor& b, const Tensor& b_scale, const Tensor& m_indptr,
                         Tensor& out);
Status experts_on_gpu(const MixtureTensors& mixture, Tensor& out);

}  // namespace subbyte::torch_operators
