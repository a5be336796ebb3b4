#include "subbyte/matrix.h"

#include <cmath>
#include <vector>

#include "cpp_interface/matrix_data.h"
#include "matrix/codebook.h"
#include "matrix/dequantize.h"
#include "matrix/float_rows.h"
#include "matrix/input_order.h"

namespace subbyte::v0 {
namespace {

// The public enumerations are the own ones, number by number.
static_assert(static_cast<int>(Format::kNone) == static_cast<int>(subbyte::Format::kNone));
#define SUBBYTE_FORMAT(Id, file) \
  static_assert(static_cast<int>(Format::Id) == static_cast<int>(subbyte::Format::Id));
#define SUBBYTE_VECTOR_FORMAT SUBBYTE_FORMAT
#include "formats/formats.def"
#undef SUBBYTE_FORMAT
#undef SUBBYTE_VECTOR_FORMAT
static_assert(static_cast<int>(Zero::kU8) == static_cast<int>(subbyte::Zero::kU8));
static_assert(static_cast<int>(Zero::kU16) == static_cast<int>(subbyte::Zero::kU16));
static_assert(static_cast<int>(Zero::kF16) == static_cast<int>(subbyte::Zero::kF16));
static_assert(static_cast<int>(Zero::kBF16) == static_cast<int>(subbyte::Zero::kBF16));
static_assert(static_cast<int>(Zero::kF32) == static_cast<int>(subbyte::Zero::kF32));

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int kMaxScaledBits = 8;

subbyte::Error refuse(const std::string& what, const std::string& expected,
                      const std::string& found) {
  return {"matrix.argument", "matrix: " + what + ": expected " + expected + ", found " + found};
}

bool is_known(Format format) {
  return static_cast<std::size_t>(format) <= all_formats().size();
}

bool is_scale(Format format) {
  return is_known(format) && format != Format::kNone && bits(format) % 8 == 0;
}

subbyte::Status check_format(const WeightFormat& format) {
  const auto shown = [](Format of) {
    return is_known(of) ? std::string(name(of)) : std::to_string(static_cast<int>(of));
  };
  if (!is_known(format.element) || format.element == Format::kNone) {
    return refuse("element", "a format", shown(format.element));
  }
  if (format.group_size < 0 || format.group_size > kMaxSize) {
    return refuse("group_size", "0 to 2^24", std::to_string(format.group_size));
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

subbyte::Status check_order(const MatrixParts& parts) {
  if (parts.input_order.empty()) return {};
  if (std::ssize(parts.input_order) != parts.cols) {
    return refuse("input_order", std::to_string(parts.cols) + " inputs",
                  std::to_string(parts.input_order.size()));
  }
  const std::string fault = input_order_fault(parts.input_order);
  if (fault.empty()) return {};
  return subbyte::Error{"matrix.argument", "matrix: input_order: expected " + fault};
}

subbyte::Status check_size(const char* what, std::span<const std::byte> bytes, int64_t expected) {
  if (std::ssize(bytes) == expected && (bytes.data() != nullptr || expected == 0)) return {};
  return refuse(what, std::to_string(expected) + " bytes", std::to_string(bytes.size()));
}

subbyte::Status check_codebook(const MatrixParts& parts) {
  if (parts.codebook.empty()) return {};
  if (!may_have_codebook(to_own(parts.format.element))) {
    return refuse("codebook", "elements of nfl2 to nfl5, vq2 or vq4",
                  std::string(name(parts.format.element)));
  }
  const std::string fault = codebook_fault(parts.codebook, to_own(parts.format.element));
  if (fault.empty()) return {};
  return subbyte::Error{"matrix.argument", "matrix: codebook: expected " + fault};
}

subbyte::Result<MatrixView> view_of(const MatrixParts& parts) {
  SUBBYTE_CHECK(check_format(parts.format));
  if (parts.rows < 0 || parts.rows > kMaxSize || parts.cols < 1 || parts.cols > kMaxSize) {
    return refuse("rows and cols", "up to 2^24, and a column",
                  std::to_string(parts.rows) + " and " + std::to_string(parts.cols));
  }
  MatrixView view;
  view.format = to_own(parts.format);
  view.rows = parts.rows;
  view.cols = parts.cols;
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
  return {.format = to_public(view.format),
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
subbyte::Status dequantize_rows(const MatrixView& view, int64_t first, std::span<Number> out) {
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

std::string_view name(Format format) {
  if (format == Format::kNone || !is_known(format)) return "none";
  return info(to_own(format)).name;
}

std::optional<Format> find_format(std::string_view name) {
  const FormatInfo* found = subbyte::find_format(name);
  if (found == nullptr) return std::nullopt;
  return to_public(found->id);
}

int bits(Format format) {
  return format == Format::kNone || !is_known(format) ? 0 : info(to_own(format)).bits;
}

double decode(Format format, uint32_t code) {
  return info(to_own(format)).decode(code);
}

uint32_t encode(Format format, double value) {
  return info(to_own(format)).encode(value, Rounding::kNearestEven);
}

std::string to_string(const WeightFormat& format) {
  return subbyte::to_string(to_own(format));
}

double bits_per_weight(const WeightFormat& format, int64_t cols) {
  return subbyte::bits_per_weight(to_own(format), cols);
}

Matrix::Data::Data(subbyte::Matrix of) : matrix(std::move(of)), parts(parts_of(matrix.view)) {}

const MatrixView& Matrix::Data::for_kernels() const {
  std::call_once(once_, [&] { for_kernels_ = for_host_kernels(matrix); });
  return for_kernels_.view;
}

subbyte::Result<const LinearWeights*> Matrix::Data::without_kernel(Execution& execution) const {
  const std::lock_guard lock(mutex_);
  const cpu::Kernels* const kernels = &execution.kernels();
  auto found = without_kernel_.find(kernels);
  if (found == without_kernel_.end()) {
    SUBBYTE_TRY(LinearWeights made, LinearWeights::create(execution, matrix));
    found = without_kernel_.emplace(kernels, std::move(made)).first;
  }
  return &found->second;
}

Matrix to_public(subbyte::Matrix matrix) {
  return Matrix(std::make_shared<const Matrix::Data>(std::move(matrix)));
}

Result<Matrix> Matrix::of(const MatrixParts& parts, std::shared_ptr<const void> owner) {
  auto view = view_of(parts);
  if (!view.ok()) return to_public(std::move(view).error());
  return to_public(subbyte::Matrix{*view, {std::move(owner)}});
}

const MatrixParts& Matrix::parts() const {
  return data_->parts;
}

int64_t Matrix::num_bytes() const {
  return data_->matrix.view.bytes();
}

Status Matrix::dequantize(int64_t first, std::span<float> out) const {
  return to_public(dequantize_rows<FloatRows>(data_->matrix.view, first, out));
}

Status Matrix::dequantize(int64_t first, std::span<double> out) const {
  return to_public(dequantize_rows<Dequantizer>(data_->matrix.view, first, out));
}

}  // namespace subbyte::v0
