#pragma once
// What packed_format() has to know of a matrix that lies in device memory, found there: a kernel
// reads scales, zero points and the order of inputs once, and 64 bytes come to the host.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/linear.h"
#include "matrix/matrix.h"

namespace subbyte::cuda {

struct MatrixFacts {
  gpu::PackedFacts packed;
  /// An entry of input_order that is no input, or is there twice; -1: every input is there once.
  int64_t bad_input = -1;
};

/// Bytes of device memory that find_facts() needs.
SUBBYTE_BY_NVCC int64_t facts_bytes(int64_t cols);

/// Facts of a canonical matrix with scales, of which all spans but the codebook are device
/// pointers. `memory` has facts_bytes(), 8-byte aligned. The stream is waited for. Codes:
/// cuda.launch.
SUBBYTE_BY_NVCC Result<MatrixFacts> find_facts(const MatrixView& matrix, std::byte* memory,
                                               Stream stream);

}  // namespace subbyte::cuda
