#include "torch_operators/weights.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/quote.h"
#include "matrix/codebook.h"

namespace subbyte::torch_operators {
namespace {

/// Words of a text, one after the other.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}
  std::string_view next() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

Error bad_format(std::string_view text) {
  return refuse("format",
                "words like \"u4 g128 scale f16 zero u8\", \"e2m1 g32 scale e8m0\", "
                "\"nf4 per row scale f32\" or \"bf16\"",
                quote(text));
}

std::optional<int64_t> group_of(Words& words) {
  const std::string_view word = words.next();
  if (word == "per") return words.next() == "row" ? std::optional<int64_t>(0) : std::nullopt;
  int64_t size = 0;
  if (!word.starts_with('g')) return std::nullopt;
  const auto [end, failed] = std::from_chars(word.data() + 1, word.data() + word.size(), size);
  const bool whole = failed == std::errc() && end == word.data() + word.size() && size >= 1;
  return whole ? std::optional(size) : std::nullopt;
}

std::optional<Zero> zero_of(std::string_view kind, std::string_view type) {
  if (kind == "zero" && type == "u8") return Zero::kU8;
  if (kind == "zero" && type == "u16") return Zero::kU16;
  if (kind == "offset" && type == "f16") return Zero::kF16;
  if (kind == "offset" && type == "bf16") return Zero::kBF16;
  return std::nullopt;
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

/// Bytes of `tensor`, which is [rows][groups] of numbers of that many bits.
Result<std::span<const std::byte>> bytes_of(const std::optional<Tensor>& tensor, const char* name,
                                            const MatrixView& view, std::string_view type,
                                            int bytes, int32_t dtype) {
  const std::string expected =
      std::string(type) + " " + shown(std::array{view.rows, view.groups()});
  if (!tensor) return refuse(name, expected, "none");
  const bool types = tensor->dtype() == dtype || (bytes == 1 && tensor->dtype() == numbers().u8) ||
                     (bytes == 2 && dtype == numbers().u16 && tensor->dtype() == numbers().i16);
  if (!types || tensor->count() != view.rows * view.groups() ||
      (tensor->dim() > 0 && view.rows > 0 && tensor->size(0) != view.rows)) {
    return refuse(*tensor, expected);
  }
  return std::span<const std::byte>(tensor->span());
}

Status add_scales(const WeightTensors& tensors, MatrixView& view) {
  const WeightFormat& format = view.format;
  if (is_dense(format)) {
    if (tensors.scales) return refuse(*tensors.scales, "none beside dense weights");
    return {};
  }
  const FormatInfo& scale = info(format.scale);
  const int32_t dtype = scale.id == Format::kE8M0 ? numbers().e8m0 : dtype_of(scale.id);
  SUBBYTE_TRY(view.scales,
              bytes_of(tensors.scales, "scales", view, scale.name, scale.bits / 8, dtype));
  return {};
}

Status add_zeros(const WeightTensors& tensors, MatrixView& view) {
  const Zero zero = view.format.zero;
  if (zero == Zero::kNone) {
    if (tensors.zeros) return refuse(*tensors.zeros, "none, as the format has none");
    return {};
  }
  const bool offset = is_offset(zero);
  const int32_t dtype = offset              ? dtype_of(offset_format(zero))
                        : zero == Zero::kU8 ? numbers().u8
                                            : numbers().u16;
  SUBBYTE_TRY(view.zeros,
              bytes_of(tensors.zeros, "zeros", view, name_of(dtype), zero_bytes(zero), dtype));
  return {};
}

Result<double> scale_of_tensor(const std::optional<Tensor>& tensor) {
  if (!tensor) return 1.0;
  SUBBYTE_CHECK(check_dtype(*tensor, {numbers().f32, numbers().f64}));
  if (tensor->count() != 1) return refuse(*tensor, "one number");
  const Tensor host = tensor->to_cpu();
  return host.dtype() == numbers().f32 ? double{*host.data<float>()} : *host.data<double>();
}

Status add_codebook(const WeightTensors& tensors, MatrixView& view) {
  if (!tensors.codebook) return {};
  const Tensor& codebook = *tensors.codebook;
  SUBBYTE_CHECK(check_dtype(codebook, {numbers().f32}));
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
  const Tensor& order = *tensors.input_order;
  SUBBYTE_CHECK(check_dtype(order, {numbers().i32}));
  SUBBYTE_CHECK(check_sizes(order, {view.cols}));
  view.input_order = order.span<const uint32_t>();
  if (!order.on_cpu()) return {};
  const auto beyond = std::ranges::find_if(
      view.input_order, [&](uint32_t input) { return input >= static_cast<uint64_t>(view.cols); });
  if (beyond == view.input_order.end()) return {};
  return refuse("input_order", "inputs below " + std::to_string(view.cols),
                std::to_string(static_cast<int32_t>(*beyond)));
}

}  // namespace

Result<WeightFormat> parse_format(std::string_view text) {
  Words words(text);
  const FormatInfo* element = find_format(words.next());
  if (element == nullptr) return bad_format(text);
  WeightFormat format;
  format.element = element->id;
  if (words.done()) {
    if (!is_float(format.element)) return bad_format(text);
    return format;
  }
  const std::optional<int64_t> group = group_of(words);
  const bool has_scale = words.next() == "scale";
  const FormatInfo* scale = find_format(words.next());
  if (!group || !has_scale || scale == nullptr || scale->bits % 8 != 0 || element->bits > 8) {
    return bad_format(text);
  }
  format.group_size = *group;
  format.scale = scale->id;
  if (words.done()) return format;
  const std::string_view kind = words.next();
  const std::optional<Zero> zero = zero_of(kind, words.next());
  if (!zero || !words.done()) return bad_format(text);
  format.zero = *zero;
  return format;
}

WeightTensors::WeightTensors(Arguments& arguments)
    : codes(arguments.packed_tensor("codes")),
      scales(arguments.optional_tensor("scales")),
      zeros(arguments.optional_tensor("zeros")),
      format(arguments.text()),
      tensor_scale(arguments.optional_tensor("tensor_scale")),
      codebook(arguments.optional_tensor("codebook")),
      input_order(arguments.optional_tensor("input_order")) {}

std::array<const Tensor*, 6> WeightTensors::sources() const {
  const auto of = [](const std::optional<Tensor>& tensor) { return tensor ? &*tensor : nullptr; };
  return {&codes, of(scales), of(zeros), of(tensor_scale), of(codebook), of(input_order)};
}

WeightTensors WeightTensors::to_cpu() const {
  const auto copy = [](const std::optional<Tensor>& tensor) {
    return tensor ? std::optional(tensor->to_cpu()) : std::nullopt;
  };
  WeightTensors host(codes.to_cpu(), format);
  host.scales = copy(scales);
  host.zeros = copy(zeros);
  host.tensor_scale = copy(tensor_scale);
  host.codebook = copy(codebook);
  host.input_order = copy(input_order);
  return host;
}

Result<MatrixView> matrix_of(const WeightTensors& tensors, int64_t cols) {
  MatrixView view;
  SUBBYTE_TRY(view.format, parse_format(tensors.format));
  SUBBYTE_CHECK(check_dim(tensors.codes, 2));
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  if (cols < 1 || cols > kMaxSize || tensors.codes.size(0) > kMaxSize) {
    return refuse("weights", "1 to 2^24 inputs and up to 2^24 outputs",
                  std::to_string(cols) + " and " + std::to_string(tensors.codes.size(0)));
  }
  SUBBYTE_CHECK(check_codes(tensors.codes, view.format, cols));
  view.rows = tensors.codes.size(0);
  view.cols = cols;
  view.codes = tensors.codes.span();
  SUBBYTE_CHECK(add_scales(tensors, view));
  SUBBYTE_CHECK(add_zeros(tensors, view));
  SUBBYTE_TRY(view.tensor_scale, scale_of_tensor(tensors.tensor_scale));
  SUBBYTE_CHECK(add_codebook(tensors, view));
  SUBBYTE_CHECK(add_input_order(tensors, view));
  return view;
}

}  // namespace subbyte::torch_operators
