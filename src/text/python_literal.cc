#include "text/python_literal.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "json/strict_json.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f";
constexpr int kMaxDepth = 64;  // as many as JSON may have

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::optional<std::string> read() {
    if (!read_value(0)) return std::nullopt;
    skip_space();
    return rest_.empty() ? std::optional(std::move(made_)) : std::nullopt;
  }

  PythonCalls read_calls() {
    has_breaks_ = true;
    PythonCalls result;
    const bool is_list = take('[');
    bool is_last = false;
    while (!is_last && read_call(result.calls)) {
      const bool has_comma = take(',');
      skip_space();
      is_last = is_list ? rest_.starts_with(']') || !has_comma : rest_.empty();
    }
    const bool ends = !is_list || take(']');
    skip_space();
    result.is_read = is_last && ends && rest_.empty();
    result.is_open = is_open_;
    return result;
  }

 private:
  std::string read_name() {
    skip_space();
    const auto is_of_name = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c >= 0x80;
    };
    const auto end = std::ranges::find_if_not(rest_, is_of_name);
    std::string name(rest_.begin(), end);
    rest_.remove_prefix(name.size());
    return name;
  }

  bool read_call(std::vector<std::pair<std::string, std::string>>& calls) {
    const std::string name = read_name();
    if (name.empty() || !take('(')) return false;
    made_ = "{";
    std::set<std::string> seen;
    for (bool has_comma = true; !take(')'); has_comma = take(',')) {
      const std::string key = read_name();
      if (!has_comma || key.empty() || !seen.insert(key).second || !take('=')) return false;
      made_ += (seen.size() > 1 ? ", " : "") + json::to_text(json::Value(key)) + ": ";
      if (!read_value(0)) return false;
    }
    calls.emplace_back(name, std::exchange(made_, {}) + "}");
    return json::parse(calls.back().second, "arguments").ok();
  }

  void skip_space() {
    const std::size_t begin = rest_.find_first_not_of(kSpace);
    rest_.remove_prefix(begin == std::string_view::npos ? rest_.size() : begin);
  }

  bool take(char mark) {
    skip_space();
    if (!rest_.starts_with(mark)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool read_value(int depth) {
    if (depth > kMaxDepth) return false;
    if (take('[')) return read_list(']', depth);
    if (take('(')) return read_list(')', depth);
    if (take('{')) return read_dict(depth);
    return rest_.starts_with('\'') || rest_.starts_with('"') ? read_string() : read_word();
  }

  bool read_list(char end, int depth) {
    made_ += '[';
    int count = 0;
    bool has_comma = true;
    while (!take(end)) {
      if (!has_comma) return false;
      if (count++ > 0) made_ += ", ";
      if (!read_value(depth + 1)) return false;
      has_comma = take(',');
    }
    made_ += ']';
    return end == ']' || count != 1 || has_comma;  // else brackets around a value
  }

  bool read_dict(int depth) {
    made_ += '{';
    bool is_first = true;
    bool has_comma = true;
    while (!take('}')) {
      if (!has_comma) return false;
      if (!is_first) made_ += ", ";
      is_first = false;
      if (!read_string() || !take(':')) return false;
      made_ += ": ";
      if (!read_value(depth + 1)) return false;
      has_comma = take(',');
    }
    made_ += '}';
    return true;
  }

  /// A number, or one of three words. Whether it is a number the reader of the JSON says.
  bool read_word() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(",:]}) \t\r\n\f"));
    rest_.remove_prefix(word.size());
    if (word == "True") return made_ += "true", true;
    if (word == "False") return made_ += "false", true;
    if (word == "None") return made_ += "null", true;
    if (word == "true" || word == "false" || word == "null") return made_ += word, true;
    made_ += word;
    return !word.empty() && word.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  }

  bool read_string() {
    skip_space();
    if (!rest_.starts_with('\'') && !rest_.starts_with('"')) return false;
    const char quote = rest_[0];
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.starts_with(quote)) {
      const std::size_t plain = rest_.find_first_of(has_breaks_ ? "\\'\"" : "\\\n'\"");
      is_open_ = plain == std::string_view::npos;
      if (is_open_ || rest_[plain] == '\n') return false;
      text += rest_.substr(0, plain);
      rest_.remove_prefix(plain);
      if (rest_[0] == '\\') {
        if (!read_escape(text)) return false;
      } else if (rest_[0] != quote) {
        text += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    rest_.remove_prefix(1);
    made_ += json::to_text(json::Value(text));
    return true;
  }

  bool read_escape(std::string& text) {
    constexpr std::string_view kNames = "\n\\'\"abfnrtv";
    constexpr std::string_view kMeant[] = {"",   "\\", "'",  "\"", "\a", "\b",
                                           "\f", "\n", "\r", "\t", "\v"};
    if (rest_.size() < 2) return false;
    const char name = rest_[1];
    rest_.remove_prefix(2);
    if (const std::size_t known = kNames.find(name); known != std::string_view::npos) {
      text += kMeant[known];
      return true;
    }
    if (name >= '0' && name <= '7') return read_octal(name, text);
    const std::size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    if (digits > 0) return read_code(digits, 16, text);
    if (name == 'N') return false;
    text += '\\';  // any other stays as it is
    text += name;
    return true;
  }

  bool read_octal(char first, std::string& text) {
    std::string digits(1, first);
    while (digits.size() < 3 && !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '7') {
      digits += rest_[0];
      rest_.remove_prefix(1);
    }
    const std::string_view after = rest_;
    rest_ = digits;
    const bool is_read = read_code(digits.size(), 8, text);
    rest_ = after;
    return is_read;
  }

  bool read_code(std::size_t digits, int base, std::string& text) {
    uint32_t code = 0;
    const std::string_view number = rest_.substr(0, digits);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), code, base);
    const bool is_whole =
        number.size() == digits && error == std::errc() && end == number.data() + number.size();
    if (!is_whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    rest_.remove_prefix(digits);
    utf8::append(text, static_cast<char32_t>(code));
    return true;
  }

  std::string_view rest_;
  std::string made_;
  bool has_breaks_ = false;  // texts may have them
  bool is_open_ = false;
};

}  // namespace

std::optional<std::string> python_literal_as_json(std::string_view text) {
  return Reader(text).read();
}

PythonCalls read_python_calls(std::string_view text) {
  return Reader(text).read_calls();
}

}  // namespace subbyte
