#pragma once
// Products through one method of one instruction set, in memory whose neighbours are watched.

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

/// A method under its name in MatmulKernel.
struct NamedMethod {
  std::string_view name;
  cpu::Method method;
  bool two_terms = false;      // each weight is two bf16
  bool exact_weights = false;  // pairs are codes, or weights that bf16 holds
};

/// Formats whose codes, or whose weights if they are dense, bf16 holds.
inline bool has_exact_pairs(Format element) {
  switch (element) {
    case Format::kU2:
    case Format::kU3:
    case Format::kU4:
    case Format::kE2M1:
    case Format::kNFL2:
    case Format::kBF16:
      return true;
    default:
      return false;
  }
}

/// Those that a kernel has for groups like these: what choose_method() can pick.
inline std::vector<NamedMethod> methods_of(const cpu::Kernels& kernels,
                                           const WeightFormat& format) {
  const cpu::MatmulKernel& kernel = *cpu::find_matmul(kernels, format);
  const bool small_groups = format.group_size % (8 * kernels.lanes) != 0;
  const cpu::Method several = small_groups ? cpu::Method{} : kernel.several;
  const cpu::Method several_wide = small_groups ? cpu::Method{} : kernel.several_wide;
  const cpu::Method several_bf16 = small_groups ? cpu::Method{} : kernel.several_bf16;
  const bool thirties = small_groups && format.group_size > 0 && format.group_size % 32 == 0;
  const cpu::Method groups = thirties ? kernel.several_small_groups : cpu::Method{};
  const cpu::Method groups_bf16 = thirties ? kernel.several_small_groups_bf16 : cpu::Method{};
  const bool other = small_groups && kernel.many_small_groups.multiply != nullptr;
  const cpu::Method& many = other ? kernel.many_small_groups : kernel.many;
  const bool two_terms =
      many.order == cpu::ActivationOrder::kSplitTiles && (other || !kernel.many_for_one);
  std::vector<NamedMethod> methods;
  for (const NamedMethod& named :
       {NamedMethod{"few", kernel.few}, NamedMethod{"many", many, two_terms},
        NamedMethod{"several", several}, NamedMethod{"several_wide", several_wide},
        NamedMethod{"several_bf16", several_bf16}, NamedMethod{"groups", groups},
        NamedMethod{"groups_bf16", groups_bf16, false, has_exact_pairs(kernel.element)},
        NamedMethod{"bf16", kernel.bf16, false, has_exact_pairs(kernel.element)},
        NamedMethod{"int8", kernel.int8}, NamedMethod{"int8_many", kernel.int8_many}}) {
    if (named.method.multiply == nullptr) continue;
    if (named.name == "int8_many" && named.method.multiply == kernel.bf16.multiply) continue;
    methods.push_back(named);
  }
  return methods;
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
inline std::vector<float> multiply(const cpu::Kernels& kernels, const cpu::Method& method,
                                   const MatrixView& weights, const std::vector<float>& x,
                                   int64_t m, const std::vector<int64_t>& splits = {},
                                   const float* bias = nullptr) {
  const int64_t per_pack = cpu::rows_per_pack(method.order);
  const int64_t packs = (m + per_pack - 1) / per_pack;
  const int64_t packed = kernels.packed_bytes(weights.cols, method.order);
  GuardedBytes activations(packs * packed);
  auto* data = reinterpret_cast<uint8_t*>(activations.data());
  for (int64_t i = 0; i < packs; ++i) {
    const int64_t first = i * per_pack;
    kernels.pack(data + i * packed, x.data() + first * weights.cols, std::min(per_pack, m - first),
                 nullptr, weights.cols, method.order);
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
    method.multiply({.weights = cpu::weights_of(weights),
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
