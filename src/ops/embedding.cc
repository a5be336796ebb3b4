#include "ops/embedding.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/float16.h"

namespace subbyte {
namespace {

template <typename T>
void convert_row(float* y, const std::byte* row, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    T value;
    std::memcpy(&value, row + i * sizeof(T), sizeof(T));
    y[i] = to_float(value);
  }
}

void convert_dense_row(float* y, const std::byte* row, const MatrixView& table) {
  switch (table.format.element) {
    case Format::kF16:
      return convert_row<Float16>(y, row, table.cols);
    case Format::kBF16:
      return convert_row<BFloat16>(y, row, table.cols);
    default:
      return convert_row<float>(y, row, table.cols);
  }
}

/// What all rows of a quantized table share: its format, and the values of its codes.
class RowDecoder {
 public:
  explicit RowDecoder(const MatrixView& table) : table_(&table) {
    const FormatInfo& element = info(table.format.element);
    if (element.bits > kTableBits) return;
    values_.resize(std::size_t{1} << element.bits);
    for (uint32_t code = 0; code < values_.size(); ++code) {
      values_[code] = static_cast<float>(element.decode(code));
    }
  }

  void decode(float* y, int64_t row) const {
    const int64_t groups = table_->groups();
    const int64_t size = table_->group_size();
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t index = row * groups + g;
      const float zero = zero_at(index);
      const float scale = scale_at(index);
      const float offset = offset_at(index);
      for (int64_t k = g * size; k < std::min((g + 1) * size, table_->cols); ++k) {
        const int64_t input = table_->input_order.empty() ? k : table_->input_order[k];
        y[input] = (element_at(row, k) - zero) * scale + offset;
      }
    }
  }

 private:
  static constexpr int kTableBits = 8;

  float element_at(int64_t row, int64_t col) const {
    const uint32_t code = code_at(*table_, row, col);
    if (!values_.empty()) return values_[code];
    return static_cast<float>(info(table_->format.element).decode(code));
  }
  uint16_t zero_code(int64_t index) const {
    uint16_t zero = 0;
    const int width = zero_bytes(table_->format.zero);
    if (width > 0) std::memcpy(&zero, table_->zeros.data() + index * width, width);
    return zero;
  }
  float zero_at(int64_t index) const {
    return is_offset(table_->format.zero) ? 0 : zero_code(index);
  }
  /// Adding -0 changes nothing.
  float offset_at(int64_t index) const {
    const Zero kind = table_->format.zero;
    if (!is_offset(kind)) return -0.0F;
    return static_cast<float>(info(offset_format(kind)).decode(zero_code(index)));
  }
  float scale_at(int64_t index) const {
    const FormatInfo& scale = info(table_->format.scale);
    uint32_t code = 0;
    std::memcpy(&code, table_->scales.data() + index * (scale.bits / 8), scale.bits / 8);
    return static_cast<float>(scale.decode(code));
  }

  const MatrixView* table_;
  std::vector<float> values_;  // by code; empty for wide elements
};

}  // namespace

void embed(std::span<float> y, std::span<const int32_t> ids, const MatrixView& table) {
  if (!is_dense(table.format)) {
    const RowDecoder decoder(table);
    for (std::size_t i = 0; i < ids.size(); ++i) decoder.decode(y.data() + i * table.cols, ids[i]);
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    convert_dense_row(y.data() + i * table.cols, table.codes.data() + ids[i] * table.row_bytes(),
                      table);
  }
}

}  // namespace subbyte
