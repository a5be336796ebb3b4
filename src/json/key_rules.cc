#include "json/key_rules.h"

#include <algorithm>

namespace subbyte::json {
namespace {

/// The list of values; of a table of ours, so it is one.
Value neutral_values(const KeyRule& rule) {
  return parse("[" + std::string(rule.neutral) + "]", "neutral").value();
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace

std::vector<KeyRule> rules_of(std::span<const ScopedRule> rules, std::string_view scope) {
  std::vector<KeyRule> chosen;
  for (const ScopedRule& rule : rules) {
    if (rule.scopes.empty() || has_word(rule.scopes, scope)) chosen.push_back(rule.rule);
  }
  return chosen;
}

const KeyRule* find_rule(std::span<const KeyRule> rules, std::string_view key) {
  const auto found = std::ranges::find(rules, key, &KeyRule::key);
  return found == rules.end() ? nullptr : &*found;
}

bool asks_for_nothing(const KeyRule& rule, const Value& value) {
  if (value.is_null()) return true;
  return std::ranges::any_of(neutral_values(rule),
                             [&](const Value& neutral) { return neutral == value; });
}

Status check_keys(const Object& object, std::span<const KeyRule> rules, std::string_view code) {
  for (const auto& [key, value] : object.members()) {
    const KeyRule* const rule = find_rule(rules, key);
    if (rule == nullptr || rule->use != KeyUse::kRefused || asks_for_nothing(*rule, value)) {
      continue;
    }
    std::string expected = "nothing";
    for (const Value& neutral : neutral_values(*rule)) expected += " or " + to_text(neutral);
    return object.error(code, key, expected + ", as this version does not compute it");
  }
  return {};
}

std::vector<std::string> unknown_keys(const Object& object, std::span<const KeyRule> rules) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.members()) {
    if (!value.is_null() && find_rule(rules, key) == nullptr) keys.push_back(key);
  }
  return keys;
}

}  // namespace subbyte::json
