#include "quantize/quantize_formats.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/quote.h"
#include "formats/rotation.h"
#include "quantize/fp8.h"
#include "quantize/kbit.h"
#include "quantize/loss.h"
#include "quantize/mxfp4.h"
#include "quantize/nf4.h"
#include "quantize/nvfp4.h"
#include "quantize/quantize_rows.h"
#include "quantize/round_to_nearest.h"
#include "quantize/vq.h"

namespace subbyte {
namespace {

constexpr int k4[] = {4};
constexpr int k8[] = {8};
constexpr int kGptqBits[] = {2, 3, 4, 8};
constexpr int kCompressedBits[] = {2, 3, 4, 5, 6, 7, 8};
constexpr int kKbitBits[] = {2, 3, 4, 5};
constexpr int kVqBits[] = {2, 4};
constexpr int64_t kGptqGroups[] = {16, 32, 64, 128, 256, 512, 1024};
constexpr int64_t kNf4Groups[] = {32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr int64_t k16[] = {16};
constexpr int64_t k32[] = {32};
constexpr int64_t kFp8Groups[] = {kFp8Block};

WeightFormat integer_format(const QuantizeForm& form) {
  const int step = form.bits - 2;
  const Format first = form.symmetric ? Format::kI2 : Format::kU2;
  const Zero zero = form.bits == 8 ? Zero::kU16 : Zero::kU8;
  return {static_cast<Format>(static_cast<int>(first) + step), Format::kF16,
          form.symmetric ? Zero::kNone : zero, form.group_size};
}

template <int least_zero>
Result<Matrix> quantize_integers(const QuantizeInput& input, const QuantizeForm& form,
                                 Executor& pool) {
  const auto& [rows, cols, read_row, largest] = input;
  if (form.symmetric) {
    return quantize_symmetric(rows, cols, form.group_size, form.bits, read_row, pool);
  }
  return quantize_min_max(rows, cols, form.group_size, form.bits, read_row, pool, least_zero);
}

WeightFormat mxfp4_format(const QuantizeForm& form) {
  return {Format::kE2M1, Format::kE8M0, Zero::kNone, form.group_size};
}

Result<Matrix> to_mxfp4(const QuantizeInput& input, const QuantizeForm&, Executor& pool) {
  return quantize_mxfp4(input.rows, input.cols, input.read_row, pool);
}

WeightFormat nvfp4_format(const QuantizeForm& form) {
  return {Format::kE2M1, Format::kE4M3, Zero::kNone, form.group_size};
}

template <TensorFactor factor>
Result<Matrix> to_nvfp4(const QuantizeInput& input, const QuantizeForm&, Executor& pool) {
  return quantize_nvfp4(input.rows, input.cols, {input.largest, factor}, input.read_row, pool);
}

WeightFormat nf4_format(const QuantizeForm& form) {
  return {Format::kNF4, Format::kF32, Zero::kNone, form.group_size};
}

Result<Matrix> to_nf4(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  return quantize_nf4(input.rows, input.cols, form.group_size, input.read_row, pool);
}

WeightFormat fp8_format(const QuantizeForm& form) {
  return {Format::kE4M3, Format::kF32, Zero::kNone, form.group_size};
}

Result<Matrix> to_fp8(const QuantizeInput& input, const QuantizeForm&, Executor& pool) {
  return quantize_fp8(input.rows, input.cols, input.read_row, pool);
}

/// Of kbit and vq.
Format kbit_scale(const QuantizeForm& form) {
  return form.scale == Format::kNone ? Format::kE4M4 : form.scale;
}

WeightFormat kbit_format(const QuantizeForm& form) {
  return {kbit_element(form.bits), kbit_scale(form), Zero::kNone, kKbitBlock};
}

Result<Matrix> to_kbit(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  KbitOptions options;
  options.bits = form.bits;
  options.rule = KbitRule::kLeastError;
  options.scales = {kbit_scale(form), kbit_factor(input.largest)};
  return quantize_kbit(input.rows, input.cols, options, input.read_row, pool);
}

/// Named by its usual width; rules give single matrices others.
constexpr QuantizeFormat kbit_row(std::string_view name, int bits, std::string_view series) {
  return {.name = name,
          .exporter = "kbit",
          .bits = kKbitBits,
          .default_bits = bits,
          .series = series,
          .group_sizes = k32,
          .default_group = 32,
          .mixed = true,
          .f16_scales = true,
          .format = kbit_format,
          .quantize = to_kbit};
}

WeightFormat vq_format(const QuantizeForm& form) {
  return {vq_element(form.bits), kbit_scale(form), Zero::kNone, kKbitBlock};
}

Result<Matrix> to_vq(const QuantizeInput& input, const QuantizeForm& form, Executor& pool) {
  VqOptions options;
  options.bits = form.bits;
  options.rotation = rotation_of(input.cols, kLargestRotation);
  options.scales = {kbit_scale(form), kbit_factor(input.largest)};
  return quantize_vq(input.rows, input.cols, options, input.read_row, pool);
}

constexpr QuantizeFormat vq_row(std::string_view name, int bits, std::string_view series) {
  return {.name = name,
          .exporter = "vq",
          .bits = kVqBits,
          .default_bits = bits,
          .series = series,
          .group_sizes = k32,
          .default_group = 32,
          .rotation = kLargestRotation,
          .mixed = true,
          .f16_scales = true,
          .format = vq_format,
          .quantize = to_vq};
}

constexpr QuantizeFormat kFormats[] = {{.name = "awq",
                                        .exporter = "awq",
                                        .bits = k4,
                                        .symmetry = Symmetry::kNever,
                                        .head = false,
                                        .f16_floats = true,
                                        .format = integer_format,
                                        .quantize = quantize_integers<0>},
                                       {.name = "gptq",
                                        .exporter = "gptq",
                                        .bits = kGptqBits,
                                        .group_sizes = kGptqGroups,
                                        .whole_rows = true,
                                        .symmetry = Symmetry::kByDefault,
                                        .mixed = true,
                                        .format = integer_format,
                                        .quantize = quantize_integers<1>},
                                       {.name = "gptq_v2",
                                        .exporter = "gptq_v2",
                                        .bits = kGptqBits,
                                        .group_sizes = kGptqGroups,
                                        .whole_rows = true,
                                        .symmetry = Symmetry::kByDefault,
                                        .mixed = true,
                                        .format = integer_format,
                                        .quantize = quantize_integers<0>},
                                       {.name = "compressed-tensors",
                                        .exporter = "pack_quantized",
                                        .bits = kCompressedBits,
                                        .whole_rows = true,
                                        .symmetry = Symmetry::kByDefault,
                                        .mixed = true,
                                        .embedding = true,
                                        .format = integer_format,
                                        .quantize = quantize_integers<0>},
                                       {.name = "int8",
                                        .exporter = "pack_quantized",
                                        .bits = k8,
                                        .default_bits = 8,
                                        .default_group = 0,
                                        .whole_rows = true,
                                        .symmetry = Symmetry::kByDefault,
                                        .embedding = true,
                                        .format = integer_format,
                                        .quantize = quantize_integers<0>},
                                       {.name = "fp8",
                                        .exporter = "fp8",
                                        .bits = k8,
                                        .default_bits = 8,
                                        .group_sizes = kFp8Groups,
                                        .short_groups = true,
                                        .format = fp8_format,
                                        .quantize = to_fp8},
                                       {.name = "float_quantized",
                                        .exporter = "float_quantized",
                                        .bits = k8,
                                        .default_bits = 8,
                                        .group_sizes = kFp8Groups,
                                        .short_groups = true,
                                        .format = fp8_format,
                                        .quantize = to_fp8},
                                       {.name = "mxfp4",
                                        .exporter = "mxfp4",
                                        .without_stacks = "mxfp4_pack_quantized",
                                        .bits = k4,
                                        .group_sizes = k32,
                                        .default_group = 32,
                                        .head = false,
                                        .format = mxfp4_format,
                                        .quantize = to_mxfp4},
                                       {.name = "mxfp4_pack_quantized",
                                        .exporter = "mxfp4_pack_quantized",
                                        .bits = k4,
                                        .group_sizes = k32,
                                        .default_group = 32,
                                        .format = mxfp4_format,
                                        .quantize = to_mxfp4},
                                       {.name = "nvfp4",
                                        .exporter = "nvfp4_pack_quantized",
                                        .bits = k4,
                                        .group_sizes = k16,
                                        .default_group = 16,
                                        .format = nvfp4_format,
                                        .quantize = to_nvfp4<TensorFactor::kDivides>},
                                       {.name = "modelopt_nvfp4",
                                        .exporter = "modelopt_nvfp4",
                                        .bits = k4,
                                        .group_sizes = k16,
                                        .default_group = 16,
                                        .format = nvfp4_format,
                                        .quantize = to_nvfp4<TensorFactor::kMultiplies>},
                                       {.name = "nf4",
                                        .exporter = "bnb_nf4",
                                        .bits = k4,
                                        .group_sizes = kNf4Groups,
                                        .default_group = 64,
                                        .format = nf4_format,
                                        .quantize = to_nf4},
                                       kbit_row("kbit2", 2, "kbit"),
                                       kbit_row("kbit3", 3, "kbit"),
                                       kbit_row("kbit4", 4, "kbit"),
                                       kbit_row("kbit5", 5, "kbit"),
                                       vq_row("vq2", 2, "vq"),
                                       vq_row("vq4", 4, "vq")};

/// What the formats with a width in their names are of; of a mean of widths it is what is written.
constexpr QuantizeFormat kSeries[] = {kbit_row("kbit", 4, {}), vq_row("vq", 2, {})};

/// A name that other software has.
struct OtherName {
  std::string_view name;
  std::string_view ours;
  int bits = 0;  // that it says; 0: none
};
constexpr OtherName kOtherNames[] = {{"compressed_tensors", "compressed-tensors"},
                                     {"pack_quantized", "compressed-tensors"},
                                     {"w4a16", "compressed-tensors", 4},
                                     {"w8a16", "int8", 8},
                                     {"nvfp4_pack_quantized", "nvfp4"},
                                     {"bnb_nf4", "nf4"},
                                     {"bitsandbytes", "nf4"},
                                     {"bnb", "nf4"},
                                     {"modelopt", "modelopt_nvfp4"}};

/// The name without what does not count.
std::string spelled(std::string_view name) {
  std::string usual(name);
  std::ranges::transform(usual, usual.begin(), [](char c) {
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return usual;
}

const OtherName* find_other_name(std::string_view usual) {
  const auto other = std::ranges::find(kOtherNames, usual, &OtherName::name);
  return other == std::end(kOtherNames) ? nullptr : other;
}

const QuantizeFormat* find_in(std::span<const QuantizeFormat> formats, std::string_view name) {
  const auto found = std::ranges::find(formats, name, &QuantizeFormat::name);
  return found == formats.end() ? nullptr : &*found;
}

/// The bits that the name says; 0: none.
int named_bits(const QuantizeFormat& format, const OtherName* other) {
  if (other != nullptr && other->bits != 0) return other->bits;
  return format.series.empty() ? 0 : format.default_bits;
}

/// The shortest text of a number: "4", "3.4".
std::string shown(double number) {
  char text[32];
  const auto [end, failed] = std::to_chars(std::begin(text), std::end(text), number);
  return failed == std::errc() ? std::string(text, end) : std::string();
}

template <typename T>
std::string listed(std::span<const T> numbers) {
  std::string text;
  for (const T number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

Error other_bits(std::string_view name, const QuantizeFormat& format, double bits, int named) {
  const QuantizeFormat* series = find_in(kSeries, format.series);
  if (series == nullptr) series = &format;
  std::string has;
  if (series->bits.size() > 1)
    has = "; " + std::string(series->name) + " has " + list_bits(*series);
  return Error{"quantize.bits", shown(bits) + " bits, expected " + std::to_string(named) +
                                    ", which the name " + quote(name) + " says" + has};
}

Error no_such_bits(const QuantizeFormat& format, double bits) {
  return Error{"quantize.bits", shown(bits) + " bits, expected " + list_bits(format) +
                                    ", which are what " + std::string(format.name) + " has"};
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

std::span<const QuantizeFormat> quantize_formats() {
  return kFormats;
}

std::vector<std::string> quantize_format_names() {
  std::vector<std::string> names;
  for (const QuantizeFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

const QuantizeFormat* find_quantize_format(std::string_view name) {
  std::string usual = spelled(name);
  if (const OtherName* const other = find_other_name(usual)) usual = other->ours;
  const QuantizeFormat* const found = find_in(kFormats, usual);
  return found != nullptr ? found : find_in(kSeries, usual);
}

Result<const QuantizeFormat*> choose_quantize_format(std::string_view name,
                                                     std::optional<double> bits,
                                                     ElsewhereFormat elsewhere) {
  const QuantizeFormat* const found = find_quantize_format(name);
  if (found == nullptr) {
    return unknown_format("quantize.format", name, quantize_format_names(), elsewhere);
  }
  const int named = named_bits(*found, find_other_name(spelled(name)));
  if (bits && named != 0 && *bits != named) return other_bits(name, *found, *bits, named);
  const double width = bits.value_or(named != 0 ? named : found->default_bits);
  if (width != std::floor(width) && !std::isnan(width)) return found;  // a mean of widths
  if (std::ranges::find(found->bits, width) == found->bits.end()) {
    return no_such_bits(*found, width);
  }
  const auto member = std::ranges::find_if(kFormats, [&](const QuantizeFormat& format) {
    return format.series == found->name && format.default_bits == width;
  });
  return member == std::end(kFormats) ? found : &*member;
}

const QuantizeFormat* quantize_format_of(std::string_view exporter) {
  const auto found = std::ranges::find(kFormats, exporter, &QuantizeFormat::exporter);
  return found == std::end(kFormats) ? nullptr : &*found;
}

Status check_form(const QuantizeFormat& format, const QuantizeForm& form) {
  const std::string name(format.name);
  if (!format.holds_bits(form.bits)) return no_such_bits(format, form.bits);
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
