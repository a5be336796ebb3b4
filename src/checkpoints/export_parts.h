#pragma once
// Pieces that several exporters share.

#include <fmt/format.h>

#include <string_view>

#include "checkpoints/exporter.h"

namespace subbyte {

/// "'MODULE': WHAT".
Error export_error(std::string_view code, std::string_view module, std::string_view what);

/// Codes export.experts and export.act_order: for flavours that have neither.
Status require_one_expert(const ExportShape& shape, std::string_view module);
Status require_input_order(const ExportShape& shape, std::string_view module);

/// Code export.tensor_scale: for flavours whose scales are all there is.
Status require_tensor_scale_1(const MatrixView& matrix, std::string_view module);

/// iN as uN with zero points; other formats stay what they are.
WeightFormat with_zero_points(WeightFormat format);

/// 16 or 32 for F16, BF16 and F32, 0 for others.
int float_bits(Format format);

/// The dtype of scales in `format`, or an error export.format unless they are F16, BF16 or F32.
Result<DType> scale_dtype(Format format, std::string_view module);

/// Checks that the groups cover `cols` inputs evenly and gives their number. Code export.shape.
Result<int64_t> count_groups(const WeightFormat& format, int64_t cols, std::string_view module);

/// Allocates the bytes of every tensor of a description.
void allocate(std::vector<ExportedTensor>& tensors);

/// Canonical [rows][groups] scales as [groups][rows].
void transpose_scales(std::span<std::byte> to, const MatrixView& matrix);

/// Zero point (row, group).
uint32_t load_zero(const MatrixView& matrix, int64_t row, int64_t group);

inline uint32_t load_u32(const std::byte* from) {
  uint32_t word = 0;
  __builtin_memcpy(&word, from, 4);
  return word;
}

inline void store_u32(std::byte* to, uint32_t word) {
  __builtin_memcpy(to, &word, 4);
}

}  // namespace subbyte
