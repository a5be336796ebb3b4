// Calls of tools as Gemma 4 writes them:
//
//   call:NAME{key:value,key:value}
//
//   value   <|"|>text<|"|>   {key:value}   [value,value]   a word up to , } or ]
//
// Keys have no quotes, or those of texts. A word is a number, true, false or null, or it is a text.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "json/strict_json.h"
#include "text/call_text.h"
#include "text/tool_calls.h"

namespace subbyte {
namespace {

using Kind = CallText::Kind;

constexpr std::string_view kBegin = "call:";
constexpr int kMaxDepth = 64;

std::string text_as_json(std::string_view text) {
  return json::to_text(json::Value(std::string(text)));
}

bool is_null(std::string_view word) {
  constexpr std::string_view kNames[] = {"null", "none", "nil"};
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::ranges::find(kNames, lower) != std::end(kNames);
}

std::string word_as_json(std::string_view word) {
  if (word == "true" || word == "false") return std::string(word);
  if (is_null(word)) return "null";
  const auto parsed = json::parse(word, "value", {}, json::kTextMemoryFactor);
  const bool is_number =
      parsed.ok() && (parsed->is_number() || json::long_digits(*parsed).has_value());
  return is_number ? std::string(word) : text_as_json(word);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  /// The members of an object as JSON, from "{" on to its end.
  std::optional<std::string> object(int depth) {
    std::vector<std::pair<std::string, std::string>> members;
    if (depth > kMaxDepth || !take("{")) return std::nullopt;
    while (!take_end("}")) {
      const auto key = read_key();
      if (!key) return std::nullopt;
      auto value = member_value(depth);
      if (!value) return std::nullopt;
      // Of a key that comes twice the last value counts.
      const auto known =
          std::ranges::find(members, *key, &std::pair<std::string, std::string>::first);
      if (known == members.end()) {
        members.emplace_back(*key, *std::move(value));
      } else {
        known->second = *std::move(value);
      }
    }
    if (failed_) return std::nullopt;
    std::string json = "{";
    for (const auto& [key, value] : members) {
      json += (json.size() > 1 ? ", " : "") + text_as_json(key) + ": " + value;
    }
    return json + "}";
  }

  std::string_view rest() const { return text_; }
  /// Says whether the text broke off, where more may follow.
  bool is_open() const { return is_open_; }

 private:
  void skip_space() {
    text_.remove_prefix(std::min(text_.find_first_not_of(kCallSpace), text_.size()));
  }

  bool take(std::string_view mark) {
    skip_space();
    if (!text_.starts_with(mark)) return false;
    text_.remove_prefix(mark.size());
    return true;
  }

  /// Takes the end of an object or a list, or the commas before what comes next. After a failure it
  /// is the end, too.
  bool take_end(std::string_view end) {
    while (take(",")) {
    }
    if (take(end)) return true;
    is_open_ = failed_ = text_.empty();
    return failed_;
  }

  std::optional<std::string> quoted() {
    if (!take(kQuoteMark)) return std::nullopt;
    const std::size_t end = text_.find(kQuoteMark);
    if (end == std::string_view::npos) {
      is_open_ = true;
      return std::nullopt;
    }
    std::string result(text_.substr(0, end));
    text_.remove_prefix(end + kQuoteMark.size());
    return result;
  }

  /// Up to one of `ends`, without the white space at its end.
  std::optional<std::string_view> word(std::string_view ends) {
    skip_space();
    const std::size_t end = text_.find_first_of(ends);
    if (end == std::string_view::npos) is_open_ = true;
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    const std::string_view found = text_.substr(0, end);
    text_.remove_prefix(end);
    return found.substr(0, found.find_last_not_of(kCallSpace) + 1);
  }

  std::optional<std::string> read_key() {
    skip_space();
    std::optional<std::string> key;
    if (text_.starts_with(kQuoteMark)) {
      key = quoted();
    } else if (const auto found = word(":{}[],")) {
      key = std::string(*found);
    }
    if (!key || take(":")) return key;
    is_open_ = is_open_ || text_.empty();
    return std::nullopt;
  }

  /// Of a member, which may have none: an empty text.
  std::optional<std::string> member_value(int depth) {
    skip_space();
    const bool is_empty = text_.starts_with(",") || text_.starts_with("}");
    return is_empty ? text_as_json("") : read_value(depth);
  }

  std::optional<std::string> read_value(int depth) {
    skip_space();
    if (text_.starts_with("{")) return object(depth + 1);
    if (text_.starts_with("[")) return list(depth + 1);
    if (text_.starts_with(kQuoteMark)) {
      const auto text = quoted();
      return text ? std::optional(text_as_json(*text)) : std::nullopt;
    }
    const auto found = word(",}]");
    return found ? std::optional(word_as_json(*found)) : std::nullopt;
  }

  std::optional<std::string> list(int depth) {
    if (depth > kMaxDepth || !take("[")) return std::nullopt;
    std::string json = "[";
    while (!take_end("]")) {
      const auto value = read_value(depth);
      if (!value) return std::nullopt;
      json += (json.size() > 1 ? ", " : "") + *value;
    }
    if (failed_) return std::nullopt;
    return json + "]";
  }

  std::string_view text_;
  bool is_open_ = false;
  bool failed_ = false;
};

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

CallText parse_bare_key_call(std::string_view text, const json::Value& /*tools*/) {
  text.remove_prefix(std::min(text.find_first_not_of(kCallSpace), text.size()));
  if (!text.starts_with(kBegin)) return {};
  text.remove_prefix(kBegin.size());
  const auto end = std::ranges::find_if_not(text, is_of_name);
  const std::string_view name(text.begin(), end);
  if (name.empty()) return {};
  Reader reader(text.substr(name.size()));
  auto arguments = reader.object(0);
  if (!arguments) return {reader.is_open() ? Kind::kOpen : Kind::kNone};
  if (reader.rest().find_first_not_of(kCallSpace) != std::string_view::npos) return {};
  CallText result = {Kind::kCalls};
  result.calls.push_back({std::string(name), *std::move(arguments)});
  return result;
}

}  // namespace subbyte
