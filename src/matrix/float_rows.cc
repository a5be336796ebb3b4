#include "matrix/float_rows.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "matrix/group_numbers.h"

namespace subbyte {
namespace {

constexpr int kTableBits = 8;

template <typename T>
T load(const std::byte* row, int64_t i) {
  T value;
  std::memcpy(&value, row + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

FloatRows::FloatRows(const MatrixView& matrix)
    : matrix_(matrix), tensor_scale_(static_cast<float>(matrix.tensor_scale)) {
  const FormatInfo& element = info(matrix.format.element);
  if (is_dense(matrix.format) || element.bits > kTableBits) return;
  if (matrix.format.rotation != 0) {
    rotated_.emplace(matrix);
    return;
  }
  values_.resize(static_cast<std::size_t>(matrix.num_codes()));
  for (uint32_t code = 0; code < values_.size(); ++code) {
    values_[code] = static_cast<float>(matrix.value_of(code));
  }
}

void FloatRows::row(int64_t row, float* out) const {
  if (is_dense(matrix_.format)) return dense_row(row, out);
  if (rotated_) return rotated_row(row, out);
  const int64_t groups = matrix_.groups();
  const int64_t size = matrix_.group_size();
  const GroupNumbers numbers(matrix_);
  for (int64_t g = 0; g < groups; ++g) {
    const auto zero = static_cast<float>(numbers.zero(row, g));
    const auto scale = static_cast<float>(numbers.scale(row, g));
    const auto offset = static_cast<float>(numbers.offset(row, g));
    for (int64_t k = g * size; k < std::min((g + 1) * size, matrix_.cols); ++k) {
      const int64_t input = matrix_.input_order.empty() ? k : matrix_.input_order[k];
      out[input] = ((element_at(row, k) - zero) * scale + offset) * tensor_scale_;
    }
  }
}

/// In double precision: the sums of a run are of many weights.
void FloatRows::rotated_row(int64_t row, float* out) const {
  std::vector<double> weights(static_cast<std::size_t>(matrix_.cols));
  rotated_->row(row, weights.data());
  std::ranges::transform(weights, out, [](double weight) { return static_cast<float>(weight); });
}

template <typename T>
void FloatRows::convert_row(const std::byte* codes, float* out) const {
  const int64_t cols = matrix_.cols;
  if (matrix_.input_order.empty() && tensor_scale_ == 1) {
    for (int64_t k = 0; k < cols; ++k) out[k] = to_float(load<T>(codes, k));
    return;
  }
  for (int64_t k = 0; k < cols; ++k) {
    const int64_t input = matrix_.input_order.empty() ? k : matrix_.input_order[k];
    out[input] = to_float(load<T>(codes, k)) * tensor_scale_;
  }
}

void FloatRows::dense_row(int64_t row, float* out) const {
  const std::byte* codes = matrix_.codes.data() + row * matrix_.row_bytes();
  switch (matrix_.format.element) {
    case Format::kF16:
      return convert_row<Float16>(codes, out);
    case Format::kBF16:
      return convert_row<BFloat16>(codes, out);
    default:
      return convert_row<float>(codes, out);
  }
}

float FloatRows::element_at(int64_t row, int64_t col) const {
  const uint32_t code = code_at(matrix_, row, col);
  if (!values_.empty()) return values_[code];
  return static_cast<float>(info(matrix_.format.element).decode(code));
}

}  // namespace subbyte
