#include "transform/module_pattern.h"

#include <fmt/format.h>

#include "base/quote.h"

namespace subbyte {
namespace {

constexpr std::string_view kExpression = "re:";

}  // namespace

Result<ModulePattern> ModulePattern::parse(std::string_view text) {
  ModulePattern pattern;
  const auto refused = [&](std::string_view expected) {
    return Error{"quantize.pattern",
                 fmt::format("pattern {}: expected {}", quote(pattern.text()), expected)};
  };
  pattern.text_ = text;
  pattern.is_expression_ = text.starts_with(kExpression);
  if (pattern.is_expression_) text.remove_prefix(kExpression.size());
  if (text.empty()) return refused("the name of a module, or re: and a regular expression");
  if (text.size() > kMostCharacters) {
    return refused(fmt::format("at most {} characters", kMostCharacters));
  }
  if (!pattern.is_expression_) return pattern;
  try {
    pattern.expression_.assign(text.begin(), text.end(), std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    return refused(
        fmt::format("a regular expression after re:, found one with a fault ({})", error.what()));
  }
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  if (is_expression_) {
    try {
      return std::regex_search(module.begin(), module.end(), expression_,
                               std::regex_constants::match_continuous);
    } catch (const std::regex_error&) {  // it takes too many steps for this name
      return false;
    }
  }
  if (module.size() == text_.size()) return module == text_;
  if (module.size() < text_.size()) return false;
  const bool begins = module.starts_with(text_) && module[text_.size()] == '.';
  const bool ends = module.ends_with(text_) && module[module.size() - text_.size() - 1] == '.';
  return begins || ends;
}

}  // namespace subbyte
