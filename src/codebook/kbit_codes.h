#pragma once
// Buffers of bitsandbytes as canonical matrices, and products: what its functions here share.

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codebook/kbit.h"
#include "codebook/vq.h"
#include "foreign_layouts/kbit.h"
#include "matrix/matrix.h"

namespace subbyte {
class Execution;
}  // namespace subbyte

namespace subbyte::codebook {

inline constexpr int64_t kBlock = 32;

/// "kbit: NAME: expected at least N elements, found M", code kbit.buffer.
Status check_buffer(std::string_view name, std::size_t found, int64_t expected);

/// Bytes of f16, bf16 and f32; an error kbit.dtype for others, and f32 where `halves`.
Result<int64_t> number_bytes(std::string_view name, Format dtype, bool halves = false);

/// Number i of a buffer of f16, bf16 or f32.
float load_number(const std::byte* from, int64_t i, Format dtype);

/// Refuses numbers (f16, bf16 or f32) of which a quantizer with scales as bitsandbytes encodes them
/// keeps no more than signs: 32 and more, which come back as 16 to 31, and where all are less than
/// 2^-15, which come back as 0. Codes: quantize.scale_overflow, quantize.loss.
Status check_e4m4_range(std::span<const std::byte> numbers, Format dtype);

/// Where codes of a codebook begin, for what quantizes on a GPU (CodebookEncoder); zeros after the
/// last. Codes: quantize.bits, quantize.codebook.
Result<std::array<float, 31>> kbit_thresholds(std::span<const float> codebook, int k);

/// M of a product, which both of its buffers must have. Codes: kbit.dtype, kbit.buffer.
Result<int64_t> count_rows(const KbitProduct& product);

/// Checks that a gemv has at most 4 rows. Code kbit.rows.
Status check_scalar_rows(int64_t m);

/// Checks that offsets of experts rise from 0 to m. Code kbit.offsets.
Status check_offsets(std::span<const int32_t> offsets, int64_t m);

/// Multiplies rows [first, first + m) of a.
Status multiply(const KbitProduct& product, const MatrixView& weights, int64_t first, int64_t m,
                Execution& execution);

/// Codes and scales of a matrix, from their buffers from block `first_block` on.
/// `executor`, if there is one, divides the work by outputs. Codes: kbit.dtype, kbit.buffer,
/// kbit.codebook, layout.shape.
Result<Matrix> to_matrix(const KbitCodes& codes, const KbitShape& shape, int64_t first_block = 0,
                         Executor* executor = nullptr);

/// The same of vectors, in [rows][cols] and one of the orders of blocks. Code vq.p, too.
Result<Matrix> to_matrix(const VqCodes& codes, int64_t rows, int64_t cols, KbitOrder order);

}  // namespace subbyte::codebook
