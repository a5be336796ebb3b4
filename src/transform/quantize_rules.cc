#include "transform/quantize_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quote.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 20;
constexpr int64_t kMaxGroup = int64_t{1} << 20;
constexpr std::array<std::string_view, 4> kKeys = {"keep", "bits", "group_size", "symmetric"};

Result<QuantizeRule> read_rule(const json::Object& object, ModulePattern pattern) {
  QuantizeRule rule = {.pattern = std::move(pattern), .where = object.where()};
  for (const auto& [key, value] : object.members()) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    return object.error("quantize.rules", key, "keep, bits, group_size or symmetric as its name");
  }
  SUBBYTE_TRY(const auto keep, object.boolean("keep"));
  SUBBYTE_TRY(const auto bits, object.integer("bits", 2, 8));
  SUBBYTE_TRY(rule.group_size, object.integer("group_size", -1, kMaxGroup));
  SUBBYTE_TRY(rule.symmetric, object.boolean("symmetric"));
  rule.keep = keep.value_or(false);
  if (bits) rule.bits = static_cast<int>(*bits);
  const bool has_form = rule.bits || rule.group_size || rule.symmetric;
  if (rule.keep != has_form) return rule;
  return Error{
      "quantize.rules",
      fmt::format("{}: expected \"keep\": true, or bits, group_size or symmetric", object.where())};
}

}  // namespace

Result<std::vector<QuantizeRule>> read_quantize_rules(const std::filesystem::path& file) {
  SUBBYTE_TRY(const json::Value value, json::parse_file(file.string(), kMaxBytes));
  SUBBYTE_TRY(const json::Object rules, json::Object::of(value, file.string()));
  std::vector<QuantizeRule> result;
  for (const auto& [text, settings] : rules.members()) {
    Result<ModulePattern> pattern = ModulePattern::parse(text);
    if (!pattern.ok()) {
      return Error{"quantize.rules", fmt::format("{}: {}", file.string(), pattern.error().message)};
    }
    SUBBYTE_TRY(const json::Object object,
                json::Object::of(settings, fmt::format("{}: {}", file.string(), quote(text))));
    SUBBYTE_TRY(QuantizeRule rule, read_rule(object, std::move(*pattern)));
    result.push_back(std::move(rule));
  }
  return result;
}

}  // namespace subbyte
