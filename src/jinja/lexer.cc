#include "jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "jinja/characters.h"
#include "jinja/refusal.h"
#include "unicode/utf8.h"

namespace subbyte::jinja {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

/// All breaks of lines become \n, and one at the end goes.
std::string normalized(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
      continue;
    }
    result += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      if (tag == kNowhere) {
        add(TokenKind::kText, std::string(text_.substr(at_)));
        break;
      }
      take_tag(tag);
    }
    move_to(text_.size());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::size_t next_tag() const {
    for (std::size_t at = text_.find('{', at_); at != kNowhere; at = text_.find('{', at + 1)) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return kNowhere;
  }

  void move_to(std::size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    line_starts_ = at > 0 && at > at_ ? text_[at - 1] == '\n' : line_starts_;
    at_ = at;
  }

  void add(TokenKind kind, std::string text) {
    if (kind == TokenKind::kText && text.empty()) return;
    tokens_.push_back({kind, std::move(text), line_});
  }

  [[noreturn]] void fail(const std::string& message) const { refuse(kSyntax, message, line_); }

  bool has(std::size_t at, std::string_view wanted) const {
    return text_.substr(std::min(at, text_.size())).starts_with(wanted);
  }

  std::size_t after_space(std::size_t at) const {
    return at + stripped(text_.substr(at), true, false).begin;
  }

  /// Text before a tag, of which `-` strips white space and lstrip_blocks the blanks of its line.
  std::string text_before(std::size_t tag, char sign, bool is_variable) const {
    const std::string_view text = text_.substr(at_, tag - at_);
    if (sign == '-') return std::string(text.substr(0, stripped(text, false, true).end));
    if (sign == '+' || is_variable) return std::string(text);
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == kNowhere ? 0 : newline + 1;
    if (line == 0 && !line_starts_) return std::string(text);
    const bool is_blank = stripped(text.substr(line), true, false).begin == text.size() - line;
    return std::string(is_blank ? text.substr(0, line) : text);
  }

  /// Where what follows the end of a block begins: `+%}`, `-%}` and white space, `%}` and a break.
  /// kNowhere where no end stands there.
  std::size_t after_end(std::size_t at, std::string_view end) const {
    if (has(at, "-") && has(at + 1, end)) return after_space(at + 1 + end.size());
    const bool is_variable = end == "}}";
    if (!is_variable && has(at, "+") && has(at + 1, end)) return at + 1 + end.size();
    if (!has(at, end)) return kNowhere;
    at += end.size();
    return !is_variable && has(at, "\n") ? at + 1 : at;
  }

  void take_tag(std::size_t tag) {
    const char kind = text_[tag + 1];
    const char after = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    add(TokenKind::kText, text_before(tag, sign, kind == '{'));
    move_to(tag + (sign != 0 ? 3 : 2));
    if (kind == '#') return skip_comment();
    if (kind == '{') return take_code(TokenKind::kVariableBegin, TokenKind::kVariableEnd, "}}");
    if (!take_raw()) take_code(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  void skip_comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == kNowhere) fail("a comment has no end");
    const bool has_sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    move_to(after_end(has_sign ? end - 1 : end, "#}"));
  }

  /// {% raw %}...{% endraw %}, whose text is no code.
  bool take_raw() {
    std::size_t at = after_space(at_);
    if (!has(at, "raw")) return false;
    at = after_space(at + 3);
    if (has(at, "-%}")) {
      at = after_space(at + 3);
    } else if (has(at, "%}")) {
      at += 2;
    } else {
      return false;
    }
    move_to(at);
    if (at_ == text_.size()) return true;  // as the reference lets it be
    for (std::size_t tag = text_.find("{%", at_); tag != kNowhere;
         tag = text_.find("{%", tag + 1)) {
      const char after = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const char sign = after == '-' || after == '+' ? after : '\0';
      std::size_t name = after_space(tag + (sign != 0 ? 3 : 2));
      if (!has(name, "endraw")) continue;
      const std::size_t end = after_end(after_space(name + 6), "%}");
      if (end == kNowhere) continue;
      add(TokenKind::kText, text_before(tag, sign, false));
      move_to(end);
      return true;
    }
    fail("a raw block has no end");
  }

  void take_code(TokenKind begin, TokenKind end, std::string_view mark) {
    add(begin, "");
    open_.clear();
    while (true) {
      if (at_ >= text_.size()) fail(fmt::format("a {} has no end", mark == "}}" ? "{{" : "{%"));
      const std::size_t after = open_.empty() ? after_end(at_, mark) : kNowhere;
      if (after != kNowhere) {
        add(end, "");
        return move_to(after);
      }
      const std::size_t code = after_space(at_);
      if (code != at_) {
        move_to(code);
      } else {
        take_token();
      }
    }
  }

  void take_token() {
    const char c = text_[at_];
    if (is_digit(c)) return take_number();
    if (c == '\'' || c == '"') return take_string();
    std::size_t end = at_;
    while (end < text_.size()) {
      const Character letter = character_at(text_, end);
      if (letter.value != '_' && !is_alpha(letter.value) && !is_number(letter.value)) break;
      end += letter.length;
    }
    if (end > at_) {
      add(TokenKind::kName, std::string(text_.substr(at_, end - at_)));
      return move_to(end);
    }
    take_operator();
  }

  std::size_t after_digits(std::size_t at) const {
    std::size_t end = at;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end == at) return at;
    while (end + 1 < text_.size() && text_[end] == '_' && is_digit(text_[end + 1])) {
      ++end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
    }
    return end;
  }

  void take_number() {
    const char base = has(at_, "0") && at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    std::size_t end = at_;
    bool is_float = false;
    if (std::string_view("xXoObB").find(base) != kNowhere && base != '\0') {
      end = at_ + 2;
      while (end < text_.size() && (is_alnum(text_[end]) || text_[end] == '_')) ++end;
    } else {
      end = after_digits(at_);
      const bool follows_dot = at_ > 0 && text_[at_ - 1] == '.';
      if (!follows_dot && has(end, ".") && after_digits(end + 1) > end + 1) {
        end = after_digits(end + 1);
        is_float = true;
      }
      if (!follows_dot && (has(end, "e") || has(end, "E"))) {
        const std::size_t digits = end + (has(end + 1, "+") || has(end + 1, "-") ? 2 : 1);
        if (after_digits(digits) > digits) {
          end = after_digits(digits);
          is_float = true;
        }
      }
    }
    std::string number(text_.substr(at_, end - at_));
    std::erase(number, '_');
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(number));
    move_to(end);
  }

  static bool is_alnum(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }

  void take_string() {
    const char mark = text_[at_];
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != mark) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a text in quotes has no end");
    add(TokenKind::kString, unescaped(text_.substr(at_ + 1, end - at_ - 1)));
    move_to(end + 1);
  }

  /// The escapes of Python's literals.
  std::string unescaped(std::string_view text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '\\') {
        result += text[at];
        continue;
      }
      const char c = text[++at];
      constexpr std::string_view kLetters = "nrtabfv\\'\"";
      constexpr std::string_view kMeanings = "\n\r\t\a\b\f\v\\'\"";
      const std::size_t known = kLetters.find(c);
      const std::size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (known != kNowhere) {
        result += kMeanings[known];
      } else if (length > 0) {
        utf8::append(result, code_of(text.substr(at + 1), length, 16));
        at += length;
      } else if (c >= '0' && c <= '7') {
        std::size_t count = 1;
        while (count < 3 && at + count < text.size() && text[at + count] >= '0' &&
               text[at + count] <= '7') {
          ++count;
        }
        utf8::append(result, code_of(text.substr(at), count, 8));
        at += count - 1;
      } else if (c != '\n') {
        if (c == 'N') fail("names of characters (\\N) are not supported");
        result += '\\';
        result += c;
      }
    }
    return result;
  }

  char32_t code_of(std::string_view text, std::size_t length, uint32_t base) const {
    uint32_t code = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const char c = i < text.size() ? text[i] : '\0';
      const uint32_t digit = is_digit(c)            ? static_cast<uint32_t>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a') + 10
                             : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A') + 10
                                                    : base;
      if (digit >= base) fail("an escape in a text is cut");
      code = code * base + digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      fail("an escape in a text is no character");
    }
    return code;
  }

  void take_operator() {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view sign : kDouble) {
      if (!has(at_, sign)) continue;
      add(TokenKind::kOperator, std::string(sign));
      return move_to(at_ + 2);
    }
    const char c = text_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == kNowhere) {
      fail(fmt::format("{} is no part of an expression",
                       quote(text_.substr(at_, character_at(text_, at_).length))));
    }
    const std::size_t opens = std::string_view("([{").find(c);
    const bool closes = std::string_view(")]}").find(c) != kNowhere;
    if (opens != kNowhere) open_ += ")]}"[opens];
    if (closes && (open_.empty() || open_.back() != c)) {
      fail(fmt::format("{} closes nothing", quote(text_.substr(at_, 1))));
    }
    if (closes) open_.pop_back();
    add(TokenKind::kOperator, std::string(1, c));
    move_to(at_ + 1);
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what was taken last ended a line
  std::string open_;         // brackets, by what closes them
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace subbyte::jinja
