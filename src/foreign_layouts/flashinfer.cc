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
  const int64_t width = shape.cols / 2;
  const int64_t padded = shape.padded_cols() / 2;
  std::fill_n(to, shape.code_bytes(), std::byte{0});
  for (int64_t n = 0; n < shape.rows; ++n) std::copy_n(codes + n * width, width, to + n * padded);
}

void unpack_flashinfer_codes(std::byte* codes, const std::byte* from,
                             const FlashinferShape& shape) {
  const int64_t width = shape.cols / 2;
  const int64_t padded = shape.padded_cols() / 2;
  for (int64_t n = 0; n < shape.rows; ++n) std::copy_n(from + n * padded, width, codes + n * width);
}

void pack_flashinfer_scales(std::byte* to, const std::byte* scales, const FlashinferShape& shape) {
  swizzle_scales(to, scales, shape.rows, shape.cols / kGroup, ScaleSwizzle::k128x4);
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

}  // namespace subbyte
