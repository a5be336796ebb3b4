#include "matrix/zero_points.h"

#include <algorithm>
#include <array>

namespace subbyte {
namespace {

constexpr std::array kSigned = {Format::kI2, Format::kI3, Format::kI4, Format::kI5,
                                Format::kI6, Format::kI7, Format::kI8};
constexpr std::array kUnsigned = {Format::kU2, Format::kU3, Format::kU4, Format::kU5,
                                  Format::kU6, Format::kU7, Format::kU8};

/// Codes of a stream of 5 to 7 bits, a byte each.
void widen_row(std::span<const std::byte> row, int bits, int added, std::byte* to, int64_t cols) {
  const uint32_t mask = (1u << bits) - 1u;
  uint32_t window = 0;
  int filled = 0;
  std::size_t next = 0;
  for (int64_t k = 0; k < cols; ++k) {
    if (filled < bits) {
      window |= std::to_integer<uint32_t>(row[next++]) << filled;
      filled += 8;
    }
    to[k] = std::byte((window & mask) + static_cast<uint32_t>(added));
    window >>= bits;
    filled -= bits;
  }
}

}  // namespace

Matrix with_zero_points(Matrix matrix) {
  MatrixView& view = matrix.view;
  const auto found = std::ranges::find(kSigned, view.format.element);
  if (found == kSigned.end() || is_dense(view.format) || view.format.zero != Zero::kNone) {
    return matrix;
  }
  const int bits = info(view.format.element).bits;
  view.format.element = kUnsigned[found - kSigned.begin()];
  view.format.zero = bits == 8 ? Zero::kU16 : Zero::kU8;
  const int width = zero_bytes(view.format.zero);
  const int64_t count = view.rows * view.groups();
  const auto zeros = allocate_bytes(count * width);
  const int middle = 1 << (bits - 1);
  if (width == 1) {
    std::fill_n(zeros.get(), count, static_cast<std::byte>(middle));
  } else {
    std::fill_n(reinterpret_cast<uint16_t*>(zeros.get()), count, static_cast<uint16_t>(middle));
  }
  view.zeros = {zeros.get(), static_cast<std::size_t>(count * width)};
  matrix.owners.push_back(zeros);
  return matrix;
}

WeightFormat with_whole_bytes(WeightFormat format) {
  const bool is_signed = format.element >= Format::kI5 && format.element <= Format::kI7;
  const bool is_unsigned = format.element >= Format::kU5 && format.element <= Format::kU7;
  if (is_dense(format) || (!is_signed && !is_unsigned)) return format;
  format.element = is_signed ? Format::kI8 : Format::kU8;
  if (format.zero == Zero::kU8) format.zero = Zero::kU16;
  return format;
}

Matrix with_whole_bytes(Matrix matrix) {
  MatrixView& view = matrix.view;
  const WeightFormat wide = with_whole_bytes(view.format);
  if (wide == view.format) return matrix;
  const int bits = info(view.format.element).bits;
  // Codes of signed integers have half of their range added.
  const int added = wide.element == Format::kI8 ? 128 - (1 << (bits - 1)) : 0;
  const auto size = static_cast<std::size_t>(view.rows * view.cols);
  const auto codes = allocate_bytes(size);
  for (int64_t n = 0; n < view.rows; ++n) {
    widen_row(view.codes.subspan(n * view.row_bytes(), view.row_bytes()), bits, added,
              codes.get() + n * view.cols, view.cols);
  }
  view.codes = {codes.get(), size};
  matrix.owners.push_back(codes);
  if (wide.zero != view.format.zero) {
    const auto zeros = allocate_bytes(view.zeros.size() * 2);  // little-endian
    for (std::size_t i = 0; i < view.zeros.size(); ++i) zeros[2 * i] = view.zeros[i];
    view.zeros = {zeros.get(), view.zeros.size() * 2};
    matrix.owners.push_back(zeros);
  }
  view.format = wide;
  return matrix;
}

Matrix without_zero_points(Matrix matrix) {
  MatrixView& view = matrix.view;
  const auto found = std::ranges::find(kUnsigned, view.format.element);
  if (found == kUnsigned.end() || view.format.zero == Zero::kNone || is_offset(view.format.zero)) {
    return matrix;
  }
  const uint32_t middle = 1u << (info(view.format.element).bits - 1);
  const int width = zero_bytes(view.format.zero);
  for (int64_t i = 0; i < view.rows * view.groups(); ++i) {
    uint32_t zero = 0;
    __builtin_memcpy(&zero, view.zeros.data() + i * width, width);
    if (zero != middle) return matrix;
  }
  view.format.element = kSigned[found - kUnsigned.begin()];
  view.format.zero = Zero::kNone;
  view.zeros = {};
  return matrix;
}

}  // namespace subbyte
