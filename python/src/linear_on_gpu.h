#pragma once
// Products of a matrix with arrays in the memory of a GPU.

#include <nanobind/nanobind.h>

#include "held_matrix.h"

namespace subbyte::python {

/// x W^T + bias, on the GPU of x, `device`, and in its stream; the result has its type. `bias` and
/// `out` are None or arrays there, too. Raises subbyte.Error.
nanobind::object linear_on_gpu(const HeldMatrix& matrix, int device, nanobind::handle x,
                               nanobind::handle bias, nanobind::object out);

}  // namespace subbyte::python
