#include "verify/refused_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoints/import_parts.h"
#include "verify/statistics.h"

namespace subbyte {
namespace {

constexpr std::string_view kScaleEndings[] = {".scales", "_scale", "_scales", "_scale_inv",
                                              ".absmax"};
constexpr std::string_view kGroups = "g_idx";

/// kNone for what is no scale of a known type: the absmax that is quantized itself, for one.
Format scale_format(const FileTensor& tensor) {
  const bool named = std::ranges::any_of(
      kScaleEndings, [&](std::string_view ending) { return tensor.name.ends_with(ending); });
  if (!named) return Format::kNone;
  if (tensor.dtype == DType::kF8E4M3) return Format::kE4M3;
  const bool blocks = tensor.name.ends_with("_scale") || tensor.name.ends_with("_scales");
  if (tensor.dtype == DType::kF8E8M0 || (tensor.dtype == DType::kU8 && blocks)) {
    return Format::kE8M0;
  }
  return float_format(tensor.dtype);
}

struct ScaleTallies {
  Tally nan;  // of floats these are counted elsewhere
  Tally zero;
  Tally negative;
};

ScaleTallies count_scales(const FileTensor& tensor, Format format) {
  ScaleTallies tallies;
  const FormatInfo& number = info(format);
  const auto width = static_cast<std::size_t>(number.bits / 8);
  for (std::size_t i = 0; i < tensor.bytes.size() / width; ++i) {
    uint32_t code = 0;
    std::memcpy(&code, tensor.bytes.data() + i * width, width);
    const double scale = number.decode(code);
    const auto index = static_cast<int64_t>(i);
    if (std::isnan(scale)) tallies.nan.add(index);
    if (scale == 0) tallies.zero.add(index);
    if (scale < 0) tallies.negative.add(index);
  }
  return tallies;
}

Tally count_negative(const FileTensor& tensor) {
  Tally negative;
  for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
    if (static_cast<int32_t>(load_u32(tensor, i)) < 0) negative.add(static_cast<int64_t>(i));
  }
  return negative;
}

std::string describe(const Tally& tally, std::size_t total, std::string_view what) {
  return fmt::format("{} of {} that are {}, the first at index {}", tally.count, total, what,
                     tally.first);
}

}  // namespace

void check_refused_tensor(VerifyContext& context, const FileTensor& tensor) {
  Findings& findings = context.findings;
  if (tensor.dtype == DType::kI32 && tensor.name.ends_with(kGroups)) {
    if (findings.has_refusal(tensor.name)) return;  // importers look at these first
    const Tally negative = count_negative(tensor);
    if (negative.count == 0) return;
    findings.add("gptq.g_idx_range", tensor.name, "numbers of groups",
                 describe(negative, tensor.bytes.size() / 4, "negative"));
    return;
  }
  const Format format = scale_format(tensor);
  if (format == Format::kNone) return;
  const std::size_t total = tensor.bytes.size() * 8 / static_cast<std::size_t>(info(format).bits);
  const ScaleTallies tallies = count_scales(tensor, format);
  if (tallies.nan.count > 0 && float_format(tensor.dtype) == Format::kNone) {
    findings.add("import.scale_not_finite", tensor.name, "finite scales",
                 describe(tallies.nan, total, "NaN"));
  }
  if (tallies.zero.count > 0) {
    findings.add("verify.scale_zero", tensor.name, "positive scales",
                 describe(tallies.zero, total, "0"));
  }
  if (tallies.negative.count > 0) {
    findings.add("verify.scale_negative", tensor.name, "positive scales",
                 describe(tallies.negative, total, "negative"));
  }
}

}  // namespace subbyte
