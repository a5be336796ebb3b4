#include "quantize/quantize_format.h"

#include <algorithm>
#include <cmath>

#include "quantize/loss.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

template <typename T>
std::string listed(std::span<const T> numbers) {
  std::string text;
  for (const T number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

}  // namespace

bool QuantizeFormat::holds_bits(int64_t width) const {
  return std::ranges::find(bits, width) != bits.end();
}

bool QuantizeFormat::holds_group(int64_t group_size) const {
  if (group_size == 0) return whole_rows;
  if (!group_sizes.empty()) return std::ranges::find(group_sizes, group_size) != group_sizes.end();
  return group_size > 0 && group_size % kSmallestGroup == 0;
}

bool QuantizeFormat::holds_symmetry(bool symmetric) const {
  return symmetry != (symmetric ? Symmetry::kNever : Symmetry::kAlways);
}

Status check_form(const QuantizeFormat& format, const QuantizeForm& form) {
  const std::string name(format.name);
  if (!format.holds_bits(form.bits)) {
    return Error{"quantize.bits", std::to_string(form.bits) + " bits, expected " +
                                      list_bits(format) + ", which are what " + name + " has"};
  }
  if (!format.holds_group(form.group_size)) {
    return Error{"quantize.group_size", "group size " + std::to_string(form.group_size) +
                                            ", expected " + list_groups(format) +
                                            ", which is what " + name + " has"};
  }
  if (format.holds_symmetry(form.symmetric)) return {};
  return Error{"quantize.symmetry", std::string("expected ") +
                                        (form.symmetric ? "asymmetric" : "symmetric") +
                                        " weights, as " + name + " has no others"};
}

int64_t group_size_of(const QuantizeFormat& format, std::optional<int64_t> wanted) {
  return wanted == -1 ? 0 : wanted.value_or(format.default_group);
}

std::optional<int64_t> half_group(const QuantizeFormat& format, int64_t group_size) {
  const int64_t half = group_size / 2;
  return half >= kSmallestGroup && format.holds_group(half) ? std::optional(half) : std::nullopt;
}

Result<Matrix> quantize_one(const QuantizeFormat& format, int64_t rows, int64_t cols,
                            const RowReader& read_row, const QuantizeForm& form, Executor& pool) {
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  if (rows < 1 || rows > kMaxSize || cols < 1 || cols > kMaxSize) {
    return Error{"quantize.shape", "expected 1 to 2^24 rows and columns, found " +
                                       std::to_string(rows) + " and " + std::to_string(cols)};
  }
  const double largest = largest_magnitude(rows, cols, read_row, pool);
  // The quantizer names what is no number.
  const QuantizeInput input = {rows, cols, read_row, std::isfinite(largest) ? largest : 0};
  SUBBYTE_TRY(Matrix matrix, format.quantize(input, form, pool));
  SUBBYTE_CHECK(check_loss(matrix.view, read_row, pool));
  return matrix;
}

std::string list_bits(const QuantizeFormat& format) {
  return listed(format.bits);
}

std::string list_groups(const QuantizeFormat& format) {
  const std::string sizes = format.group_sizes.empty()
                                ? "a positive multiple of " + std::to_string(kSmallestGroup)
                                : listed(format.group_sizes);
  return format.whole_rows ? sizes + ", or 0 for whole rows" : sizes;
}

}  // namespace subbyte
