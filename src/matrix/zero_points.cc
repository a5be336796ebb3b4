#include "matrix/zero_points.h"

#include <algorithm>
#include <array>

namespace subbyte {
namespace {

constexpr std::array kSigned = {Format::kI2, Format::kI3, Format::kI4, Format::kI5,
                                Format::kI6, Format::kI7, Format::kI8};
constexpr std::array kUnsigned = {Format::kU2, Format::kU3, Format::kU4, Format::kU5,
                                  Format::kU6, Format::kU7, Format::kU8};

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
  const auto middle = static_cast<uint16_t>(1 << (bits - 1));
  for (int64_t i = 0; i < count; ++i) __builtin_memcpy(zeros.get() + i * width, &middle, width);
  view.zeros = {zeros.get(), static_cast<std::size_t>(count * width)};
  matrix.owners.push_back(zeros);
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
