#include "foreign_layouts/fused_int4.h"

#include <cmath>
#include <string>

#include "foreign_layouts/int4pack.h"

namespace subbyte {
namespace {

constexpr int kMaxXpuZero = 15;

Status check_groups(const MatrixView& matrix) {
  if (matrix.group_size() % 32 == 0 && matrix.cols % matrix.group_size() == 0) return {};
  return Error{"layout.shape",
               "int4 products need groups of a multiple of 32 that fill the inputs, "
               "found groups of " +
                   std::to_string(matrix.group_size()) + " for " + std::to_string(matrix.cols) +
                   " inputs"};
}

Status check_xpu_format(const MatrixView& matrix, Format type) {
  const auto is_float = [](Format format) {
    return format == Format::kF16 || format == Format::kBF16 || format == Format::kF32;
  };
  const WeightFormat& format = matrix.format;
  const bool known = format.element == Format::kU4 && format.zero == Zero::kU8 &&
                     is_float(format.scale) && is_float(type) && matrix.tensor_scale == 1;
  if (known) return {};
  return Error{"layout.format",
               "int4 products for XPU are of u4 with zero points and scales in f16, bf16 or f32, "
               "not " +
                   to_string(format)};
}

/// Scale `index` of a matrix in another type. False when that type does not hold it.
bool convert_scale(std::byte* to, const MatrixView& matrix, int64_t index, const FormatInfo& type) {
  const FormatInfo& from = info(matrix.format.scale);
  const auto width = static_cast<std::size_t>(from.bits / 8);
  uint32_t code = 0;
  __builtin_memcpy(&code, matrix.scales.data() + index * width, width);
  const uint32_t rounded = type.encode(from.decode(code), Rounding::kNearestEven);
  __builtin_memcpy(to, &rounded, static_cast<std::size_t>(type.bits / 8));
  return std::isfinite(type.decode(rounded));
}

}  // namespace

Result<FusedXpuInt4> transform_xpu(const MatrixView& matrix, Format type) {
  SUBBYTE_CHECK(check_xpu_format(matrix, type));
  SUBBYTE_CHECK(check_groups(matrix));
  const int width = info(type).bits / 8;
  const int64_t groups = matrix.groups();
  FusedXpuInt4 fused;
  fused.weight.assign(matrix.codes.begin(), matrix.codes.end());
  fused.zeros.resize(matrix.rows * groups);
  fused.scales.resize(fused.zeros.size() * width);
  std::vector<std::byte> scales(fused.scales.size());
  for (int64_t i = 0; i < matrix.rows * groups; ++i) {
    const auto where = [&] {
      return " of output " + std::to_string(i / groups) + ", group " + std::to_string(i % groups);
    };
    const int zero = std::to_integer<int>(matrix.zeros[i]);
    if (zero > kMaxXpuZero) {
      return Error{"layout.zero_range",
                   "zero point " + std::to_string(zero) + where() + ": expected 0 to 15"};
    }
    if (!convert_scale(scales.data() + i * width, matrix, i, info(type))) {
      return Error{"layout.scale_range", "the scale" + where() + " is beyond what " +
                                             std::string(info(type).name) + " holds"};
    }
  }
  pack_int4_xpu_groups(fused.scales.data(), scales.data(), matrix.rows, groups, width);
  pack_int4_xpu_groups(fused.zeros.data(), matrix.zeros.data(), matrix.rows, groups, 1);
  return fused;
}

}  // namespace subbyte
