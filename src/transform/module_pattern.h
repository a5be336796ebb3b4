#pragma once
// Patterns that choose modules by their names, as people write them for other tools.
//
//   lm_head                     a module of that name, or whose name begins or ends so, with whole
//   model.layers.0              parts between dots
//   mlp.down_proj
//   re:.*layers\.[0-3]\..*      a regular expression (ECMAScript) from the beginning of the name,
//                               as compressed-tensors takes them

#include <regex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

class ModulePattern {
 public:
  /// Code quantize.pattern for an empty text, a regular expression that is none, or one that is
  /// longer than kMostCharacters.
  static Result<ModulePattern> parse(std::string_view text);

  bool matches(std::string_view module) const;
  const std::string& text() const { return text_; }

  static constexpr std::size_t kMostCharacters = 1000;

 private:
  std::string text_;
  bool is_expression_ = false;
  std::regex expression_;
};

}  // namespace subbyte
