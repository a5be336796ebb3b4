#pragma once
// Tensors that callers hand over, and that are handed out.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <subbyte/subbyte.h>
#include "base/status.h"
#include "checkpoints/containers/safetensors.h"
#include "checkpoints/exporter.h"
#include "foreign_layouts/int4pack.h"
#include "matrix/matrix.h"

struct subbyte_tensors {
  struct Tensor {
    std::string name;
    subbyte::ExportedTensor tensor;
    std::shared_ptr<const std::byte> on_gpu = nullptr;  // instead of its bytes
  };
  std::vector<Tensor> tensors;
  std::string config;  // JSON
};

namespace subbyte::c {

/// Tensors by name, copied to the host, or where they are on a GPU.
struct ReadTensors {
  std::map<std::string, FileTensor> by_name;
  std::vector<std::shared_ptr<const void>> owners;
  int device = -1;  // where they lie

  /// Code c.tensor where there is none of that name, or where it has another type or rank.
  Result<const FileTensor*> find(const std::string& name, std::initializer_list<DType> dtypes,
                                 std::size_t rank) const;
};

/// Copies those of the host alone with `stays_on_gpu`. Codes: c.null, c.struct_size, c.argument
/// (on two machines, too), cuda.copy.
Result<ReadTensors> read_tensors(const subbyte_tensor* tensors, int64_t count, void* stream,
                                 bool stays_on_gpu);

/// An operand of aten's int4 products: which tensors it has, and all that follows from their shapes
/// (int4_operands.cc). Tensors may lie on a GPU.
struct Int4Operand {
  const FileTensor* weight = nullptr;
  const FileTensor* scales = nullptr;  // with z beside them but for XPU
  const FileTensor* zeros = nullptr;   // of XPU alone
  CpuTile cpu_tile = CpuTile::kHalves64;
  int cuda_tiles = 0;  // inner_k_tiles of CUDA's, else 0
  Format type = Format::kF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group_size = 0;

  int64_t groups() const { return cols / group_size; }
  /// u4 with zero points, or i4 with offsets.
  WeightFormat format(bool has_offsets) const;
};
/// Codes: c.tensor, c.argument, layout.shape.
Result<Int4Operand> read_int4pack(std::string_view layout, const char* tile,
                                  const ReadTensors& tensors);
/// The matrix of an operand on the host. Codes: layout.*.
Result<Matrix> import_int4pack(const Int4Operand& operand);

/// The tensors that a matrix becomes.
struct Int4Target {
  bool is_xpu = false;
  CpuTile cpu_tile = CpuTile::kHalves64;
  int cuda_tiles = 0;
  Format type = Format::kF16;  // of scales
  DType weight_dtype = DType::kI32;
  DType groups_dtype = DType::kF16;
  Shape weight_shape;
  Shape groups_shape;  // of scales_and_zeros, or of scales and of zeros
};
/// Refuses an order of inputs, which the operands have no place for. Code layout.input_order.
Status check_int4pack_order(const MatrixView& matrix);
/// Reads no bytes of the matrix. `number`: of the scales, kNone for their own type. Codes:
/// layout.format, layout.shape, layout.input_order, c.argument.
Result<Int4Target> plan_int4pack(std::string_view layout, const char* tile, Format number,
                                 const MatrixView& matrix);
/// The tensors of a matrix of the host. Codes: layout.*.
Status export_int4pack(const Int4Target& target, const MatrixView& matrix,
                       std::vector<subbyte_tensors::Tensor>& to);

/// Layouts of `subbyte pack` that are no checkpoint's and not aten's (packed_layouts.cc).
bool is_packed_layout(std::string_view name);
/// "marlin, marlin-fp4, ", each with a comma.
std::string packed_layout_names();
/// Codes: c.tensor, c.argument, pack.*, layout.*.
Result<Matrix> import_packed(const subbyte_layout& layout, const ReadTensors& tensors);
Status export_packed(const subbyte_layout& layout, const Matrix& matrix,
                     std::vector<subbyte_tensors::Tensor>& to);

}  // namespace subbyte::c
