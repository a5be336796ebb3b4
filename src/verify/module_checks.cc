#include "verify/module_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "base/quote.h"

namespace subbyte {
namespace {

/// With that many weights for each code, all codes occur unless something keeps them from it:
/// of codes drawn evenly one is missing with a probability of 256 * e^-32.
constexpr int64_t kWeightsPerCode = 32;
constexpr std::size_t kMaxListedCodes = 16;

/// The tensor of the module whose name holds `part`, else its first one.
std::string_view tensor_with(const ModuleInfo& info, std::string_view part) {
  for (const FileTensor* tensor : info.tensors) {
    if (tensor->name.find(part, tensor->name.rfind('.') + 1) != std::string::npos) {
      return tensor->name;
    }
  }
  return info.tensors.front()->name;
}

/// "3 of 96 scales are negative, the first of output 5, group 0".
std::string describe(const Tally& tally, int64_t total, std::string_view what,
                     const ModuleInfo& info, int64_t per_row, std::string_view unit) {
  const int64_t row = tally.first / per_row;
  std::string text =
      fmt::format("{} of {} {}, the first of output {}", tally.count, total, what, row % info.rows);
  if (info.experts > 1) text += fmt::format(" of expert {}", row / info.rows);
  if (!unit.empty()) text += fmt::format(", {} {}", unit, tally.first % per_row);
  return text;
}

int64_t groups_of(const CheckedModule& module) {
  return module.statistics.num_scales / module.statistics.num_rows;
}

void check_zero_scales(const CheckedModule& module, Findings& findings) {
  const MatrixStatistics& s = module.statistics;
  if (s.zero_scales.count == 0) return;
  findings.add("verify.scale_zero", scale_tensor(module.info), "positive scales",
               describe(s.zero_scales, s.num_scales, "scales that are 0", module.info,
                        groups_of(module), "group"));
}

/// The zero points of all groups lie in the middle, or there are none.
bool is_symmetric(const CheckedModule& module) {
  const WeightFormat& format = module.info.format;
  if (format.zero == Zero::kNone) return true;
  const uint32_t middle = uint32_t{1} << (info(format.element).bits - 1);
  const MatrixStatistics& s = module.statistics;
  return s.smallest_zero_point == middle && s.largest_zero_point == middle;
}

/// AutoRound chooses the sign of a symmetric scale so that the largest weight is at the end of the
/// codes that goes further.
void check_negative_scales(const CheckedModule& module, Findings& findings) {
  const MatrixStatistics& s = module.statistics;
  if (s.negative_scales.count == 0) return;
  if (module.config.by_auto_round && is_symmetric(module)) return;
  findings.add("verify.scale_negative", scale_tensor(module.info), "positive scales",
               describe(s.negative_scales, s.num_scales, "scales that are negative", module.info,
                        groups_of(module), "group"));
}

void check_magnitude(const CheckedModule& module, Findings& findings) {
  const MatrixStatistics& s = module.statistics;
  const std::string_view code = magnitude_code(s.largest);
  const std::string expected = fmt::format("weights up to {}", kLargestWeight);
  if (s.large_scales.count > 0) {
    findings.add(code, scale_tensor(module.info), expected,
                 describe(s.large_scales, s.num_scales, "scales that make larger ones", module.info,
                          groups_of(module), "group"));
  }
  if (s.large.count > 0) {
    findings.add(code, module.info.tensors.front()->name, expected,
                 describe(s.large, s.num_weights, "that are larger", module.info, module.info.cols,
                          "input"));
  }
}

/// GPTQ version 1 stores one less: a stored 15 is 16 to some readers and 0 to others.
void check_zero_point_range(const CheckedModule& module, Findings& findings) {
  const MatrixStatistics& s = module.statistics;
  if (s.zero_points_beyond.count == 0) return;
  const int largest = (1 << info(module.info.format.element).bits) - 1;
  findings.add("verify.zero_point_range", tensor_with(module.info, "zero"),
               fmt::format("zero points up to {}", largest),
               describe(s.zero_points_beyond, s.num_scales,
                        fmt::format("that are {}, which some readers take for 0", largest + 1),
                        module.info, groups_of(module), "group"));
}

/// What zero points tell of the config that its importer does not see.
void check_doubt(const CheckedModule& module, Findings& findings) {
  const Importer& importer = importer_of(module.info);
  if (importer.doubt == nullptr) return;
  const MatrixStatistics& s = module.statistics;
  auto doubt = importer.doubt(module.config, module.info,
                              {s.smallest_zero_point, s.largest_zero_point, s.num_scales});
  if (!doubt) return;
  findings.add(doubt->code, tensor_with(module.info, "zero"), std::move(doubt->expected),
               std::move(doubt->found));
}

/// Rows of a table of tokens are often left over, so that their number is a round one.
void check_dead_rows(const CheckedModule& module, Findings& findings) {
  const MatrixStatistics& s = module.statistics;
  if (s.dead_rows.count == 0) return;
  const bool table = module.name.ends_with("embed_tokens") || module.name.ends_with("lm_head");
  findings.add(
      table ? "verify.empty_tokens" : "verify.dead_rows", module.info.tensors.front()->name, {},
      describe(s.dead_rows, s.num_rows,
               table ? "tokens have weights that are all 0" : "outputs have weights that are all 0",
               module.info, 1, {}));
}

void check_finite(const CheckedModule& module, Findings& findings) {
  const MatrixStatistics& s = module.statistics;
  if (s.not_finite.count == 0) return;
  findings.add("import.not_finite", module.info.tensors.front()->name, "finite weights",
               describe(s.not_finite, s.num_weights, "that are NaN or infinite", module.info,
                        module.info.cols, "input"));
}

void check_unused_codes(const CheckedModule& module, Findings& findings) {
  // The codes of E4M3 near zero are rare, and those of NaN must not occur.
  if (is_dense(module.info.format) || module.info.format.element == Format::kE4M3) return;
  const MatrixStatistics& s = module.statistics;
  const FormatInfo& element = info(module.info.format.element);
  const uint32_t num_codes = uint32_t{1} << (element.bits * element.vector_size);
  if (s.num_weights < kWeightsPerCode * num_codes) return;
  std::vector<uint32_t> unused;
  for (uint32_t code = 0; code < num_codes; ++code) {
    if ((s.used_codes[code / 64] >> (code % 64) & 1) == 0) unused.push_back(code);
  }
  if (unused.empty()) return;
  const std::size_t listed = std::min(unused.size(), kMaxListedCodes);
  findings.add("verify.unused_codes", module.info.tensors.front()->name, {},
               fmt::format("{} of {} codes never occur: {}{}", unused.size(), num_codes,
                           fmt::join(std::span(unused).first(listed), ", "),
                           listed < unused.size() ? ", ..." : ""));
}

using ModuleCheck = void (*)(const CheckedModule& module, Findings& findings);

constexpr ModuleCheck kChecks[] = {
    check_finite,           check_magnitude, check_zero_scales, check_negative_scales,
    check_zero_point_range, check_doubt,     check_dead_rows,   check_unused_codes,
};

}  // namespace

std::string_view scale_tensor(const ModuleInfo& info) {
  const std::string_view absmax = tensor_with(info, "absmax");
  return absmax != info.tensors.front()->name ? absmax : tensor_with(info, "scale");
}

void check_module(const CheckedModule& module, Findings& findings) {
  for (const ModuleCheck check : kChecks) check(module, findings);
}

}  // namespace subbyte
