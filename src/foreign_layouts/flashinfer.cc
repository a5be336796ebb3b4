#include "foreign_layouts/flashinfer.h"

#include <algorithm>
#include <string>

#include "foreign_layouts/scale_swizzle.h"

namespace subbyte {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kAtomRows = 128;

int64_t padded_groups(int64_t cols) {
  return swizzled_groups((cols + kGroup - 1) / kGroup);
}

/// Rows of `width` bytes to rows of `padded`, of which there are `padded_rows`.
void pad(std::byte* to, const std::byte* from, int64_t rows, int64_t width, int64_t padded_rows,
         int64_t padded) {
  std::fill_n(to, padded_rows * padded, std::byte{0});
  for (int64_t n = 0; n < rows; ++n) std::copy_n(from + n * width, width, to + n * padded);
}

void unpad(std::byte* to, const std::byte* from, int64_t rows, int64_t width, int64_t padded) {
  for (int64_t n = 0; n < rows; ++n) std::copy_n(from + n * padded, width, to + n * width);
}

}  // namespace

Status check_flashinfer_shape(const FlashinferShape& shape) {
  const auto& [rows, cols] = shape;
  if (rows > 0 && cols > 0 && rows <= kMaxSize && cols <= kMaxSize && cols % kGroup == 0) return {};
  return Error{"layout.shape",
               "FlashInfer's MXFP4 needs outputs and inputs up to 2^24, inputs in "
               "32s, found " +
                   std::to_string(rows) + " and " + std::to_string(cols)};
}

int64_t flashinfer_scale_byte(int64_t row, int64_t group, int64_t cols) {
  return swizzled_byte(row, group, padded_groups(cols), ScaleSwizzle::k128x4);
}

void pack_flashinfer_codes(std::byte* to, const std::byte* codes, const FlashinferShape& shape) {
  pad(to, codes, shape.rows, shape.cols / 2, shape.padded_rows(), shape.padded_cols() / 2);
}

void unpack_flashinfer_codes(std::byte* codes, const std::byte* from,
                             const FlashinferShape& shape) {
  unpad(codes, from, shape.rows, shape.cols / 2, shape.padded_cols() / 2);
}

void pack_flashinfer_scales(std::byte* to, const std::byte* scales, const FlashinferShape& shape) {
  swizzle_scales(to, scales, shape.rows, shape.cols / kGroup, ScaleSwizzle::k128x4);
}

void unpack_flashinfer_scales(std::byte* scales, const std::byte* from,
                              const FlashinferShape& shape) {
  unswizzle_scales(scales, from, shape.rows, shape.cols / kGroup, ScaleSwizzle::k128x4);
}

Status check_flashinfer_groups(std::span<const int32_t> m_indptr) {
  const auto refuse = [](const std::string& problem) {
    return Error{"layout.groups", "m_indptr: " + problem};
  };
  if (m_indptr.empty() || m_indptr[0] != 0) return refuse("expected 0 at index 0");
  for (std::size_t i = 0; i < m_indptr.size(); ++i) {
    const std::string found = std::to_string(m_indptr[i]) + " at index " + std::to_string(i);
    if (m_indptr[i] % 4 != 0) return refuse("expected multiples of 4, found " + found);
    if (i > 0 && m_indptr[i] < m_indptr[i - 1]) {
      return refuse("expected at least " + std::to_string(m_indptr[i - 1]) + ", found " + found);
    }
  }
  return {};
}

int64_t flashinfer_group_row(std::span<const int32_t> m_indptr, int64_t i) {
  return (m_indptr[i] + i * (kAtomRows - 1)) / kAtomRows * kAtomRows;
}

void pack_flashinfer_activations(std::byte* to, const std::byte* values, int64_t rows,
                                 int64_t cols) {
  pad(to, values, rows, cols, rows, padded_groups(cols) * kGroup);
}

void unpack_flashinfer_activations(std::byte* values, const std::byte* from, int64_t rows,
                                   int64_t cols) {
  unpad(values, from, rows, cols, padded_groups(cols) * kGroup);
}

void pack_flashinfer_activation_scales(std::byte* to, const std::byte* scales,
                                       std::span<const int32_t> m_indptr, int64_t cols) {
  const auto experts = static_cast<int64_t>(m_indptr.size()) - 1;
  const int64_t row_bytes = padded_groups(cols);
  std::fill_n(to, flashinfer_group_row(m_indptr, experts) * row_bytes, std::byte{0});
  for (int64_t i = 0; i < experts; ++i) {
    swizzle_scales(to + flashinfer_group_row(m_indptr, i) * row_bytes,
                   scales + m_indptr[i] * (cols / kGroup), m_indptr[i + 1] - m_indptr[i],
                   cols / kGroup, ScaleSwizzle::k128x4);
  }
}

void unpack_flashinfer_activation_scales(std::byte* scales, const std::byte* from,
                                         std::span<const int32_t> m_indptr, int64_t cols) {
  const int64_t row_bytes = padded_groups(cols);
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(m_indptr.size()); ++i) {
    unswizzle_scales(scales + m_indptr[i] * (cols / kGroup),
                     from + flashinfer_group_row(m_indptr, i) * row_bytes,
                     m_indptr[i + 1] - m_indptr[i], cols / kGroup, ScaleSwizzle::k128x4);
  }
}

}  // namespace subbyte
