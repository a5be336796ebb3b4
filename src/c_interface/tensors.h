#pragma once
// Tensors that callers hand over, and that are handed out.

#include <map>
#include <string>
#include <vector>

#include <subbyte/subbyte.h>
#include "base/status.h"
#include "checkpoints/containers/safetensors.h"
#include "checkpoints/exporter.h"
#include "matrix/matrix.h"

struct subbyte_tensors {
  struct Tensor {
    std::string name;
    subbyte::ExportedTensor tensor;
  };
  std::vector<Tensor> tensors;
  std::string config;  // JSON
};

namespace subbyte::c {

/// Tensors by name, copied to the host.
struct ReadTensors {
  std::map<std::string, FileTensor> by_name;
  std::vector<std::shared_ptr<const void>> owners;
  int device = -1;  // where the first of them lies

  /// Code c.tensor where there is none of that name, or where it has another type or rank.
  Result<const FileTensor*> find(const std::string& name, std::initializer_list<DType> dtypes,
                                 std::size_t rank) const;
};

/// Codes: c.null, c.struct_size, c.argument, cuda.copy.
Result<ReadTensors> read_tensors(const subbyte_tensor* tensors, int64_t count, void* stream);

/// aten's operands as a matrix and back (int4_operands.cc). Codes: c.tensor, layout.*.
Result<Matrix> import_int4pack(std::string_view layout, const char* tile,
                               const ReadTensors& tensors);
Status export_int4pack(std::string_view layout, const char* tile, Format number,
                       const MatrixView& matrix, std::vector<subbyte_tensors::Tensor>& to);

}  // namespace subbyte::c
