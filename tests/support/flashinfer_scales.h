#pragma once
// Scales of activations as FlashInfer's callers make them for its group GEMM.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "foreign_layouts/flashinfer.h"
#include "foreign_layouts/scale_swizzle.h"

namespace subbyte {

/// Scales [m_indptr.back()][cols / 32] to flashinfer_group_row(m_indptr, E) * K'/32 bytes. The
/// groups have been checked.
inline void pack_flashinfer_activation_scales(std::byte* to, const std::byte* scales,
                                              std::span<const int32_t> m_indptr, int64_t cols) {
  const int64_t groups = cols / 32;
  const int64_t row_bytes = swizzled_groups(groups);
  const auto experts = static_cast<int64_t>(m_indptr.size()) - 1;
  std::fill_n(to, flashinfer_group_row(m_indptr, experts) * row_bytes, std::byte{0});
  for (int64_t i = 0; i < experts; ++i) {
    swizzle_scales(to + flashinfer_group_row(m_indptr, i) * row_bytes,
                   scales + m_indptr[i] * groups, m_indptr[i + 1] - m_indptr[i], groups,
                   ScaleSwizzle::k128x4);
  }
}

}  // namespace subbyte
