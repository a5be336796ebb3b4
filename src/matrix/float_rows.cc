#include "matrix/float_rows.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"

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
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t index = row * groups + g;
    const float zero = zero_at(index);
    const float scale = scale_at(index);
    const float offset = offset_at(index);
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

uint32_t FloatRows::zero_code(int64_t index) const {
  uint32_t zero = 0;
  const int width = zero_bytes(matrix_.format.zero);
  if (width > 0) std::memcpy(&zero, matrix_.zeros.data() + index * width, width);
  return zero;
}

float FloatRows::zero_at(int64_t index) const {
  return is_offset(matrix_.format.zero) ? 0 : static_cast<float>(zero_code(index));
}

/// Adding -0 changes nothing.
float FloatRows::offset_at(int64_t index) const {
  const Zero kind = matrix_.format.zero;
  if (!is_offset(kind)) return -0.0F;
  return static_cast<float>(info(offset_format(kind)).decode(zero_code(index)));
}

float FloatRows::scale_at(int64_t index) const {
  const FormatInfo& scale = info(matrix_.format.scale);
  uint32_t code = 0;
  std::memcpy(&code, matrix_.scales.data() + index * (scale.bits / 8), scale.bits / 8);
  return static_cast<float>(scale.decode(code));
}

}  // namespace subbyte
