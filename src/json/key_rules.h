#pragma once
// What keys of a file of JSON, or of a request, mean here. Each kind of file has a table of rules
// (*_keys.def), and every key that its writers are known to write is in one of three lists:
//
//   kComputed   it is read, and what it says is done
//   kIgnored    it changes no answer, whatever it says
//   kRefused    it would change an answer and is not computed: refused by name, unless its value
//               asks for nothing
//
// docs/model_files.md shows the tables; tools/key_tables.py writes them there and checks them.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json/strict_json.h"

namespace subbyte::json {

enum class KeyUse : uint8_t { kComputed, kIgnored, kRefused };

struct KeyRule {
  std::string_view key;
  KeyUse use;
  std::string_view neutral;  // of kRefused: the values that ask for nothing beside null, as JSON
};

/// A rule of some of the families, methods, ... that share a table.
struct ScopedRule {
  std::string_view scopes;  // names with blanks between them; "": all
  KeyRule rule;             // of some keys, with blanks between them
};

/// Splits a text at its blanks.
std::vector<std::string_view> words_of(std::string_view text);

/// Says whether `scope` is one of `scopes`.
bool is_in(std::string_view scopes, std::string_view scope);

/// The rules of one of them, of one key each.
std::vector<KeyRule> rules_of(std::span<const ScopedRule> rules, std::string_view scope);

/// nullptr: nothing is known of the key.
const KeyRule* find_rule(std::span<const KeyRule> rules, std::string_view key);

/// Says whether a value of a key that is not computed asks for nothing.
bool asks_for_nothing(const KeyRule& rule, const Value& value);

/// Refuses, with `code`, the first key of kRefused that asks for something.
Status check_keys(const Object& object, std::span<const KeyRule> rules, std::string_view code);

/// The keys without a rule, but for those that are null.
std::vector<std::string> unknown_keys(const Object& object, std::span<const KeyRule> rules);

}  // namespace subbyte::json
