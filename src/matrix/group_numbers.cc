#include "matrix/group_numbers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/float16.h"

namespace subbyte {
namespace {

uint32_t load(const std::byte* bytes, int64_t index, int width) {
  uint32_t code = 0;
  std::memcpy(&code, bytes + index * width, static_cast<std::size_t>(width));
  return code;
}

double half(uint32_t code) {
  return to_float(Float16{static_cast<uint16_t>(code)});
}

/// FormatInfo::decode(), without a call for what most matrices have.
double decode_number(Format format, uint32_t code) {
  if (format == Format::kF16) return half(code);
  if (format == Format::kF32) return std::bit_cast<float>(code);
  if (format >= Format::kU2 && format <= Format::kU8) return code;
  return info(format).decode(code);
}

}  // namespace

GroupNumbers::GroupNumbers(const MatrixView& matrix)
    : groups_(matrix.groups()),
      groups_of_superblock_(std::max<int64_t>(1, kSuperblock / matrix.group_size())) {
  const WeightFormat& format = matrix.format;
  scales_ = {matrix.scales.data(), matrix.scale_row_bytes(), format.scale,
             scale_bytes(format.scale), has_two_levels(format.scale)};
  if (format.zero == Zero::kNone) return;
  const Numbers numbers = {matrix.zeros.data(), matrix.zero_row_bytes(), Format::kU8,
                           zero_bytes(format.zero), has_two_levels(format.zero)};
  if (is_offset(format.zero)) {
    offsets_ = numbers;
    offsets_.format = offset_format(format.zero);
  } else {
    zeros_ = numbers;
  }
}

double GroupNumbers::number(const Numbers& numbers, int64_t row, int64_t group) const {
  const std::byte* const bytes = numbers.bytes + row * numbers.row_bytes;
  const double number = decode_number(numbers.format, load(bytes, group, numbers.width));
  if (!numbers.two_levels) return number;
  return number * half(load(bytes + groups_, group / groups_of_superblock_, sizeof(Float16)));
}

}  // namespace subbyte
