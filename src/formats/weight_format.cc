#include "formats/weight_format.h"

SUBBYTE_BEGIN_NAMESPACE

double bits_per_weight(const WeightFormat& format, int64_t cols) {
  const int element_bits = info(format.element).bits;
  if (is_dense(format) || cols < 1) return element_bits;
  const int64_t group_size = format.group_size == 0 ? cols : format.group_size;
  const int64_t groups = (cols - 1) / group_size + 1;
  const int group_bytes = scale_bytes(format.scale) + zero_bytes(format.zero);
  const int factors = int{has_two_levels(format.scale)} + int{has_two_levels(format.zero)};
  const int64_t bytes = groups * group_bytes + num_superblocks(cols) * 2 * factors;
  return element_bits + static_cast<double>(8 * bytes) / static_cast<double>(cols);
}

std::string to_string(const WeightFormat& format) {
  std::string text(info(format.element).name);
  if (is_dense(format)) return text;
  text += format.group_size == 0 ? " per row" : " g" + std::to_string(format.group_size);
  text += " scale ";
  text += info(format.scale).name;
  if (format.zero == Zero::kU8) text += " zero u8";
  if (format.zero == Zero::kU16) text += " zero u16";
  if (is_offset(format.zero))
    text += " offset " + std::string(info(offset_format(format.zero)).name);
  if (has_two_levels(format)) text += " x f16 g256";
  if (format.rotation != 0) text += " rotated " + std::to_string(format.rotation);
  return text;
}

SUBBYTE_END_NAMESPACE
