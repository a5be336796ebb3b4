#include "kernels/quantized_blocks.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/quote.h"
#include "kernels/block_codes.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr std::array<std::string_view, 3> kRules = {"ocp_floor", "ceil", "bump_175"};

int64_t rounded_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

constexpr std::size_t kMxGroup = 32;

void round_group(std::span<float> x) {
  uint32_t amax = 0;
  for (const float value : x) amax = std::max(amax, blocks::as_bits(value) & blocks::kMagnitude);
  constexpr int kCeil = static_cast<int>(ScaleRule::kCeil);
  const uint32_t scale =
      blocks::e8m0_of<blocks::E4M3>(amax, blocks::scale_threshold<blocks::E4M3>(kCeil));
  const float inverse = blocks::inverse_e8m0(scale);
  const float factor = blocks::e8m0_value(scale);  // NaN where one of them is
  for (float& value : x) {
    const uint32_t code = blocks::encode<blocks::E4M3>(blocks::as_bits(value * inverse));
    const float magnitude = blocks::e4m3_value(code & 0x7F) * factor;
    value = (code & 0x80) != 0 ? -magnitude : magnitude;
  }
}

}  // namespace

Format BlockQuantization::element() const {
  if (format == BlockFormat::kMxfp8E4M3) return Format::kE4M3;
  return format == BlockFormat::kMxfp8E5M2 ? Format::kE5M2 : Format::kE2M1;
}

Format BlockQuantization::scale() const {
  return format == BlockFormat::kNvfp4 ? Format::kE4M3 : Format::kE8M0;
}

int64_t BlockQuantization::scale_cols() const {
  return rounded_up(padded_cols() / group(), layout == ScaleLayout::kLinear ? 1 : 4);
}

int64_t BlockQuantization::scale_rows() const {
  if (layout == ScaleLayout::kLinear) return rows;
  return rounded_up(rows, layout == ScaleLayout::k128x4 ? 128 : 8);
}

Result<ScaleRule> find_scale_rule(std::string_view name) {
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    if (kRules[i] == name) return static_cast<ScaleRule>(i);
  }
  return Error{"blocks.rule",
               "scale rule: expected ocp_floor, ceil or bump_175, found " + quote(name)};
}

int64_t scale_byte(const BlockQuantization& blocks, int64_t row, int64_t group) {
  return blocks::scale_place(static_cast<int>(blocks.layout), row, group, blocks.scale_cols());
}

void round_to_mxfp8(std::span<float> x) {
  for (; !x.empty(); x = x.subspan(kMxGroup)) round_group(x.first(kMxGroup));
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

Status check_block_quantization(const BlockQuantization& blocks) {
  const auto& [format, input, rule, layout, rows, cols, alignment, tensor_scale] = blocks;
  if (input != Format::kF32 && input != Format::kF16 && input != Format::kBF16) {
    return Error{"blocks.input",
                 "quantize: expected f32, f16 or bf16, found " +
                     std::string(input == Format::kNone ? "none" : info(input).name)};
  }
  if (rows < 0 || rows > kMaxSize || cols < 1 || cols > kMaxSize || cols % blocks.group() != 0) {
    return Error{"blocks.shape", "quantize: expected up to 2^24 rows and columns, columns in " +
                                     std::to_string(blocks.group()) + "s, found " +
                                     std::to_string(rows) + " and " + std::to_string(cols)};
  }
  if (alignment < 32 || alignment > kMaxSize || alignment % 32 != 0) {
    return Error{"blocks.alignment",
                 "quantize: expected an alignment in 32s, found " + std::to_string(alignment)};
  }
  if (format == BlockFormat::kNvfp4 && !(tensor_scale >= 0x1p-100f && tensor_scale <= 0x1p100f)) {
    return Error{"blocks.tensor_scale",
                 "quantize: expected a tensor scale of 2^-100 to 2^100, found " +
                     std::to_string(tensor_scale)};
  }
  return {};
}

SUBBYTE_END_NAMESPACE
