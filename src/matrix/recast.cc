#include "matrix/recast.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "matrix/group_numbers.h"
#include "matrix/zero_points.h"

namespace subbyte {
namespace {

constexpr int64_t kSmallestGroup = 8;  // what checkpoints can say

uint32_t load(std::span<const std::byte> bytes, int64_t index, int width) {
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + index * width, width);
  return code;
}

int scale_width(const MatrixView& view) {
  return scale_bytes(view.format.scale);
}

std::string place(const MatrixView& view, int64_t index) {
  return "of output " + std::to_string(index / view.groups()) + ", group " +
         std::to_string(index % view.groups());
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

/// New bytes that belong to the matrix.
std::span<std::byte> allocate(Matrix& matrix, int64_t size) {
  const auto bytes = allocate_bytes(size);
  matrix.owners.push_back(bytes);
  return {bytes.get(), static_cast<std::size_t>(size)};
}

/// Scales or zero points of `width` bytes in `groups` groups, the new group g being old group
/// origin(g); factors of a second level stay what they are.
template <typename Origin>
std::span<const std::byte> regroup(Matrix& matrix, std::span<const std::byte> from, int width,
                                   int64_t groups, const Origin& origin) {
  if (width == 0) return {};
  const int64_t rows = matrix.view.rows;
  const int64_t row_bytes = rows == 0 ? 0 : std::ssize(from) / rows;
  const int64_t factors = row_bytes - matrix.view.groups() * width;
  const std::span<std::byte> to = allocate(matrix, rows * (groups * width + factors));
  std::byte* place = to.data();
  for (int64_t n = 0; n < rows; ++n) {
    const std::byte* const row = from.data() + n * row_bytes;
    for (int64_t g = 0; g < groups; ++g, place += width) {
      std::memcpy(place, row + origin(g) * width, width);
    }
    std::memcpy(place, row + row_bytes - factors, factors);
    place += factors;
  }
  return to;
}

/// Another group size, whose groups are all inside old ones or made of equal ones.
template <typename Origin>
void regroup(Matrix& matrix, int64_t group_size, const Origin& origin) {
  MatrixView& view = matrix.view;
  const int64_t size = group_size == 0 ? view.cols : group_size;
  const int64_t groups = (view.cols + size - 1) / size;
  const auto scales = regroup(matrix, view.scales, scale_width(view), groups, origin);
  const auto zeros = regroup(matrix, view.zeros, zero_bytes(view.format.zero), groups, origin);
  view.scales = scales;
  view.zeros = zeros;
  view.format.group_size = group_size;
}

/// The first group whose scale or zero point is not that of the group before it, within runs of
/// `run`; -1 when there is none.
int64_t first_difference(const MatrixView& view, int64_t run) {
  for (int64_t i = 0; i < view.rows * view.groups(); ++i) {
    const int64_t row = i / view.groups();
    const int64_t g = i % view.groups();
    if (g % run == 0) continue;
    const auto differs = [&](std::span<const std::byte> bytes, int64_t row_bytes, int width) {
      const auto numbers = bytes.subspan(row * row_bytes, row_bytes);
      return load(numbers, g, width) != load(numbers, g - 1, width);
    };
    if (differs(view.scales, view.scale_row_bytes(), scale_width(view))) return i;
    if (differs(view.zeros, view.zero_row_bytes(), zero_bytes(view.format.zero))) return i;
  }
  return -1;
}

void put_code(std::byte* row, int64_t index, int bits, uint32_t code) {
  const int64_t bit = index * bits;
  const uint32_t shifted = code << (bit % 8);
  row[bit / 8] |= std::byte(shifted & 0xFFu);
  if (shifted > 0xFFu) row[bit / 8 + 1] |= std::byte(shifted >> 8);
}

void sort_codes(Matrix& matrix, const std::vector<int64_t>& column_of) {
  MatrixView& view = matrix.view;
  const int bits = info(view.format.element).bits;
  const std::span<std::byte> codes = allocate(matrix, view.rows * view.row_bytes());
  for (int64_t n = 0; n < view.rows; ++n) {
    for (int64_t k = 0; k < view.cols; ++k) {
      put_code(codes.data() + n * view.row_bytes(), k, bits, code_at(view, n, column_of[k]));
    }
  }
  view.codes = codes;
  view.input_order = {};
}

/// What the factor is once it has been stored; 0 when a float cannot hold it.
double stored(double factor, TensorFactor as) {
  const bool divides = as == TensorFactor::kDivides;
  const auto written = static_cast<float>(divides ? 1 / factor : factor);
  if (!std::isfinite(written) || written <= 0) return 0;
  return divides ? 1.0 / static_cast<double>(written) : static_cast<double>(written);
}

Error no_float(double factor, TensorFactor as, double nearest) {
  const bool divides = as == TensorFactor::kDivides;
  std::string message = "the factor of the tensor, " + number(factor) + " (1 / " +
                        number(1 / factor) + "), is " +
                        (divides ? "1 divided by no f32" : "no f32");
  if (nearest != 0) {
    message += "; the nearest one is off by " + number(std::fabs(nearest / factor - 1)) + " of it";
  }
  return {"recast.factor", std::move(message)};
}

/// The power of two that scales are divided by so that the largest fits the top of `scale`.
double shift_for(double largest, Format scale) {
  if (largest == 0) return 1;
  const double max = info(scale).max;
  const double shift = std::ldexp(1.0, std::ilogb(largest) - std::ilogb(max));
  return largest / shift > max ? 2 * shift : shift;
}

/// a * b, and whether that is exact.
struct Product {
  double value;
  bool exact;
};

Product multiply(double a, double b) {
  const double value = a * b;
  return {value, std::fma(a, b, -value) == 0 && (value != 0 || a == 0 || b == 0)};
}

Result<Matrix> convert_scales(Matrix matrix, Format scale, double multiplier, Rounded rounded) {
  MatrixView& view = matrix.view;
  const FormatInfo& to = info(scale);
  const int width = to.bits / 8;
  const GroupNumbers numbers(view);
  if (has_two_levels(scale)) {
    return Error{"recast.scale",
                 "scales of " + to_string(view.format) + " do not become scales of two levels"};
  }
  const std::span<std::byte> scales = allocate(matrix, view.rows * view.groups() * width);
  for (int64_t i = 0; i < view.rows * view.groups(); ++i) {
    const Product wanted =
        multiply(numbers.scale(i / view.groups(), i % view.groups()), multiplier);
    const uint32_t code = to.encode(wanted.value, Rounding::kNearestEven);
    const double found = to.decode(code);
    const bool exact = wanted.exact && found == wanted.value;
    const bool lost = !std::isfinite(found) || (found == 0 && wanted.value != 0) ||
                      std::fabs(wanted.value) > to.max || wanted.value < to.min;
    if (lost || (!exact && rounded == Rounded::kNever)) {
      return Error{"recast.scale", "scale " + number(wanted.value) + " " + place(view, i) +
                                       " has no exact form in " + std::string(to.name)};
    }
    std::memcpy(scales.data() + i * width, &code, width);
  }
  view.scales = scales;
  view.format.scale = scale;
  return matrix;
}

}  // namespace

Format unsigned_element(Format element) {
  if (element < Format::kI2 || element > Format::kI8) return element;
  return static_cast<Format>(static_cast<int>(element) - static_cast<int>(Format::kI2) +
                             static_cast<int>(Format::kU2));
}

Format signed_element(Format element) {
  if (element < Format::kU2 || element > Format::kU8) return element;
  return static_cast<Format>(static_cast<int>(element) - static_cast<int>(Format::kU2) +
                             static_cast<int>(Format::kI2));
}

std::optional<WeightFormat> common_format(const WeightFormat& a, const WeightFormat& b,
                                          int64_t cols) {
  const auto is_float = [](Format scale) {
    return scale == Format::kF16 || scale == Format::kBF16 || scale == Format::kF32;
  };
  if (a.rotation != b.rotation) return std::nullopt;
  WeightFormat common = a;
  if (a.zero != b.zero) {
    if (is_offset(a.zero) || is_offset(b.zero)) return std::nullopt;
    common.element = unsigned_element(a.element);
    common.zero = a.zero == Zero::kNone ? b.zero : a.zero;
    if (common.element != unsigned_element(b.element)) return std::nullopt;
  } else if (a.element != b.element) {
    return std::nullopt;
  }
  if (a.scale != b.scale) {
    if (!is_float(a.scale) || !is_float(b.scale)) return std::nullopt;
    common.scale = Format::kF32;
  }
  if (a.group_size != b.group_size) {
    const int64_t size =
        std::gcd(a.group_size == 0 ? cols : a.group_size, b.group_size == 0 ? cols : b.group_size);
    if (size % kSmallestGroup != 0) return std::nullopt;
    common.group_size = size;
  }
  return common;
}

bool is_symmetric(const MatrixView& matrix) {
  if (matrix.format.zero == Zero::kNone) return true;
  if (is_offset(matrix.format.zero)) return false;
  const uint32_t middle = 1u << (info(matrix.format.element).bits - 1);
  const int width = zero_bytes(matrix.format.zero);
  for (int64_t i = 0; i < matrix.rows * matrix.groups(); ++i) {
    if (load(matrix.zeros, i, width) != middle) return false;
  }
  return true;
}

Result<Matrix> with_inputs_in_order(Matrix matrix) {
  const MatrixView& view = matrix.view;
  if (view.input_order.empty()) return matrix;
  const int64_t size = view.group_size();
  std::vector<int64_t> column_of(view.cols);  // of each input
  for (int64_t k = 0; k < view.cols; ++k) column_of[view.input_order[k]] = k;
  int64_t run = size;
  for (int64_t k = 1; k < view.cols; ++k) {
    if (column_of[k] / size != column_of[k - 1] / size) run = std::gcd(run, k);
  }
  if (run != view.cols && run % kSmallestGroup != 0) {
    return Error{"recast.act_order",
                 "inputs are sorted by group (act-order), and in their own "
                 "order groups of " +
                     std::to_string(size) + " are runs of " + std::to_string(run)};
  }
  if (run != size) {
    regroup(matrix, run, [&](int64_t g) { return column_of[g * run] / size; });
  } else if (view.format.group_size != 0) {
    regroup(matrix, view.format.group_size, [&](int64_t g) { return column_of[g * size] / size; });
  }
  sort_codes(matrix, column_of);
  return matrix;
}

Result<Matrix> with_zero_rule(Matrix matrix, Zero zero) {
  if (matrix.view.format.zero == zero) return matrix;
  if (is_offset(zero) || is_offset(matrix.view.format.zero)) {
    WeightFormat wanted = matrix.view.format;
    wanted.zero = zero;
    return Error{"recast.zero_point", to_string(matrix.view.format) + " is not " +
                                          to_string(wanted) +
                                          ": offsets are not recast as zero points, nor zero "
                                          "points as offsets"};
  }
  if (zero != Zero::kNone) return with_zero_points(std::move(matrix));
  matrix = without_zero_points(std::move(matrix));
  const MatrixView& view = matrix.view;
  if (view.format.zero == Zero::kNone) return matrix;
  const uint32_t middle = 1u << (info(view.format.element).bits - 1);
  const int width = zero_bytes(view.format.zero);
  int64_t i = 0;
  while (load(view.zeros, i, width) == middle) ++i;
  return Error{"recast.zero_point", "zero point " + std::to_string(load(view.zeros, i, width)) +
                                        " " + place(view, i) + " is not " + std::to_string(middle)};
}

Result<Matrix> with_group_size(Matrix matrix, int64_t group_size) {
  const MatrixView& view = matrix.view;
  const int64_t from = view.group_size();
  const int64_t to = group_size == 0 ? view.cols : group_size;
  if (from == to) {
    matrix.view.format.group_size = group_size;
    return matrix;
  }
  const bool divides = to > 0 && to < from && from % to == 0;  // also where the last one is short
  const bool joins = to > from && to % from == 0 && view.cols % to == 0 &&
                     !(has_two_levels(view.format) && kSuperblock % to != 0);
  if (!divides && !joins) {
    return Error{"recast.group_size", "groups of " + std::to_string(from) +
                                          " inputs cannot become groups of " + std::to_string(to)};
  }
  if (joins) {
    const int64_t different = first_difference(view, to / from);
    if (different >= 0) {
      return Error{"recast.group_size",
                   "groups of " + std::to_string(from) + " inputs cannot become groups of " +
                       std::to_string(to) + ": the scale or zero point " + place(view, different) +
                       " differs from the one "
                       "before it"};
    }
  }
  regroup(matrix, group_size, [&](int64_t g) { return g * to / from; });
  return matrix;
}

double largest_scale(const MatrixView& matrix) {
  if (is_dense(matrix.format)) return 0;
  const GroupNumbers numbers(matrix);
  double largest = 0;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t g = 0; g < matrix.groups(); ++g) {
      largest = std::max(largest, std::fabs(numbers.scale(row, g)));
    }
  }
  return largest;
}

Result<Matrix> with_scales(Matrix matrix, Format scale, TensorFactor factor, Rounded rounded,
                           double largest) {
  MatrixView& view = matrix.view;
  double multiplier = 1;
  if (factor == TensorFactor::kNone) {
    multiplier = std::exchange(view.tensor_scale, 1);
  } else {
    if (view.format.scale != scale) {
      const double shift = shift_for(std::max(largest, largest_scale(view)), scale);
      multiplier = 1 / shift;
      view.tensor_scale *= shift;
    }
    const bool nothing = view.tensor_scale == 0 && factor == TensorFactor::kMultiplies;
    const double kept = nothing ? 0 : stored(view.tensor_scale, factor);
    if ((kept == 0 && !nothing) || (kept != view.tensor_scale && rounded == Rounded::kNever)) {
      return no_float(view.tensor_scale, factor, kept);
    }
    view.tensor_scale = kept;
  }
  if (view.format.scale == scale && multiplier == 1) return matrix;
  if (is_offset(view.format.zero) && multiplier != 1) {
    return Error{"recast.factor", "a factor of " + number(multiplier) + " would have to go into " +
                                      "the offsets of " + to_string(view.format) +
                                      ", too, and would round them"};
  }
  return convert_scales(std::move(matrix), scale, multiplier, rounded);
}

Result<Matrix> recast(Matrix matrix, const TargetFormat& target, Rounded rounded) {
  const WeightFormat& format = target.format;
  if (matrix.view.format.rotation != format.rotation) {
    return Error{"recast.rotation", "weights that are " + to_string(matrix.view.format) +
                                        " are not " + to_string(format) +
                                        " without being quantized anew"};
  }
  if (!target.act_order) {
    SUBBYTE_TRY(matrix, with_inputs_in_order(std::move(matrix)));
  }
  SUBBYTE_TRY(matrix, with_zero_rule(std::move(matrix), format.zero));
  if (matrix.view.format.element != format.element) {
    return Error{"recast.element",
                 "codes of " + std::string(info(matrix.view.format.element).name) +
                     " are not codes of " + std::string(info(format.element).name)};
  }
  if (is_dense(format)) return matrix;
  // Few scales are made many last, many are made few first.
  const bool repeat = matrix.view.format.group_size == 0 ||
                      (format.group_size != 0 && format.group_size < matrix.view.format.group_size);
  if (!repeat) {
    SUBBYTE_TRY(matrix, with_group_size(std::move(matrix), format.group_size));
  }
  SUBBYTE_TRY(matrix, with_scales(std::move(matrix), format.scale, target.factor, rounded,
                                  target.largest_scale));
  return with_group_size(std::move(matrix), format.group_size);
}

}  // namespace subbyte
