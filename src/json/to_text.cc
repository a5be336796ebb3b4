#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/detail/conversions/to_chars.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "json/shown_json.h"
#include "json/strict_json.h"

namespace subbyte::json {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// How much of `text`, which begins with no character, the start of one may be: 1 to 3 bytes.
std::size_t broken_length(std::string_view text) {
  for (std::size_t length = std::min<std::size_t>(3, text.size()); length > 1; --length) {
    const std::string whole = std::string(text.substr(0, length)).append(3, '\x80');
    if (utf8_sequence_length(whole) > length) return length;
  }
  return 1;
}

uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t point = byte(0) & (0xFFu >> (character.size() + 1));
  for (std::size_t i = 1; i < character.size(); ++i) point = point << 6 | (byte(i) & 0x3Fu);
  return point;
}

class Writer {
 public:
  Writer(int indent, bool ascii) : indent_(indent), ascii_(ascii) {}

  void value(const Value& value, int level) {
    switch (value.kind()) {
      case Value::Kind::kNull:
        text_ += "null";
        break;
      case Value::Kind::kBoolean:
        text_ += value.get<bool>() ? "true" : "false";
        break;
      case Value::Kind::kInteger:
        text_ += std::to_string(value.get<int64_t>());
        break;
      case Value::Kind::kUnsigned:
        text_ += std::to_string(value.get<uint64_t>());
        break;
      case Value::Kind::kFloat:
        number(value.get<double>());
        break;
      case Value::Kind::kLongInteger:
        text_ += value.string();
        break;
      case Value::Kind::kString:
        string(value.string());
        break;
      case Value::Kind::kArray:
        array(value, level);
        break;
      case Value::Kind::kObject:
        object(value, level);
        break;
    }
  }

  std::string take() { return std::move(text_); }

 private:
  /// The shortest decimal that is read back as the same number, or one a digit longer.
  void number(double number) {
    if (!std::isfinite(number)) {
      text_ += "null";
      return;
    }
    std::array<char, 64> digits{};
    char* const begin = digits.data();
    text_.append(begin, nlohmann::detail::to_chars(begin, begin + digits.size(), number));
  }

  void escape(uint32_t unit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text_ += kDigits[unit >> shift & 0xFu];
  }

  void control(char c) {
    constexpr std::string_view kShort = "\b\t\n\f\r";
    const std::size_t found = kShort.find(c);
    if (found == kShort.npos) {
      escape(static_cast<uint8_t>(c));
    } else {
      text_.append({'\\', "btnfr"[found]});
    }
  }

  void beyond_ascii(std::string_view character) {
    if (!ascii_) {
      text_ += character;
      return;
    }
    const uint32_t point = code_point(character);
    if (point <= 0xFFFF) {
      escape(point);
    } else {
      escape(0xD7C0u + (point >> 10));
      escape(0xDC00u + (point & 0x3FFu));
    }
  }

  /// Of the characters of ASCII that a text begins with and that are written as they are.
  std::size_t plain_length(std::string_view text) const {
    const auto is_plain = [this](char c) {
      const auto byte = static_cast<uint8_t>(c);
      return byte >= 0x20 && byte < (ascii_ ? 0x7F : 0x80) && c != '"' && c != '\\';
    };
    return static_cast<std::size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
  }

  void string(std::string_view text) {
    text_ += '"';
    std::size_t at = 0;
    while (at < text.size()) {
      const char c = text[at];
      const auto byte = static_cast<uint8_t>(c);
      std::size_t length = 1;
      if (c == '"' || c == '\\') {
        text_.append({'\\', c});
      } else if (byte < 0x20 || (ascii_ && byte == 0x7F)) {
        control(c);
      } else if (byte < 0x80) {
        length = plain_length(text.substr(at));
        text_ += text.substr(at, length);
      } else {
        length = utf8_sequence_length(text.substr(at));
        beyond_ascii(length == 0 ? kReplacement : text.substr(at, length));
        if (length == 0) length = broken_length(text.substr(at));
      }
      at += length;
    }
    text_ += '"';
  }

  void break_line(int level) {
    if (indent_ < 0) return;
    text_.append("\n").append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(level),
                              ' ');
  }

  void array(const Value& value, int level) {
    text_ += '[';
    for (const Value& element : value) {
      if (&element != value.begin()) text_ += ',';
      break_line(level + 1);
      this->value(element, level + 1);
    }
    if (!value.empty()) break_line(level);
    text_ += ']';
  }

  void object(const Value& value, int level) {
    text_ += '{';
    for (const auto& [key, member] : value.items()) {
      if (&member != &value.items().front().second) text_ += ',';
      break_line(level + 1);
      string(key);
      text_ += indent_ < 0 ? ":" : ": ";
      this->value(member, level + 1);
    }
    if (!value.empty()) break_line(level);
    text_ += '}';
  }

  int indent_;
  bool ascii_;
  std::string text_;
};

std::string written(const Value& value, int indent, bool ascii) {
  Writer writer(indent, ascii);
  writer.value(value, 0);
  return writer.take();
}

}  // namespace

std::string to_text(const Value& value, int indent) {
  return written(value, indent, false);
}

std::string to_ascii(const Value& value, int indent) {
  return written(value, indent, true);
}

Value sorted(const Value& value) {
  if (value.is_array()) {
    std::vector<Value> elements;
    for (const Value& element : value) elements.push_back(sorted(element));
    return elements;
  }
  if (!value.is_object()) return value;
  std::vector<Value::Member> members;
  for (const auto& [key, member] : value.items()) members.emplace_back(key, sorted(member));
  std::ranges::sort(members, {}, &Value::Member::first);
  return JsonMaker::object(std::move(members));
}

}  // namespace subbyte::json
