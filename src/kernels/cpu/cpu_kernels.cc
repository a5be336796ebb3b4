#include "kernels/cpu/cpu_kernels.h"

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
bool belongs_here(const Kernels& kernels) {
  return runs_here(kernels) && (kernels.wanted_features & ~cpu_features()) == 0;
}

/// nullptr: not compiled in.
const Kernels* kernels_of_avx2() {
#ifdef SUBBYTE_HAS_AVX2
  return &avx2::kKernels;
#else
  return nullptr;
#endif
}

/// Says whether a few rows of 8 bits are multiplied faster by the vectors of AVX2, which keep the
/// sum of 32 inputs in a lane, than by dot products of three bytes for each activation.
bool is_left_to_avx2(const Kernels& kernels, const MatmulKernel& kernel, const Weights& weights) {
  return (kernels.required_features & kCpuAvx512Vnni) != 0 && kernel.element == Format::kU4 &&
         is_offset(kernel.zero) && weights.group_size % 32 == 0;
}

}  // namespace

Weights weights_of(const MatrixView& matrix) {
  return {.codes = bytes_of(matrix.codes),
          .scales = bytes_of(matrix.scales),
          .zeros = bytes_of(matrix.zeros),
          .scale = matrix.format.scale,
          .zero = matrix.format.zero,
          .offset = offset_format(matrix.format.zero),
          .cols = matrix.cols,
          .row_bytes = matrix.row_bytes(),
          .scale_row_bytes = matrix.scale_row_bytes(),
          .zero_row_bytes = matrix.zero_row_bytes(),
          .groups = matrix.groups(),
          .group_size = matrix.group_size(),
          .tensor_scale = static_cast<float>(matrix.tensor_scale),
          .codebook = matrix.codebook.empty() ? nullptr : matrix.codebook.data()};
}

const MatmulKernel* find_matmul(const Kernels& kernels, const WeightFormat& format) {
  if (!is_dense(format)) {
    const int64_t unit = info(format.element).vector_size > 1 ? 32 : 8;
    if (format.group_size < 0 || format.group_size % unit != 0) return nullptr;
    const bool is_part = format.group_size != 0 && kSuperblock % format.group_size == 0;
    if (has_two_levels(format) && !is_part) return nullptr;
  }
  const Format scale = has_two_levels(format.scale) ? Format::kI8 : format.scale;
  const Zero zero = is_offset(format.zero) ? Zero::kF32 : format.zero;
  for (const MatmulKernel& kernel : kernels.matmuls) {
    if (kernel.element == format.element && kernel.scale == scale && kernel.zero == zero) {
      return &kernel;
    }
  }
  return nullptr;
}

GroupKind group_kind(const Kernels& kernels, const Weights& weights) {
  if (weights.group_size >= weights.cols || weights.group_size % (8 * kernels.lanes) == 0) {
    return GroupKind::kWhole;
  }
  return weights.group_size % 32 == 0 ? GroupKind::kThirtyTwos : GroupKind::kOther;
}

const KernelVariant& choose_variant(const Kernels& kernels, const MatmulKernel& kernel,
                                    const Weights& weights, int64_t m, Precision precision,
                                    bool batch_invariant) {
  const VariantList& list = kernel.list(group_kind(kernels, weights), precision);
  if (batch_invariant) return list.invariant.of(weights);
  const VariantList::Entry* entry = list.entries;
  while (entry->max_m < m) ++entry;
  const Kernels* const avx2 = kernels_of_avx2();
  const bool is_of_rows = entry == list.entries && precision == Precision::kInt8;
  if (is_of_rows && avx2 != nullptr && is_left_to_avx2(kernels, kernel, weights)) {
    const auto same = &kernel - kernels.matmuls.data();  // the tables have one order
    const VariantList& rows = avx2->matmuls[same].list(group_kind(*avx2, weights), precision);
    return rows.entries[0].variant.of(weights);
  }
  return entry->variant.of(weights);
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
    if (forced.empty() ? belongs_here(*kernels) : kernels->name == forced) {
      if (runs_here(*kernels)) return kernels;
      return Error{"isa.unsupported",
                   "instruction set " + std::string(forced) + ": this processor does not have it"};
    }
  }
  return Error{"isa.unknown",
               "instruction set " + std::string(forced) + ": expected one of " + names()};
}

}  // namespace subbyte::cpu
