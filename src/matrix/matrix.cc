#include "matrix/matrix.h"

#include <array>
#include <cstring>

#include "formats/rotation.h"

namespace subbyte {
namespace {

uint32_t load_code(std::span<const std::byte> bytes, std::size_t index, int width) {
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + index * width, width);
  return code;
}

/// Without the rotation.
double stored_weight(const MatrixView& matrix, int64_t row, int64_t col) {
  const double value = matrix.value_of(code_at(matrix, row, col));
  if (is_dense(matrix.format)) return value * matrix.tensor_scale;
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

}  // namespace

int64_t MatrixView::num_codes() const {
  const FormatInfo& element = info(format.element);
  return element.vector_size > 1 ? int64_t{kVectors} * element.vector_size
                                 : int64_t{1} << element.bits;
}

double MatrixView::value_of(uint32_t code) const {
  return codebook.empty() ? info(format.element).decode(code) : double{codebook[code]};
}

uint32_t code_at(const MatrixView& matrix, int64_t row, int64_t col) {
  const FormatInfo& element = info(matrix.format.element);
  if (element.vector_size > 1) {
    const int64_t byte = row * matrix.row_bytes() + col / element.vector_size;
    const auto index = std::to_integer<uint32_t>(matrix.codes[static_cast<std::size_t>(byte)]);
    return index * static_cast<uint32_t>(element.vector_size) +
           static_cast<uint32_t>(col % element.vector_size);
  }
  const int width = element.bits;
  const int64_t first_bit = col * width;
  const std::byte* bytes = matrix.codes.data() + row * matrix.row_bytes() + first_bit / 8;
  uint64_t word = 0;
  const int64_t last_byte = (first_bit % 8 + width + 7) / 8;
  for (int64_t i = 0; i < last_byte; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return static_cast<uint32_t>((word >> (first_bit % 8)) & ((uint64_t{1} << width) - 1));
}

double weight_at(const MatrixView& matrix, int64_t row, int64_t col) {
  const int64_t size = matrix.format.rotation;
  if (size == 0) return stored_weight(matrix, row, col);
  std::array<double, kLargestRotation> run = {};
  for (int64_t i = 0; i < size; ++i) {
    run[static_cast<std::size_t>(i)] = stored_weight(matrix, row, col / size * size + i);
  }
  rotate(run.data(), size, size);
  return run[static_cast<std::size_t>(col % size)];
}

}  // namespace subbyte
