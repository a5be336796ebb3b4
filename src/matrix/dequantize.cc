#include "matrix/dequantize.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "formats/rotation.h"

namespace subbyte {
namespace {

template <typename Number>
Number load(const std::byte* bytes, int64_t index) {
  Number number;
  std::memcpy(&number, bytes + index * static_cast<int64_t>(sizeof number), sizeof number);
  return number;
}

uint32_t load_code(const std::byte* bytes, int64_t index, int width) {
  uint32_t code = 0;
  std::memcpy(&code, bytes + index * width, width);
  return code;
}

}  // namespace

Dequantizer::Dequantizer(const MatrixView& matrix) : matrix_(matrix) {
  if (is_dense(matrix.format)) return;
  for (int64_t code = 0; code < matrix.num_codes(); ++code) {
    values_.push_back(matrix.value_of(static_cast<uint32_t>(code)));
  }
}

double Dequantizer::factor(int64_t group) const {
  const FormatInfo& scale = info(matrix_.format.scale);
  return scale.decode(load_code(matrix_.scales.data(), group, scale.bits / 8));
}

uint32_t Dequantizer::zero_code(int64_t group) const {
  return load_code(matrix_.zeros.data(), group, zero_bytes(matrix_.format.zero));
}

double Dequantizer::zero(int64_t group) const {
  const Zero kind = matrix_.format.zero;
  return kind == Zero::kNone || is_offset(kind) ? 0 : zero_code(group);
}

/// Adding -0 changes nothing, not even a -0.
double Dequantizer::offset(int64_t group) const {
  const Zero kind = matrix_.format.zero;
  return is_offset(kind) ? info(offset_format(kind)).decode(zero_code(group)) : -0.0;
}

void Dequantizer::dense_row(int64_t row, double* out) const {
  const std::byte* bytes = matrix_.codes.data() + row * matrix_.row_bytes();
  for (int64_t k = 0; k < matrix_.cols; ++k) {
    switch (matrix_.format.element) {
      case Format::kF16:
        put(out, k, to_float(load<Float16>(bytes, k)));
        break;
      case Format::kBF16:
        put(out, k, to_float(load<BFloat16>(bytes, k)));
        break;
      default:
        put(out, k, load<float>(bytes, k));
        break;
    }
  }
}

void Dequantizer::row(int64_t row, double* out) const {
  if (values_.empty()) return dense_row(row, out);
  const int64_t size = matrix_.group_size();
  for (int64_t g = 0; g < matrix_.groups(); ++g) {
    const int64_t group = row * matrix_.groups() + g;
    const double factor = this->factor(group);
    const double zero = this->zero(group);
    const double offset = this->offset(group);
    const int64_t end = std::min(matrix_.cols, (g + 1) * size);
    for (int64_t k = g * size; k < end; ++k) {
      // In the order of weight_at().
      const double value = (values_[code_at(matrix_, row, k)] - zero) * factor + offset;
      put(out, k, value * matrix_.tensor_scale);
    }
  }
  if (matrix_.format.rotation != 0) rotate(out, matrix_.cols, matrix_.format.rotation);
}

}  // namespace subbyte
