#pragma once
// Products through one variant of one instruction set, in memory whose neighbours are watched.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/cpu/cpu_kernels.h"
#include "support/guarded_bytes.h"
#include "support/random_matrix.h"

namespace subbyte::testing {

inline std::vector<const cpu::Kernels*> kernels_of_this_machine() {
  std::vector<const cpu::Kernels*> list;
  for (const cpu::Kernels* kernels : cpu::all_kernels()) {
    if ((kernels->required_features & ~cpu_features()) == 0) list.push_back(kernels);
  }
  return list;
}

/// A format that a kernel multiplies, by the size of groups; with scales of two levels as in ggml.
inline WeightFormat format_of(const cpu::MatmulKernel& kernel, int64_t group_size) {
  WeightFormat format = {kernel.element, kernel.scale, kernel.zero, group_size};
  if (!has_two_levels(kernel.scale)) return format;
  if (is_offset(kernel.zero)) {
    const bool is_u2 = kernel.element == Format::kU2;
    format.scale = is_u2 ? Format::kU4 : Format::kU6;
    format.zero = is_u2 ? Zero::kOffsetU4 : Zero::kOffsetU6;
  } else if (kernel.element != Format::kI6) {
    format.scale = Format::kI6;
  }
  return format;
}

/// Each variant that a kernel has for such weights, once: what choose_variant() can pick, and where
/// a group is longer than the row, what it can pick for longer rows, too.
inline std::vector<cpu::KernelVariant> variants_of(const cpu::Kernels& kernels,
                                                   const MatrixView& weights) {
  const cpu::MatmulKernel& kernel = *cpu::find_matmul(kernels, weights.format);
  const cpu::Weights row = cpu::weights_of(weights);
  cpu::Weights longer = row;
  if (weights.format.group_size != 0) longer.cols = std::numeric_limits<int64_t>::max();
  std::vector<cpu::KernelVariant> variants;
  const auto add = [&](const cpu::KernelVariant& entry) {
    const cpu::KernelVariant& variant = entry.of(row);
    for (const cpu::KernelVariant& other : variants) {
      if (other.multiply == variant.multiply) return;
    }
    if (variant.multiply != nullptr) variants.push_back(variant);
  };
  for (const cpu::GroupKind groups :
       {cpu::group_kind(kernels, row), cpu::group_kind(kernels, longer)}) {
    for (const auto precision :
         {cpu::Precision::kF32, cpu::Precision::kBF16, cpu::Precision::kInt8}) {
      const cpu::VariantList& list = kernel.list(groups, precision);
      for (const cpu::VariantList::Entry& entry : list.entries) add(entry.variant);
      add(list.invariant);
    }
  }
  return variants;
}

constexpr float kCanary = 12345.5F;
constexpr int64_t kCanaryGap = 3;  // canaries between the rows of y

/// The results between the canaries of y, and a failure where one is gone.
inline std::vector<float> check_canaries(const std::vector<float>& y, int64_t stride, int64_t rows,
                                         int64_t m) {
  std::vector<float> product;
  for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
    const bool inside =
        i >= kCanaryGap && (i - kCanaryGap) % stride < rows && (i - kCanaryGap) / stride < m;
    if (inside) {
      product.push_back(y[i]);
    } else {
      EXPECT_EQ(y[i], kCanary) << "written outside the result, at " << i;
    }
  }
  return product;
}

/// y = W x, [m][rows], the rows of weights divided at `splits`. Every buffer that the kernel reads
/// or uses ends where memory faults; y starts as NaN and has canaries around its rows.
inline std::vector<float> multiply(const cpu::Kernels& kernels, const cpu::KernelVariant& variant,
                                   const MatrixView& weights, const std::vector<float>& x,
                                   int64_t m, const std::vector<int64_t>& splits = {},
                                   const float* bias = nullptr) {
  const cpu::PackedLayout& layout = *variant.layout;
  const int64_t per_pack = layout.rows_per_pack;
  const int64_t packs = (m + per_pack - 1) / per_pack;
  const int64_t packed = layout.bytes(weights.cols);
  GuardedBytes activations(packs * packed);
  auto* data = reinterpret_cast<uint8_t*>(activations.data());
  for (int64_t i = 0; i < packs; ++i) {
    const int64_t first = i * per_pack;
    layout.pack(data + i * packed, x.data() + first * weights.cols, std::min(per_pack, m - first),
                nullptr, weights.cols);
  }
  GuardedBytes scratch((kernels.scratch_bytes(weights.cols) + 63) / 64 * 64);
  const int64_t stride = weights.rows + kCanaryGap;
  std::vector<float> y((m + 1) * stride, kCanary);
  float* results = y.data() + kCanaryGap;
  for (int64_t i = 0; i < m; ++i) {
    std::fill_n(results + i * stride, weights.rows, std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<int64_t> bounds = {0};
  bounds.insert(bounds.end(), splits.begin(), splits.end());
  bounds.push_back(weights.rows);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    variant.multiply({.weights = cpu::weights_of(weights),
                      .x = {.data = data, .rows = m, .stride = packed},
                      .y = results,
                      .y_stride = stride,
                      .bias = bias,
                      .row_begin = bounds[i],
                      .row_end = bounds[i + 1],
                      .scratch = reinterpret_cast<uint8_t*>(scratch.data())});
  }
  return check_canaries(y, stride, weights.rows, m);
}

}  // namespace subbyte::testing
