#include "matrix/matrix.h"

#include <cstring>

namespace subbyte {
namespace {

uint32_t load_code(std::span<const std::byte> bytes, std::size_t index, int width) {
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + index * width, width);
  return code;
}

}  // namespace

uint32_t code_at(const MatrixView& matrix, int64_t row, int64_t col) {
  const int width = info(matrix.format.element).bits;
  const int64_t first_bit = col * width;
  const std::byte* bytes = matrix.codes.data() + row * matrix.row_bytes() + first_bit / 8;
  uint64_t word = 0;
  const int64_t last_byte = (first_bit % 8 + width + 7) / 8;
  for (int64_t i = 0; i < last_byte; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return static_cast<uint32_t>((word >> (first_bit % 8)) & ((uint64_t{1} << width) - 1));
}

double weight_at(const MatrixView& matrix, int64_t row, int64_t col) {
  const double value = matrix.value_of(code_at(matrix, row, col));
  if (is_dense(matrix.format)) return value;
  const std::size_t group = row * matrix.groups() + col / matrix.group_size();
  const FormatInfo& scale = info(matrix.format.scale);
  const double factor = scale.decode(load_code(matrix.scales, group, scale.bits / 8));
  if (matrix.format.zero == Zero::kNone) return value * factor * matrix.tensor_scale;
  const uint32_t zero = load_code(matrix.zeros, group, zero_bytes(matrix.format.zero));
  if (is_offset(matrix.format.zero)) {
    const double offset = info(offset_format(matrix.format.zero)).decode(zero);
    return (value * factor + offset) * matrix.tensor_scale;
  }
  return (value - zero) * factor * matrix.tensor_scale;
}

}  // namespace subbyte
