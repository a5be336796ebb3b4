#include "kernels/gpu/served_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/float_rows.h"
#include "matrix/recast.h"
#include "matrix/zero_points.h"

namespace subbyte::gpu {
namespace {

constexpr WeightFormat kDenseF16 = {Format::kF16, Format::kNone, Zero::kNone, 0};
constexpr int64_t kRowGrain = 16;
constexpr float kMostOfF16 = 65504;
// Numbers of f16 are 2^-24 apart at the least: 2^-16 of the largest weight then.
constexpr float kLeastOfF16 = 0x1p-9f;

bool is_dense_float(const WeightFormat& format) {
  return is_dense(format) && (format.element == Format::kF32 || format.element == Format::kF16 ||
                              format.element == Format::kBF16);
}

bool is_packable(const WeightFormat& format, int64_t rows, int64_t cols) {
  return packed_bytes(format, rows, cols, false).ok();
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
  const bool is_f16 = largest == 0 || (largest <= kMostOfF16 && largest >= kLeastOfF16);
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

}  // namespace

WeightFormat served_format(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (is_dense_float(format)) return format;
  if (is_dense(format)) return kDenseF16;
  if (is_packable(format, rows, cols)) return format;
  if (const WeightFormat wide = with_whole_bytes(format); wide != format) {
    return served_format(wide, rows, cols);
  }
  const int64_t group = format.group_size == 0 ? cols : format.group_size;
  for (const int64_t smaller : {64, 32, 16}) {
    WeightFormat regrouped = format;
    regrouped.group_size = smaller;
    const bool divides = group > smaller && group % smaller == 0 && cols % group == 0;
    if (divides && is_packable(regrouped, rows, cols)) return regrouped;
  }
  return kDenseF16;
}

Result<Matrix> serve(Matrix matrix, Executor& executor) {
  const MatrixView& view = matrix.view;
  const WeightFormat served = served_format(view.format, view.rows, view.cols);
  if (served == view.format) return matrix;
  if (is_dense(served)) return as_dense(matrix, executor);
  if (served.element != view.format.element) {
    return serve(with_whole_bytes(std::move(matrix)), executor);
  }
  return with_group_size(std::move(matrix), served.group_size);
}

}  // namespace subbyte::gpu
