#pragma once
// Pieces that several exporters share.

#include <fmt/format.h>

#include <string_view>

#include "checkpoints/exporter.h"

namespace subbyte {

/// "'MODULE': WHAT".
Error export_error(std::string_view code, std::string_view module, std::string_view what);

/// Code export.format: "AWQ holds u4 codes with zero points, not FORMAT".
Error not_held(std::string_view module, std::string_view holds, const WeightFormat& format);

/// Outputs, and groups of a row, of a matrix in the only format of a flavour that is called `name`.
struct Blocks {
  uint64_t rows = 0;
  uint64_t groups = 0;
};
/// Codes export.format, export.act_order, export.shape.
Result<Blocks> require_blocks(const ExportShape& shape, std::string_view module,
                              std::string_view name, const WeightFormat& only);

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

/// Both, for flavours that have one matrix in a tensor, in its own order.
Status require_plain(const ExportShape& shape, std::string_view module);

/// Allocates the bytes of every tensor of a description.
void allocate(std::vector<ExportedTensor>& tensors);
/// The same of a matrix that has no factor. Code export.tensor_scale, and those of the description.
Result<std::vector<ExportedTensor>> allocate(Result<std::vector<ExportedTensor>> described,
                                             const MatrixView& matrix, std::string_view module);

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
