#include "subbyte/matrix.h"

#include <cmath>
#include <vector>

#include "cpp_interface/matrix_data.h"
#include "formats/rotation.h"
#include "matrix/codebook.h"
#include "matrix/dequantize.h"
#include "matrix/float_rows.h"
#include "matrix/input_order.h"

namespace subbyte::wrapped {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int kMaxScaledBits = 8;

Error refuse(const std::string& what, const std::string& expected, const std::string& found) {
  return {"matrix.argument", "matrix: " + what + ": expected " + expected + ", found " + found};
}

bool is_known(Format format) {
  return static_cast<std::size_t>(format) <= all_formats().size();
}

bool is_scale(Format format) {
  return is_known(format) && format != Format::kNone && bits(format) % 8 == 0;
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
  if (format.zero > Zero::kF32) {
    return refuse("zero", "none, u8, u16, f16, bf16 or f32",
                  std::to_string(static_cast<int>(format.zero)));
  }
  if (format.scale == Format::kNone) {
    const bool is_float = format.element <= Format::kBF16;
    if (is_float && format.zero == Zero::kNone) return {};
    return refuse("scale", "a format, or elements of f32, f16 or bf16 without zero points", "none");
  }
  if (!is_scale(format.scale)) return refuse("scale", "whole bytes", shown(format.scale));
  if (bits(format.element) <= kMaxScaledBits) return {};
  return refuse("element", "up to 8 bits beside scales", shown(format.element));
}

Status check_order(const MatrixParts& parts) {
  if (parts.input_order.empty()) return {};
  if (std::ssize(parts.input_order) != parts.cols) {
    return refuse("input_order", std::to_string(parts.cols) + " inputs",
                  std::to_string(parts.input_order.size()));
  }
  const std::string fault = input_order_fault(parts.input_order);
  if (fault.empty()) return {};
  return Error{"matrix.argument", "matrix: input_order: expected " + fault};
}

Status check_size(const char* what, std::span<const std::byte> bytes, int64_t expected) {
  if (std::ssize(bytes) == expected && (bytes.data() != nullptr || expected == 0)) return {};
  return refuse(what, std::to_string(expected) + " bytes", std::to_string(bytes.size()));
}

Status check_codebook(const MatrixParts& parts) {
  if (parts.codebook.empty()) return {};
  if (!may_have_codebook(parts.format.element)) {
    return refuse("codebook", "elements of nfl2 to nfl5, vq2 or vq4",
                  std::string(name(parts.format.element)));
  }
  const std::string fault = codebook_fault(parts.codebook, parts.format.element);
  if (fault.empty()) return {};
  return Error{"matrix.argument", "matrix: codebook: expected " + fault};
}

Result<MatrixView> view_of(const MatrixParts& parts) {
  SUBBYTE_CHECK(check_format(parts.format));
  if (parts.rows < 0 || parts.rows > kMaxSize || parts.cols < 1 || parts.cols > kMaxSize) {
    return refuse("rows and cols", "up to 2^24, and a column",
                  std::to_string(parts.rows) + " and " + std::to_string(parts.cols));
  }
  MatrixView view;
  view.format = parts.format;
  view.rows = parts.rows;
  view.cols = parts.cols;
  if (view.format.rotation != 0 && view.cols % view.format.rotation != 0) {
    return refuse("rotation", "a part of " + std::to_string(view.cols) + " columns",
                  std::to_string(view.format.rotation));
  }
  const int64_t groups = view.rows * view.groups();
  const int64_t scale_bytes = bits(parts.format.scale) / 8;
  SUBBYTE_CHECK(check_size("codes", parts.codes, view.rows * view.row_bytes()));
  SUBBYTE_CHECK(check_size("scales", parts.scales, groups * scale_bytes));
  SUBBYTE_CHECK(check_size("zeros", parts.zeros, groups * zero_bytes(view.format.zero)));
  SUBBYTE_CHECK(check_order(parts));
  SUBBYTE_CHECK(check_codebook(parts));
  if (!std::isfinite(parts.tensor_scale)) {
    return refuse("tensor_scale", "a finite number", std::to_string(parts.tensor_scale));
  }
  view.codes = parts.codes;
  view.scales = parts.scales;
  view.zeros = parts.zeros;
  view.tensor_scale = parts.tensor_scale;
  view.codebook = parts.codebook;
  view.input_order = parts.input_order;
  return view;
}

MatrixParts parts_of(const MatrixView& view) {
  return {.format = view.format,
          .rows = view.rows,
          .cols = view.cols,
          .codes = view.codes,
          .scales = view.scales,
          .zeros = view.zeros,
          .tensor_scale = view.tensor_scale,
          .codebook = view.codebook,
          .input_order = view.input_order};
}

template <typename Rows, typename Number>
Status dequantize_rows(const MatrixView& view, int64_t first, std::span<Number> out) {
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

Matrix::Data::Data(subbyte::Matrix of) : matrix(std::move(of)), parts(parts_of(matrix.view)) {}

const MatrixView& Matrix::Data::for_kernels() const {
  std::call_once(once_, [&] { for_kernels_ = for_host_kernels(matrix); });
  return for_kernels_.view;
}

Result<const device::HostWeights*> Matrix::Data::without_kernel(Execution& execution) const {
  const std::lock_guard lock(mutex_);
  const cpu::Kernels* const kernels = &execution.kernels();
  auto found = without_kernel_.find(kernels);
  if (found == without_kernel_.end()) {
    SUBBYTE_TRY(device::HostWeights made, device::HostWeights::create(execution, matrix));
    found = without_kernel_.emplace(kernels, std::move(made)).first;
  }
  return &found->second;
}

Matrix to_public(subbyte::Matrix matrix) {
  return Matrix(std::make_shared<const Matrix::Data>(std::move(matrix)));
}

Result<Matrix> Matrix::of(const MatrixParts& parts, std::shared_ptr<const void> owner) {
  auto view = view_of(parts);
  if (!view.ok()) return std::move(view).error();
  return to_public(subbyte::Matrix{*view, {std::move(owner)}});
}

const MatrixParts& Matrix::parts() const {
  return data_->parts;
}

int64_t Matrix::num_bytes() const {
  return data_->matrix.view.bytes();
}

Status Matrix::dequantize(int64_t first, std::span<float> out) const {
  return dequantize_rows<FloatRows>(data_->matrix.view, first, out);
}

Status Matrix::dequantize(int64_t first, std::span<double> out) const {
  return dequantize_rows<Dequantizer>(data_->matrix.view, first, out);
}

}  // namespace subbyte::wrapped
