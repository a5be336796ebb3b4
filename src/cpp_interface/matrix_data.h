#pragma once
// What a public matrix holds.

#include <map>
#include <mutex>

#include "cpu_backend/execution.h"
#include "device/host_weights.h"
#include "matrix/zero_points.h"
#include "subbyte/matrix.h"

namespace subbyte::wrapped {

struct Matrix::Data {
  explicit Data(subbyte::Matrix of);

  /// The matrix as the kernels of the CPU read it, made when it is wanted for the first time.
  const MatrixView& for_kernels() const;

  /// The same for formats that no kernel of `execution` reads. Codes: those of HostWeights.
  Result<const device::HostWeights*> without_kernel(Execution& execution) const;

  subbyte::Matrix matrix;
  MatrixParts parts;  // a view of it

 private:
  mutable std::once_flag once_;
  mutable subbyte::Matrix for_kernels_;
  mutable std::mutex mutex_;
  mutable std::map<const cpu::Kernels*, device::HostWeights>
      without_kernel_;  // of each instruction set
};

Matrix to_public(subbyte::Matrix matrix);

}  // namespace subbyte::wrapped
