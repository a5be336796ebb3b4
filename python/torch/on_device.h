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

/// Itself, or a copy at a multiple of 16 bytes.
inline Tensor aligned(const Tensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.data()) % 16 == 0) return tensor.share();
  Tensor copy = Tensor::empty(tensor.sizes(), tensor.dtype(), tensor);
  check(functions().aoti_torch_copy_(copy.handle(), tensor.handle(), 0), "copy_");
  return copy;
}

/// Memory of the GPU of `like`, at a multiple of 256.
inline Tensor bytes_on_gpu(int64_t size, const Tensor& like) {
  const int64_t sizes[] = {size};
  return Tensor::empty(sizes, numbers().u8, like);
}

/// Waits for what has been made of weights: another stream may be the next to read it. Code
/// cuda.launch.
Status wait_for(cuda::Stream stream);

/// `matrix` in a format that packed kernels have with the same numbers. Code torch.argument where
/// there is none.
Result<Matrix> as_packed_format(const MatrixView& matrix);

/// Matrices of one format as the kernels read them, format.bytes each, in memory of a GPU.
struct PackedOnGpu {
  cuda::PackedFormat format;
  Tensor bytes;
};

/// Packs `parts` matrices of as many rows each, which follow each other in `all`, on the GPU of
/// `like`, where all their bytes but the codebook lie. `format` has the largest scale of all. The
/// stream is waited for. Nothing where the kernels have no such format, or where values are wrong,
/// which the host refuses in words. Code cuda.launch.
Result<std::optional<PackedOnGpu>> pack_there(const MatrixView& all, int64_t parts,
                                              cuda::RowOrder order, const Tensor& like,
                                              cuda::Stream stream);

/// Copies a matrix of the host to the GPU of `like` and packs it there; its format is one that the
/// kernels have. The stream is waited for. Codes: those of packed_format(), cuda.launch.
Result<PackedOnGpu> pack_from_host(const MatrixView& host, const Tensor& like, cuda::Stream stream);

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
bool is_captured_on_gpu(const Tensor& tensor);
Result<bool> quantize_weights_on_gpu(const WeightQuantization& how, const Tensor& weights,
                                     const QuantizedWeights& to);
Result<bool> repack_marlin_on_gpu(const MarlinWords& from, Tensor& out);
Result<bool> convert_int4_on_gpu(const Int4Words& from, Tensor& out);
Status quantize_nibbles_on_gpu(const Tensor& numbers, const Rising& rising, int64_t blocksize,
                               Tensor& packed, Tensor& absmax);
Status dequantize_nibbles_on_gpu(const Tensor& packed, const Tensor& absmax, const Table& table,
                                 int64_t blocksize, Tensor& out);
Status dequantize_awq_on_gpu(const Tensor& words, const Tensor& scales, const Tensor& zeros,
                             Tensor& out);
Status dequantize_fp4_on_gpu(const BlockQuantization& blocks, const Tensor& codes,
                             const Tensor& scales, double factor, Tensor& out);
Status interleave_scales_on_gpu(const Tensor& in, int64_t experts, Tensor& out);
Status experts_on_gpu(const MixtureTensors& mixture, Tensor& out);

}  // namespace subbyte::torch_operators
