#pragma once
// Canonical matrices of device memory in other forms, bit for bit: what the packed kernels lack as
// what they have, inputs in the order of their groups. The twins of functions of matrix/ and
// checkpoints/act_order.h; each is launches on the stream, which allocate nothing.

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"
#include "matrix/matrix.h"

namespace subbyte::cuda {

/// Outcome of a sort by group.
struct SortedInputs {
  bool is_identity = false;  // the inputs were in the order of their groups
  int64_t bad_group = -1;    // with `count` inputs, or none of the groups where count is -1
  int64_t count = 0;
};

/// Bytes of device memory that sort_by_group() needs.
SUBBYTE_BY_NVCC int64_t sort_bytes(int64_t cols, int64_t groups);

/// Inputs in the order of their groups, stable, of the group of each input: indices [cols] to order
/// [cols]. Every group but the last has group_size of them. The stream is waited for. Code
/// cuda.launch.
SUBBYTE_BY_NVCC Result<SortedInputs> sort_by_group(uint32_t* order, const int32_t* indices,
                                                   int64_t cols, int64_t group_size,
                                                   std::byte* memory, Stream stream);

/// Codes of rows, of up to 8 bits, in an order of the inputs: column k becomes column order[k].
/// Code cuda.launch, here and below.
SUBBYTE_BY_NVCC Status reorder_codes(std::byte* to, const MatrixView& matrix, const uint32_t* order,
                                     Stream stream);

/// Codes of up to 8 bits as bytes, to which `added` is added.
SUBBYTE_BY_NVCC Status widen_codes(std::byte* to, const MatrixView& matrix, int added,
                                   Stream stream);

/// Scales or zero points [rows][from_groups] of from_width bytes to [rows][to_groups] of to_width,
/// the more bytes 0; each group `times` times, the last one as often as is left.
SUBBYTE_BY_NVCC Status repeat_groups(std::byte* to, int to_width, int64_t to_groups,
                                     const std::byte* from, int from_width, int64_t from_groups,
                                     int64_t times, int64_t rows, Stream stream);

/// The largest magnitude of floats [count], NaN left out. `memory` has 4 bytes. The stream is
/// waited for.
SUBBYTE_BY_NVCC Result<float> largest_float(const float* numbers, int64_t count, std::byte* memory,
                                            Stream stream);

}  // namespace subbyte::cuda
