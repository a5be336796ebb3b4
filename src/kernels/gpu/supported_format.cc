#include "kernels/gpu/supported_format.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/float_rows.h"
#include "matrix/group_numbers.h"
#include "matrix/recast.h"
#include "matrix/zero_points.h"

namespace subbyte::gpu {
namespace {

constexpr WeightFormat kDenseF16 = {Format::kF16, Format::kNone, Zero::kNone, 0};
constexpr int64_t kRowGrain = 16;
constexpr float kMaxOfF16 = 65504;
// Numbers of f16 are 2^-24 apart at the least: 2^-16 of the largest weight then.
constexpr float kLeastOfF16 = 0x1p-9f;
constexpr float kLeastExact = 0x1p-28f;  // of the largest weight

bool is_dense_float(const WeightFormat& format) {
  return is_dense(format) && (format.element == Format::kF32 || format.element == Format::kF16 ||
                              format.element == Format::kBF16);
}

/// Floats are dense outside mixtures of experts.
bool is_packable(const WeightFormat& format, int64_t rows, int64_t cols, bool act_order) {
  return !is_dense_float({.element = format.element}) &&
         packed_bytes(format, rows, cols, act_order).ok();
}

template <class Visit>
void for_each_row(const MatrixView& view, Executor& executor, Visit visit) {
  const FloatRows rows(view);
  executor.parallel_for(view.rows, kRowGrain, [&](int64_t begin, int64_t end, int task) {
    std::vector<float> values(view.cols);
    for (int64_t row = begin; row < end; ++row) {
      rows.row(row, values.data());
      visit(row, std::span<const float>(values), task);
    }
  });
}

float largest_weight(const MatrixView& view, Executor& executor) {
  std::vector<float> largest(executor.size(), 0.0f);
  for_each_row(view, executor, [&](int64_t, std::span<const float> values, int task) {
    for (const float value : values) largest[task] = std::max(largest[task], std::fabs(value));
  });
  return std::ranges::max(largest);
}

Matrix as_dense(const Matrix& matrix, Executor& executor) {
  const MatrixView& view = matrix.view;
  const float largest = largest_weight(view, executor);
  const bool is_f16 = fits_f16(largest);
  const auto size = static_cast<std::size_t>(view.rows * view.cols) * sizeof(uint16_t);
  const auto bytes = allocate_bytes(size);
  for_each_row(view, executor, [&](int64_t row, std::span<const float> values, int) {
    std::byte* to = bytes.get() + row * view.cols * 2;
    for (const float value : values) {
      const uint16_t bits = is_f16 ? to_float16(value).bits : to_bfloat16(value).bits;
      std::memcpy(to, &bits, 2);
      to += 2;
    }
  });
  Matrix dense;
  dense.view.format = kDenseF16;
  if (!is_f16) dense.view.format.element = Format::kBF16;
  dense.view.rows = view.rows;
  dense.view.cols = view.cols;
  dense.view.codes = {bytes.get(), size};
  dense.owners = {bytes};
  return dense;
}

WeightFormat with_one_level(WeightFormat format) {
  if (has_two_levels(format.scale)) format.scale = Format::kF16;
  if (has_two_levels(format.zero)) format.zero = Zero::kF16;
  return format;
}

/// Products of two levels, which floats hold, rounded to f16.
Result<Matrix> with_one_level(Matrix matrix, Executor& executor) {
  const MatrixView from = matrix.view;
  const auto owners = matrix.owners;  // keep the bytes of `from`
  const GroupNumbers numbers(from);
  std::atomic<bool> is_beyond = false;
  const auto round = [&](auto number) {
    const auto size = static_cast<std::size_t>(from.rows * from.groups()) * sizeof(uint16_t);
    const auto bytes = allocate_bytes(size);
    executor.parallel_for(from.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
      std::byte* to = bytes.get() + begin * from.groups() * 2;
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t g = 0; g < from.groups(); ++g, to += 2) {
          const Float16 half = to_float16(static_cast<float>(number(row, g)));
          if ((half.bits & 0x7C00) == 0x7C00) is_beyond = true;
          std::memcpy(to, &half, 2);
        }
      }
    });
    matrix.owners.push_back(bytes);
    return std::span<const std::byte>(bytes.get(), size);
  };
  if (has_two_levels(from.format.scale)) {
    matrix.view.scales = round([&](int64_t row, int64_t g) { return numbers.scale(row, g); });
  }
  if (has_two_levels(from.format.zero)) {
    matrix.view.zeros = round([&](int64_t row, int64_t g) { return numbers.offset(row, g); });
  }
  matrix.view.format = with_one_level(from.format);
  if (!is_beyond) return matrix;
  return Error{"recast.scale", "a matrix of " + to_string(from.format) +
                                   ": a scale or an offset is beyond f16, in which GPUs hold them"};
}

/// Numbers of 16 bits for all weights, which `convert` writes row by row: (row, to).
template <class Convert>
void replace_codes(Matrix& matrix, Format element, Executor& executor, Convert convert) {
  MatrixView& view = matrix.view;
  const auto size = static_cast<std::size_t>(view.rows * view.cols) * sizeof(uint16_t);
  const auto bytes = allocate_bytes(size);
  executor.parallel_for(view.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) convert(row, bytes.get() + row * view.cols * 2);
  });
  view.format.element = element;
  view.codes = {bytes.get(), size};
  matrix.owners = {bytes};
}

/// The power of two by which weights are multiplied so that the largest is 2^14 or more and less
/// than 2^15.
float factor_to_top_of_f16(float largest) {
  return largest == 0 ? 1 : std::ldexp(1.0f, std::clamp(14 - std::ilogb(largest), -120, 120));
}

/// The bits of the largest magnitude in rows of bf16.
int16_t largest_bf16(const MatrixView& view, Executor& executor) {
  std::vector<int16_t> largest(executor.size(), 0);
  executor.parallel_for(view.rows, kRowGrain, [&](int64_t begin, int64_t end, int task) {
    const std::byte* const from = view.codes.data() + begin * view.row_bytes();
    int16_t of_task = largest[task];
    for (int64_t i = 0; i < (end - begin) * view.cols; ++i) {
      int16_t bits;
      std::memcpy(&bits, from + 2 * i, 2);
      of_task = std::max<int16_t>(of_task, bits & 0x7FFF);
    }
    largest[task] = of_task;
  });
  return std::ranges::max(largest);
}

/// bf16 times a power of two as f16, of numbers that are less than 2^15 then. Their 8 bits fit into
/// the 11 of f16, so that only multiples of less than 2^-24 are rounded. No branches: it is as fast
/// as memory.
void bf16_to_f16(const std::byte* from, int64_t count, float factor, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    const float value = to_float(BFloat16{static_cast<uint16_t>(bits & 0x7FFF)}) * factor;
    const auto normal = std::bit_cast<uint32_t>(value) - 0x38000000u;
    const auto subnormal = std::bit_cast<uint32_t>(value + 0.5f) - 0x3F000000u;
    const uint32_t magnitude = value < 0x1p-14f ? subnormal : normal >> 13;
    const auto number = static_cast<uint16_t>(magnitude | (bits & 0x8000));
    std::memcpy(to + 2 * i, &number, 2);
  }
}

Error no_numbers_of(const MatrixView& view, Number number, const std::string& what) {
  return {"linear.unsupported", "experts of " + to_string(view.format) + ": " + what + " as " +
                                    (number == Number::kF16 ? "f16" : "bf16") +
                                    ", the type of the activations; --device cpu runs these"};
}

Status bf16_as_f16(Matrix& matrix, Executor& executor) {
  const MatrixView from = matrix.view;
  const auto owners = matrix.owners;  // keep the bytes of `from`
  const float largest =
      to_float(BFloat16{static_cast<uint16_t>(largest_bf16(matrix.view, executor))});
  if (!std::isfinite(largest)) return no_numbers_of(from, Number::kF16, "not all are numbers");
  const float factor = factor_to_top_of_f16(largest);
  replace_codes(matrix, Format::kF16, executor, [&](int64_t row, std::byte* to) {
    bf16_to_f16(from.codes.data() + row * from.row_bytes(), from.cols, factor, to);
  });
  matrix.view.tensor_scale = 1 / factor;
  return {};
}

/// Any floats in any type, where that is exact.
Status as_exact_numbers(Matrix& matrix, Number number, Executor& executor) {
  const MatrixView from = matrix.view;
  const auto owners = matrix.owners;
  const bool is_f16 = number == Number::kF16;
  const float largest = largest_weight(from, executor);
  const float factor = is_f16 ? factor_to_top_of_f16(largest) : 1;
  const float least = largest * factor * kLeastExact;
  const FloatRows rows(from);
  std::atomic<int64_t> rounded = 0;
  const auto convert = [&](int64_t row, std::byte* to) {
    std::vector<float> values(from.cols);
    rows.row(row, values.data());
    int64_t inexact = 0;
    for (const float value : values) {
      const float scaled = value * factor;
      const uint16_t bits = is_f16 ? to_float16(scaled).bits : to_bfloat16(scaled).bits;
      const float held = is_f16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
      const bool is_exact = held == scaled || std::fabs(scaled) < least;
      inexact += is_exact && std::isfinite(scaled) ? 0 : 1;
      std::memcpy(to, &bits, 2);
      to += 2;
    }
    rounded += inexact;
  };
  replace_codes(matrix, is_f16 ? Format::kF16 : Format::kBF16, executor, convert);
  if (rounded > 0) {
    return no_numbers_of(from, number,
                         std::to_string(rounded) + " of " + std::to_string(from.rows * from.cols) +
                             " weights of a matrix would be rounded");
  }
  matrix.view.tensor_scale = 1 / factor;
  return {};
}

}  // namespace

bool fits_f16(float largest) {
  return largest == 0 || (largest <= kMaxOfF16 && largest >= kLeastOfF16);
}

WeightFormat packed_floats(Number number) {
  return {number == Number::kF16 ? Format::kF16 : Format::kBF16, Format::kF16, Zero::kNone, 0};
}

Result<Matrix> as_packed_floats(Matrix matrix, Number number, Executor& executor) {
  const WeightFormat format = packed_floats(number);
  MatrixView& view = matrix.view;
  // Of the numbers alone, as the factor stays that of the matrix.
  const double factor = std::exchange(view.tensor_scale, 1);
  if (view.format.element == Format::kBF16 && number == Number::kF16) {
    SUBBYTE_CHECK(bf16_as_f16(matrix, executor));
  } else if (view.format.element != format.element) {
    SUBBYTE_CHECK(as_exact_numbers(matrix, number, executor));
  }
  view.tensor_scale *= factor;
  constexpr uint16_t kOne = 0x3C00;  // of f16
  const auto ones = std::make_shared<std::vector<uint16_t>>(view.rows, kOne);
  view.format = format;
  view.scales = std::as_bytes(std::span(*ones));
  matrix.owners.push_back(ones);
  return matrix;
}

WeightFormat supported_format(const WeightFormat& format, int64_t rows, int64_t cols,
                              bool act_order) {
  if (is_dense_float(format)) return format;
  if (is_dense(format)) return kDenseF16;
  if (is_packable(format, rows, cols, act_order)) return format;
  if (format.rotation != 0) return kDenseF16;
  if (has_two_levels(format)) {
    return supported_format(with_one_level(format), rows, cols, act_order);
  }
  const int64_t group = format.group_size == 0 ? cols : format.group_size;
  for (const int64_t smaller : {64, 32, 16}) {
    WeightFormat regrouped = format;
    regrouped.group_size = smaller;
    const bool divides = group > smaller && group % smaller == 0;
    if (divides && is_packable(regrouped, rows, cols, act_order)) return regrouped;
  }
  if (const WeightFormat wide = with_whole_bytes(format); wide != format) {
    return supported_format(wide, rows, cols, act_order);
  }
  return kDenseF16;
}

WeightFormat supported_format(const MatrixView& matrix) {
  return supported_format(matrix.format, matrix.rows, matrix.cols, !matrix.input_order.empty());
}

Result<Matrix> support(Matrix matrix, Executor& executor) {
  const MatrixView& view = matrix.view;
  const WeightFormat served = supported_format(view);
  if (served == view.format) return matrix;
  if (is_dense(served)) return as_dense(matrix, executor);
  if (has_two_levels(view.format)) {
    SUBBYTE_TRY(matrix, with_one_level(std::move(matrix), executor));
    return support(std::move(matrix), executor);
  }
  if (served.element != view.format.element) {
    return support(with_whole_bytes(std::move(matrix)), executor);
  }
  return with_group_size(std::move(matrix), served.group_size);
}

}  // namespace subbyte::gpu
