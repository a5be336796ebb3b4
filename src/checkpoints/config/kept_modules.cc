#include "checkpoints/config/kept_modules.h"

namespace subbyte {
namespace {

/// Whether a pattern with "*" is `text` or, from its beginning, whole parts of it. Linear for each
/// "*": the last one alone is tried again.
bool matches_from_begin(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, after_star = 0;
  while (true) {
    if (p == pattern.size() && (t == text.size() || text[t] == '.' || star + 1 == p)) return true;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && t < text.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos && after_star < text.size()) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
}

/// "model.layers*.mlp" of "re:^model\\.layers.*\\.mlp$" and the like; empty for other patterns.
std::string to_glob(std::string_view entry) {
  if (entry.starts_with("re:")) entry.remove_prefix(3);
  if (entry.starts_with('^')) entry.remove_prefix(1);
  if (entry.ends_with('$')) entry.remove_suffix(1);
  std::string glob;
  for (std::size_t i = 0; i < entry.size(); ++i) {
    const std::string_view two = entry.substr(i, 2);
    if (two == "\\." || two == ".*") ++i;  // the second of them counts
    if (std::string_view("\\[](){}|+?^$").find(entry[i]) != std::string_view::npos) return {};
    glob += entry[i];
  }
  return glob;
}

}  // namespace

Status KeptModules::add(const json::Object& section, std::string_view key) {
  const json::Value* const list = section.find(key);
  if (list == nullptr || list->is_null()) return {};
  if (!list->is_array()) return section.error("json.type", key, "a list of names of modules");
  for (const json::Value& value : *list) {
    if (!value.is_string()) return section.error("json.type", key, "a list of names of modules");
    std::string glob = to_glob(value.string());
    if (glob.empty()) continue;
    if (glob.find('*') == std::string::npos) {
      names_.insert(std::move(glob));
    } else if (patterns_.size() < kMaxPatterns) {
      patterns_.push_back(std::move(glob));
    }
  }
  return {};
}

Status KeptModules::add_lists(const json::Object& section) {
  for (const std::string_view key : kListsOfKept) SUBBYTE_CHECK(add(section, key));
  return {};
}

std::string_view KeptModules::entry_of(std::string_view module) const {
  const auto name = [&](std::string_view part) {
    const auto found = names_.find(part);
    return found == names_.end() ? std::string_view() : std::string_view(*found);
  };
  if (const std::string_view entry = name(module); !entry.empty()) return entry;
  for (std::size_t dot = module.find('.'); dot < module.size(); dot = module.find('.', dot + 1)) {
    if (const auto entry = name(module.substr(0, dot)); !entry.empty()) return entry;
    if (const auto entry = name(module.substr(dot + 1)); !entry.empty()) return entry;
  }
  for (const std::string& pattern : patterns_) {
    if (matches_from_begin(pattern, module)) return pattern;
  }
  return {};
}

}  // namespace subbyte
