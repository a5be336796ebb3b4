#pragma once
// Which modules a quantization config says are not quantized: modules_to_not_convert, ignore,
// exclude_modules, llm_int8_skip_modules. The tensors decide what a module is; a config that says
// otherwise is refused.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"

namespace subbyte {

/// The names that tools have for such a list.
inline constexpr std::string_view kListsOfKept[] = {"modules_to_not_convert", "ignore",
                                                    "ignored_layers", "exclude_modules",
                                                    "llm_int8_skip_modules"};

class KeptModules {
 public:
  /// Adds the list `key` of a section, if it is there. Code json.type.
  Status add(const json::Object& section, std::string_view key);
  /// Adds all that there are of kListsOfKept.
  Status add_lists(const json::Object& section);

  /// The entry that names the module: its name, or the beginning or end of it, whole parts between
  /// dots. In a pattern "*" and ".*" stand for any text; one with other signs of a regular
  /// expression names nothing here, nor do patterns after the first kMaxPatterns. Empty: none.
  std::string_view entry_of(std::string_view module) const;

  static constexpr std::size_t kMaxPatterns = 256;

 private:
  std::set<std::string, std::less<>> names_;
  std::vector<std::string> patterns_;
};

}  // namespace subbyte
