#pragma once
// Buffers of bitsandbytes as canonical matrices: what its functions here share.

#include <string>
#include <string_view>
#include <vector>

#include "bitsandbytes/kbit.h"
#include "foreign_layouts/kbit.h"
#include "matrix/matrix.h"

namespace subbyte::bitsandbytes {

inline constexpr int64_t kBlock = 32;

/// "kbit: NAME: expected at least N elements, found M", code kbit.buffer.
Status check_buffer(std::string_view name, std::size_t found, int64_t expected);

/// Bytes of f16, bf16 and f32; an error kbit.dtype for others, and f32 where `halves`.
Result<int64_t> number_bytes(std::string_view name, Format dtype, bool halves = false);

/// Codes and scales of a matrix, from their buffers from block `first_block` on.
/// Codes: kbit.dtype, kbit.buffer, kbit.codebook, layout.shape.
Result<Matrix> to_matrix(const KbitCodes& codes, const KbitShape& shape, int64_t first_block = 0);

}  // namespace subbyte::bitsandbytes
