#include "matrix/given_matrix.h"

#include <cmath>
#include <string>
#include <utility>

#include "formats/rotation.h"
#include "matrix/codebook.h"
#include "matrix/dequantize.h"
#include "matrix/float_rows.h"
#include "matrix/input_order.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int kMaxScaledBits = 8;

Error refuse(const std::string& what, const std::string& expected, const std::string& found) {
  return {"matrix.argument", "matrix: " + what + ": expected " + expected + ", found " + found};
}

bool is_known(Format format) {
  return format <= Format::kIQ4;
}

Status check_format(const WeightFormat& format) {
  const auto shown = [](Format of) {
    return is_known(of) ? std::string(name(of)) : std::to_string(static_cast<int>(of));
  };
  if (!is_known(format.element) || format.element == Format::kNone) {
    return refuse("element", "a format", shown(format.element));
  }
  if (format.group_size < 0 || format.group_size > kMaxSize) {
    return refuse("group_size", "0 to 2^24", std::to_string(format.group_size));
  }
  if (!is_rotation(format.rotation)) {
    return refuse("rotation", "0, 16, 64 or 256", std::to_string(format.rotation));
  }
  if (format.zero > Zero::kOffsetU6) {
    return refuse("zero", "none, u8, u16, f16, bf16, f32 or offsets of u4 or u6",
                  std::to_string(static_cast<int>(format.zero)));
  }
  if (format.scale == Format::kNone) {
    const bool is_float = format.element <= Format::kBF16;
    if (is_float && format.zero == Zero::kNone) return {};
    return refuse("scale", "a format, or elements of f32, f16 or bf16 without zero points", "none");
  }
  if (!is_known(format.scale) || !is_scale(format.scale)) {
    return refuse("scale", "whole bytes or integers", shown(format.scale));
  }
  if (bits(format.element) > kMaxScaledBits) {
    return refuse("element", "up to 8 bits beside scales", shown(format.element));
  }
  if (!has_two_levels(format) || (format.group_size > 0 && kSuperblock % format.group_size == 0)) {
    return {};
  }
  return refuse("group_size", "a part of 256 where scales have two levels",
                std::to_string(format.group_size));
}

Status check_order(const MatrixView& view) {
  if (view.input_order.empty()) return {};
  if (std::ssize(view.input_order) != view.cols) {
    return refuse("input_order", std::to_string(view.cols) + " inputs",
                  std::to_string(view.input_order.size()));
  }
  if (has_two_levels(view.format)) {
    return refuse("input_order", "none beside scales of two levels", "one");
  }
  const std::string fault = input_order_fault(view.input_order);
  if (fault.empty()) return {};
  return Error{"matrix.argument", "matrix: input_order: expected " + fault};
}

Status check_size(const char* what, std::span<const std::byte> bytes, int64_t expected) {
  if (std::ssize(bytes) == expected && (bytes.data() != nullptr || expected == 0)) return {};
  return refuse(what, std::to_string(expected) + " bytes", std::to_string(bytes.size()));
}

Status check_codebook(const MatrixView& view) {
  if (view.codebook.empty() && !needs_codebook(view.format.element)) return {};
  if (!may_have_codebook(view.format.element)) {
    return refuse("codebook", "elements of nfl2 to nfl5, vq2 or vq4",
                  std::string(name(view.format.element)));
  }
  const std::string fault = codebook_fault(view.codebook, view.format.element);
  if (fault.empty()) return {};
  return Error{"matrix.argument", "matrix: codebook: expected " + fault};
}

template <typename Rows, typename Number>
Status dequantize_rows(const MatrixView& view, int64_t first, std::span<Number> out) {
  SUBBYTE_CHECK(check_matrix(view));
  const int64_t num_rows = std::ssize(out) / view.cols;
  if (num_rows * view.cols != std::ssize(out)) {
    return refuse("dequantize", "whole rows of " + std::to_string(view.cols),
                  std::to_string(out.size()) + " numbers");
  }
  if (first < 0 || num_rows > view.rows || first > view.rows - num_rows) {
    return refuse("dequantize", std::to_string(view.rows) + " rows",
                  "rows " + std::to_string(first) + " and on, " + std::to_string(num_rows));
  }
  const Rows rows(view);
  for (int64_t i = 0; i < num_rows; ++i) rows.row(first + i, out.data() + i * view.cols);
  return {};
}

}  // namespace

Status check_matrix(const MatrixView& view) {
  SUBBYTE_CHECK(check_format(view.format));
  if (view.rows < 0 || view.rows > kMaxSize || view.cols < 1 || view.cols > kMaxSize) {
    return refuse("rows and cols", "up to 2^24, and a column",
                  std::to_string(view.rows) + " and " + std::to_string(view.cols));
  }
  if (view.format.rotation != 0 && view.cols % view.format.rotation != 0) {
    return refuse("rotation", "a part of " + std::to_string(view.cols) + " columns",
                  std::to_string(view.format.rotation));
  }
  SUBBYTE_CHECK(check_size("codes", view.codes, view.rows * view.row_bytes()));
  SUBBYTE_CHECK(check_size("scales", view.scales, view.rows * view.scale_row_bytes()));
  SUBBYTE_CHECK(check_size("zeros", view.zeros, view.rows * view.zero_row_bytes()));
  SUBBYTE_CHECK(check_order(view));
  SUBBYTE_CHECK(check_codebook(view));
  if (std::isfinite(view.tensor_scale)) return {};
  return refuse("tensor_scale", "a finite number", std::to_string(view.tensor_scale));
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

Result<Matrix> Matrix::of(const MatrixView& view, std::shared_ptr<const void> owner) {
  SUBBYTE_CHECK(check_matrix(view));
  return Matrix{view, {std::move(owner)}};
}

Status Matrix::dequantize(int64_t first, std::span<float> out) const {
  return dequantize_rows<FloatRows>(view, first, out);
}

Status Matrix::dequantize(int64_t first, std::span<double> out) const {
  return dequantize_rows<Dequantizer>(view, first, out);
}

SUBBYTE_END_NAMESPACE
