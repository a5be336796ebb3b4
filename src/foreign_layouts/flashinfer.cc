#include "foreign_layouts/flashinfer.h"

#include <algorithm>
#include <string>

namespace subbyte {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kAtomRows = 128;
constexpr int64_t kAtomGroups = 4;
constexpr int64_t kAtomInputs = kAtomGroups * kGroup;
constexpr int64_t kAtomBytes = kAtomRows * kAtomGroups;

int64_t padded_groups(int64_t cols) {
  return (cols + kAtomInputs - 1) / kAtomInputs * kAtomGroups;
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

/// `to` begins with an atom and is filled with zeros.
void swizzle(std::byte* to, const std::byte* scales, int64_t rows, int64_t cols) {
  const int64_t groups = cols / kGroup;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      to[flashinfer_scale_byte(n, g, cols)] = scales[n * groups + g];
    }
  }
}

void unswizzle(std::byte* scales, const std::byte* from, int64_t rows, int64_t cols) {
  const int64_t groups = cols / kGroup;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      scales[n * groups + g] = from[flashinfer_scale_byte(n, g, cols)];
    }
  }
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
  const int64_t atoms_per_row = padded_groups(cols) / kAtomGroups;
  const int64_t atom = row / kAtomRows * atoms_per_row + group / kAtomGroups;
  return atom * kAtomBytes + row % 32 * 16 + row % kAtomRows / 32 * 4 + group % kAtomGroups;
}

void pack_flashinfer_codes(std::byte* to, const std::byte* codes, const FlashinferShape& shape) {
  pad(to, codes, shape.rows, shape.cols / 2, shape.padded_rows(), shape.padded_cols() / 2);
}

void unpack_flashinfer_codes(std::byte* codes, const std::byte* from,
                             const FlashinferShape& shape) {
  unpad(codes, from, shape.rows, shape.cols / 2, shape.padded_cols() / 2);
}

void pack_flashinfer_scales(std::byte* to, const std::byte* scales, const FlashinferShape& shape) {
  std::fill_n(to, shape.scale_bytes(), std::byte{0});
  swizzle(to, scales, shape.rows, shape.cols);
}

void unpack_flashinfer_scales(std::byte* scales, const std::byte* from,
                              const FlashinferShape& shape) {
  unswizzle(scales, from, shape.rows, shape.cols);
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
    swizzle(to + flashinfer_group_row(m_indptr, i) * row_bytes,
            scales + m_indptr[i] * (cols / kGroup), m_indptr[i + 1] - m_indptr[i], cols);
  }
}

void unpack_flashinfer_activation_scales(std::byte* scales, const std::byte* from,
                                         std::span<const int32_t> m_indptr, int64_t cols) {
  const int64_t row_bytes = padded_groups(cols);
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(m_indptr.size()); ++i) {
    unswizzle(scales + m_indptr[i] * (cols / kGroup),
              from + flashinfer_group_row(m_indptr, i) * row_bytes, m_indptr[i + 1] - m_indptr[i],
              cols);
  }
}

}  // namespace subbyte
