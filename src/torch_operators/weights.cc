#include "torch_operators/weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/quote.h"
#include "checkpoints/named_form.h"
#include "formats/weight_format.h"
#include "formats/weight_format_text.h"
#include "matrix/codebook.h"
#include "matrix/input_order.h"

namespace subbyte::torch_operators {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;

Error bad_format(std::string_view text) {
  return refuse("format",
                "words like \"u4 g128 scale f16 zero u8\", \"e2m1 g32 scale e8m0\", "
                "\"nf4 per row scale f32\" or \"bf16\", and of at most 2^24 inputs in a group",
                quote(text));
}

bool is_float(Format format) {
  return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16;
}

Status check_codes(const Tensor& codes, const WeightFormat& format, int64_t cols) {
  const int64_t rows = codes.size(0);
  if (is_dense(format)) {
    SUBBYTE_CHECK(check_dtype(codes, {dtype_of(format.element)}));
    return check_sizes(codes, {rows, cols});
  }
  SUBBYTE_CHECK(
      check_dtype(codes, {numbers().u8, numbers().i8,
                          codes.format() == format.element ? codes.dtype() : numbers().u8}));
  const int64_t row_bytes = (cols * info(format.element).bits + 7) / 8;
  return check_sizes(codes, {rows, row_bytes});
}

/// Bytes of `tensor`, which is [rows][row_bytes / bytes] of numbers of that many bytes.
Result<std::span<const std::byte>> bytes_of(const std::optional<Tensor>& tensor, const char* name,
                                            const MatrixView& view, std::string_view type,
                                            int64_t row_bytes, int bytes, int32_t dtype) {
  const int64_t cols = row_bytes / bytes;
  const auto expected = [&] {
    return std::string(type) + " " + shown(std::array{view.rows, cols});
  };
  if (!tensor) return refuse(name, expected(), "none");
  const bool types = tensor->dtype() == dtype || (bytes == 1 && tensor->dtype() == numbers().u8) ||
                     (bytes == 2 && dtype == numbers().u16 && tensor->dtype() == numbers().i16);
  if (!types || tensor->count() != view.rows * cols ||
      (tensor->dim() > 0 && view.rows > 0 && tensor->size(0) != view.rows)) {
    return refuse(*tensor, expected());
  }
  return std::span<const std::byte>(tensor->span());
}

Status add_scales(const WeightTensors& tensors, MatrixView& view) {
  const WeightFormat& format = view.format;
  if (is_dense(format)) {
    if (tensors.scales) return refuse(*tensors.scales, "none beside dense weights");
    return {};
  }
  const bool two_levels = has_two_levels(format.scale);
  const int32_t dtype = two_levels                      ? numbers().u8
                        : format.scale == Format::kE8M0 ? numbers().e8m0
                                                        : dtype_of(format.scale);
  const std::string_view type = two_levels ? name_of(dtype) : info(format.scale).name;
  SUBBYTE_TRY(view.scales, bytes_of(tensors.scales, "scales", view, type, view.scale_row_bytes(),
                                    scale_bytes(format.scale), dtype));
  return {};
}

Status add_zeros(const WeightTensors& tensors, MatrixView& view) {
  const Zero zero = view.format.zero;
  if (zero == Zero::kNone) {
    if (tensors.zeros) return refuse(*tensors.zeros, "none, as the format has none");
    return {};
  }
  const bool is_bytes = zero == Zero::kU8 || has_two_levels(zero);
  const int32_t dtype = is_bytes          ? numbers().u8
                        : is_offset(zero) ? dtype_of(offset_format(zero))
                                          : numbers().u16;
  SUBBYTE_TRY(view.zeros, bytes_of(tensors.zeros, "zeros", view, name_of(dtype),
                                   view.zero_row_bytes(), zero_bytes(zero), dtype));
  return {};
}

Result<double> scale_of_tensor(const std::optional<Tensor>& tensor) {
  if (!tensor) return 1.0;
  const Tensor host = tensor->to_cpu();
  const double scale =
      host.dtype() == numbers().f32 ? double{*host.data<float>()} : *host.data<double>();
  if (std::isfinite(scale)) return scale;
  return refuse("tensor_scale", "a finite number", std::to_string(scale));
}

Status add_codebook(const WeightTensors& tensors, MatrixView& view) {
  if (!tensors.codebook) return {};
  const Tensor& codebook = *tensors.codebook;
  if (!may_have_codebook(view.format.element)) {
    return refuse(codebook, "none, as only nfl2 to nfl5, vq2 and vq4 have codebooks of their own");
  }
  view.codebook = codebook.span<const float>();
  if (!codebook.on_cpu()) return {};
  const std::string fault = codebook_fault(view.codebook, view.format.element);
  return fault.empty() ? Status() : refuse(codebook, fault);
}

Status add_input_order(const WeightTensors& tensors, MatrixView& view) {
  if (!tensors.input_order) return {};
  if (has_two_levels(view.format)) {
    return refuse(*tensors.input_order, "none beside scales of two levels");
  }
  const Tensor& order = *tensors.input_order;
  view.input_order = order.span<const uint32_t>();
  if (!order.on_cpu()) return {};
  const std::string fault = input_order_fault(view.input_order);
  return fault.empty() ? Status() : Error{device::kArgument, "input_order: expected " + fault};
}

}  // namespace

Result<WordedFormat> parse_format(std::string_view text) {
  const std::optional<Format> element = find_format(text);
  if (text.find(' ') == std::string_view::npos && !(element && is_float(*element))) {
    SUBBYTE_TRY(const NamedForm named,
                named_form({.format = std::string(text)}, 0));  // its usual form
    return WordedFormat{named.weights()};
  }
  constexpr std::string_view kCols = " cols ";
  const std::size_t end = std::min(text.rfind(kCols), text.size());
  const std::optional<WeightFormat> format = find_weight_format(text.substr(0, end));
  if (!format) return bad_format(text);
  WordedFormat worded = {*format};
  if (end == text.size()) return worded;
  if (is_dense(worded.format)) return bad_format(text);
  const std::optional<int64_t> cols = find_matrix_size(text.substr(end + kCols.size()));
  if (!cols) return bad_format(text);
  worded.cols = *cols;
  return worded;
}

Result<int64_t> cols_of(const WordedFormat& worded, int64_t row_size) {
  if (worded.cols != 0) return worded.cols;
  if (is_dense(worded.format)) return row_size;
  const int bits = info(worded.format.element).bits;
  const int64_t cols = row_size * 8 / bits;
  const bool is_whole = row_size * 8 % bits == 0;
  if (is_whole || ((cols - 1) * bits + 7) / 8 < row_size) return cols;
  return refuse("format",
                "the columns of rows that end within a byte, as in " +
                    quote(to_string(worded.format) + " cols " + std::to_string(cols)),
                "none, and rows of " + std::to_string(row_size) + " bytes");
}

WeightTensors::WeightTensors(Call& call)
    : codes(call.tensor()),
      scales(call.optional_tensor()),
      zeros(call.optional_tensor()),
      format(call.text()),
      tensor_scale(call.optional_tensor()),
      codebook(call.optional_tensor()),
      input_order(call.optional_tensor()) {}

std::array<const Tensor*, 6> WeightTensors::sources() const {
  const auto of = [](const std::optional<Tensor>& tensor) { return tensor ? &*tensor : nullptr; };
  return {&codes, of(scales), of(zeros), of(tensor_scale), of(codebook), of(input_order)};
}

Result<MatrixView> matrix_of(const WeightTensors& tensors, Call& call,
                             std::optional<int64_t> given) {
  MatrixView view;
  SUBBYTE_CHECK(call.bind());
  SUBBYTE_TRY(const WordedFormat worded, parse_format(tensors.format));
  view.format = worded.format;
  view.rows = tensors.codes.size(0);
  if (given) {
    view.cols = *given;
  } else {
    SUBBYTE_TRY(view.cols, cols_of(worded, tensors.codes.size(1)));
  }
  if (view.cols < 1 || view.cols > kMaxSize || view.rows > kMaxSize) {
    return refuse("weights", "1 to 2^24 inputs and up to 2^24 outputs",
                  std::to_string(view.cols) + " and " + std::to_string(view.rows));
  }
  if (worded.cols != 0 && worded.cols != view.cols) {
    return refuse("cols", "the " + std::to_string(worded.cols) + " of the format",
                  std::to_string(view.cols));
  }
  call.bind("K", view.cols);
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_codes(tensors.codes, view.format, view.cols));
  view.codes = tensors.codes.span();
  SUBBYTE_CHECK(add_scales(tensors, view));
  SUBBYTE_CHECK(add_zeros(tensors, view));
  SUBBYTE_TRY(view.tensor_scale, scale_of_tensor(tensors.tensor_scale));
  SUBBYTE_CHECK(add_codebook(tensors, view));
  SUBBYTE_CHECK(add_input_order(tensors, view));
  return view;
}

}  // namespace subbyte::torch_operators
