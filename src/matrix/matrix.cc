#include "matrix/matrix.h"

#include <array>

#include "formats/rotation.h"
#include "matrix/group_numbers.h"

namespace subbyte {
namespace {

/// Without the rotation.
double stored_weight(const MatrixView& matrix, int64_t row, int64_t col) {
  const double value = matrix.value_of(code_at(matrix, row, col));
  if (is_dense(matrix.format)) return value * matrix.tensor_scale;
  const int64_t group = col / matrix.group_size();
  const GroupNumbers numbers(matrix);
  const double scaled = (value - numbers.zero(row, group)) * numbers.scale(row, group);
  return (scaled + numbers.offset(row, group)) * matrix.tensor_scale;
}

int64_t row_bytes_of(const MatrixView& matrix, int width, bool two_levels) {
  return matrix.groups() * width + (two_levels ? num_superblocks(matrix.cols) * 2 : 0);
}

}  // namespace

int64_t MatrixView::scale_row_bytes() const {
  return row_bytes_of(*this, scale_bytes(format.scale), has_two_levels(format.scale));
}

int64_t MatrixView::zero_row_bytes() const {
  return row_bytes_of(*this, zero_bytes(format.zero), has_two_levels(format.zero));
}

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
