#include "kernels/cpu/cpu_kernels.h"

#include <algorithm>

#include "base/cpu_features.h"

namespace subbyte::cpu {

#define SUBBYTE_ISA(isa)         \
  namespace isa {                \
  extern const Kernels kKernels; \
  }
#include "kernels/cpu/isas.def"
#undef SUBBYTE_ISA

namespace {

const uint8_t* bytes_of(std::span<const std::byte> span) {
  return reinterpret_cast<const uint8_t*>(span.data());
}

std::string names() {
  std::string list;
  for (const Kernels* kernels : all_kernels()) {
    if (!list.empty()) list += ", ";
    list += kernels->name;
  }
  return list;
}

bool runs_here(const Kernels& kernels) {
  return (kernels.required_features & ~cpu_features()) == 0;
}

/// Any method gives a row of activations the same bits whatever the others are, so that the mode
/// need only keep to one. `few` is the best for a single row, but costs seven times as much as
/// tiles for many; tiles of exact weights cost one row up to twice as much, of others four times.
const Method& invariant_method(const MatmulKernel& kernel, bool small_groups, Precision precision) {
  if (!kernel.many_for_one || small_groups) return kernel.few;
  return precision == Precision::kBF16 ? kernel.bf16 : kernel.many;
}

const Method& exact_several(const MatmulKernel& kernel, int64_t m) {
  const bool wide = kernel.several_wide.multiply != nullptr &&
                    m > rows_per_pack(kernel.several.order) &&
                    m <= rows_per_pack(kernel.several_wide.order);
  return wide ? kernel.several_wide : kernel.several;
}

}  // namespace

Weights weights_of(const MatrixView& matrix) {
  return {.codes = bytes_of(matrix.codes),
          .scales = bytes_of(matrix.scales),
          .zeros = bytes_of(matrix.zeros),
          .cols = matrix.cols,
          .row_bytes = matrix.row_bytes(),
          .groups = matrix.groups(),
          .group_size = matrix.group_size(),
          .tensor_scale = static_cast<float>(matrix.tensor_scale)};
}

const MatmulKernel* find_matmul(const Kernels& kernels, const WeightFormat& format) {
  if (!is_dense(format) && (format.group_size < 0 || format.group_size % 8 != 0)) return nullptr;
  for (const MatmulKernel& kernel : kernels.matmuls) {
    if (kernel.element == format.element && kernel.scale == format.scale &&
        kernel.zero == format.zero) {
      return &kernel;
    }
  }
  return nullptr;
}

const Method& choose_method(const Kernels& kernels, const MatmulKernel& kernel,
                            const Weights& weights, int64_t m, Precision precision,
                            bool batch_invariant) {
  if (precision == Precision::kInt8 && kernel.int8.multiply != nullptr) {
    return m <= kernel.int8_rows || batch_invariant ? kernel.int8 : kernel.int8_many;
  }
  const bool cuts_blocks =
      weights.group_size < weights.cols && weights.group_size % (8 * kernels.lanes) != 0;
  const bool small_groups = cuts_blocks && kernel.many_small_groups.multiply != nullptr;
  const int64_t few_rows = small_groups ? kernel.few_rows_small_groups : kernel.few_rows;
  if (batch_invariant) return invariant_method(kernel, small_groups, precision);
  const bool rounds = precision == Precision::kBF16 && kernel.bf16.multiply != nullptr;
  if (cuts_blocks && m > kernel.few_rows_of_groups && weights.group_size % 32 == 0) {
    const Method& method = rounds ? kernel.several_small_groups_bf16 : kernel.several_small_groups;
    if (method.multiply != nullptr && m <= rows_per_pack(method.order)) return method;
  }
  if (m <= (rounds ? std::min(few_rows, kernel.few_rows_bf16) : few_rows)) return kernel.few;
  if (rounds && m <= kernel.several_rows_bf16 && !cuts_blocks) return kernel.several_bf16;
  if (m <= kernel.several_rows && !cuts_blocks) return exact_several(kernel, m);
  if (rounds && (small_groups || m > kernel.many_rows)) return kernel.bf16;
  return small_groups ? kernel.many_small_groups : kernel.many;
}

std::span<const Kernels* const> all_kernels() {
  static constexpr const Kernels* kAll[] = {
#define SUBBYTE_ISA(isa) &isa::kKernels,
#include "kernels/cpu/isas.def"
#undef SUBBYTE_ISA
  };
  return kAll;
}

Result<const Kernels*> select_kernels(std::string_view forced) {
  for (const Kernels* kernels : all_kernels()) {
    if (forced.empty() ? runs_here(*kernels) : kernels->name == forced) {
      if (runs_here(*kernels)) return kernels;
      return Error{"isa.unsupported",
                   "instruction set " + std::string(forced) + ": this processor does not have it"};
    }
  }
  return Error{"isa.unknown",
               "instruction set " + std::string(forced) + ": expected one of " + names()};
}

}  // namespace subbyte::cpu
