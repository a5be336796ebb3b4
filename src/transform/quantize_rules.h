#pragma once
// A file that gives single matrices widths of their own: an object of JSON whose keys are patterns
// (module_pattern.h). The first one that names a matrix counts.
//
//   {
//     "lm_head": {"keep": true},
//     "model.layers.0": {"bits": 8},
//     "re:.*\\.down_proj$": {"bits": 6, "group_size": 32, "symmetric": false}
//   }

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transform/module_pattern.h"

namespace subbyte {

/// One of these, or a pattern of --ignore.
struct QuantizeRule {
  ModulePattern pattern;
  std::string where = {};  // file and pattern, for messages
  std::string_view code = "quantize.rules";
  bool keep = false;  // as it is
  std::optional<int> bits = {};
  std::optional<int64_t> group_size = {};  // 0 and -1: the whole row
  std::optional<bool> symmetric = {};
};

/// Codes: quantize.rules for a key that is none, a rule that says nothing or keeps what it gives
/// bits to, or whose key is no pattern, json.*, file.*.
Result<std::vector<QuantizeRule>> read_quantize_rules(const std::filesystem::path& file);

}  // namespace subbyte
