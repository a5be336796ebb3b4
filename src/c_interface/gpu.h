#pragma once
// What the interface does on GPUs of NVIDIA. gpu_*.cc are the functions; in builds without CUDA
// without_gpu.cc says so.

#include <subbyte/subbyte.h>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/operands.h"
#include "base/status.h"
#include "c_interface/errors.h"
#include "c_interface/tensors.h"
#include "c_interface/weights.h"
#include "flashinfer/group_gemm.h"
#include "kernels/gpu/packed_weights.h"
#include "kernels/quantized_blocks.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte::c {

/// The GPU whose memory an address leads to, or managed memory is on; -1: the host.
int device_of(const void* address);

/// Code c.argument for the first address that leads to a GPU: the host cannot read there.
Status check_on_host(std::initializer_list<NamedAddress> addresses);

/// The bytes of a canonical matrix of a GPU, copied to the host. `stream` is waited for. Code
/// cuda.copy.
Result<Matrix> copy_to_host(const MatrixView& on_gpu, int device, void* stream);

/// Copies rows of `width` bytes that are `stride` apart, on any machine. Code cuda.copy.
Status copy_rows(std::byte* to, const void* from, int64_t rows, int64_t width, int64_t stride,
                 int device, void* stream);

/// Weights packed in the memory of a GPU, with the plans and the workspace of their products.
class GpuMatrix {
 public:
  struct State;

  /// A matrix of the host. Formats that the kernels lack become others (gpu::support()). Codes:
  /// recast.*, linear.unsupported, cuda.*.
  static Result<std::shared_ptr<GpuMatrix>> upload(Matrix matrix, gpu::RowOrder order, int device,
                                                   void* stream, Executor& host);
  /// A matrix of the memory of a GPU, which is gathered, recast and packed by kernels there. Only
  /// where cuda::dequantize() does not take a format that the packed kernels do not have it goes
  /// over the host. The stream is waited for. Codes: as upload(), c.argument (act-order).
  static Result<std::shared_ptr<GpuMatrix>> pack(const Description& from, void* stream,
                                                 Executor& host);
  explicit GpuMatrix(std::unique_ptr<State> state);
  ~GpuMatrix();

  /// A product whose fields were checked. Codes: cuda.*, c.argument.
  Status multiply(const subbyte_product& product);
  Status reserve(const subbyte_product& product);
  Status dequantize(Format number, void* out, void* stream) const;

  /// The matrix that is packed, as it was described or as gpu::support() has made it, copied to the
  /// host. The stream is waited for. Codes: cuda.*.
  Result<Matrix> to_host(void* stream) const;
  /// Tensors of aten's operand in memory of this GPU. The stream is waited for. Codes: layout.*,
  /// cuda.*.
  Status export_int4pack(const Int4Target& target, void* stream,
                         std::vector<subbyte_tensors::Tensor>& to) const;
  /// Format and shape of what to_host() gives, without bytes.
  MatrixView held() const;

  int device() const;
  int64_t bytes() const;
  /// Format and shape, without bytes.
  const MatrixView& view() const;

 private:
  std::unique_ptr<State> state_;
};

/// The packed matrix of an operand of aten whose tensors lie on a GPU. The stream is waited for.
/// Codes: layout.*, cuda.*.
Result<std::shared_ptr<GpuMatrix>> import_int4pack_on_gpu(const Int4Operand& operand, int device,
                                                          void* stream, Executor& host);

/// Weights of a canonical matrix that lies on a GPU to numbers there. Codes: cuda.*.
Status dequantize_on_gpu(const MatrixView& on_gpu, Format number, void* out, int device,
                         void* stream);

Status quantize_blocks_on_gpu(const BlockQuantization& blocks, const void* x, void* codes,
                              void* scales, int device, void* stream);

/// bitsandbytes' kbit on a GPU, to the bits of the host; descriptions whose shapes were checked.
/// Codes: quantize.*, kbit.codebook, layout.shape, cuda.*.
Status quantize_kbit_on_gpu(const subbyte_kbit& to, const void* numbers, Format number,
                            int64_t count, int device);
Status dequantize_kbit_on_gpu(const subbyte_kbit& from, Format number, void* out, int device);
Status repack_kbit_on_gpu(const subbyte_kbit& from, const subbyte_kbit& to, int device);

/// Packed weights of a group GEMM with their workspace.
class GpuGroupGemm {
 public:
  struct State;

  static Result<std::shared_ptr<GpuGroupGemm>> create(const subbyte_group_weights& weights,
                                                      int device, void* stream);
  explicit GpuGroupGemm(std::unique_ptr<State> state);
  ~GpuGroupGemm();

  /// A call with types and hints as flashinfer::GroupGemm has them. Codes: group_gemm.*, cuda.*.
  Status run(const subbyte_group_call& call, const flashinfer::GroupGemm& options);
  Status reserve(int64_t m, void* stream);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace subbyte::c
