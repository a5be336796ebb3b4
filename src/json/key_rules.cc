#include "json/key_rules.h"

#include <algorithm>

namespace subbyte::json {
namespace {

/// The list of values; of a table of ours, so it is one.
Value neutral_values(const KeyRule& rule) {
  return parse("[" + std::string(rule.neutral) + "]", "neutral").value();
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin < text.size(); begin += words.back().size() + 1) {
    words.push_back(text.substr(begin, text.find(' ', begin) - begin));
  }
  return words;
}

bool is_in(std::string_view scopes, std::string_view scope) {
  if (scopes.empty()) return true;
  const std::vector<std::string_view> all = words_of(scopes);
  return std::ranges::find(all, scope) != all.end();
}

std::vector<KeyRule> rules_of(std::span<const ScopedRule> rules, std::string_view scope) {
  std::vector<KeyRule> chosen;
  for (const auto& [scopes, rule] : rules) {
    if (!is_in(scopes, scope)) continue;
    for (const std::string_view key : words_of(rule.key)) {
      chosen.push_back({key, rule.use, rule.neutral});
    }
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
