#include "lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "report.h"
#include "values.h"

namespace subbyte::interpreter {
namespace {

bool is_blank(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

uint64_t parse_digits(std::string_view digits, int base, std::string_view whole) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    stop("no number: '%.*s'", static_cast<int>(whole.size()), whole.data());
  }
  return value;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside_word = false;
  for (const char c : text) {
    if (!is_blank(c)) {
      if (!inside_word) words.emplace_back();
      words.back() += c;
    }
    inside_word = !is_blank(c);
  }
  return words;
}

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<std::string> arguments_of(std::string_view list) {
  std::vector<std::string> found;
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c == ',' && (depth == 0 || i == list.size())) {
      found.emplace_back(trimmed(list.substr(from, i - from)));
      from = i + 1;
    }
  }
  if (found.back().empty()) found.pop_back();
  return found;
}

std::string_view inside(std::string_view text) {
  return text.substr(1, text.size() - 2);
}

uint64_t parse_number(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.ends_with('U')) digits.remove_suffix(1);
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && std::string_view("xXfFdD").find(digits[1]) < 6) {
    digits.remove_prefix(2);
    base = 16;
  } else if (digits.size() > 1 && digits[0] == '0') {
    base = 8;
  }
  const uint64_t value = parse_digits(digits, base, text);
  return negative ? -value : value;
}

Declaration parse_declaration(std::string_view text) {
  Declaration found;
  uint64_t count = 1;
  const std::vector<std::string> words = words_of(text);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".align" && i + 1 < words.size()) {
      found.alignment = parse_number(words[++i]);
    } else if (words[i][0] != '.') {
      found.name = words[i];
    } else if (const Type type = type_named(std::string_view(words[i]).substr(1));
               type != Type::kNone) {
      found.element_bytes = static_cast<uint64_t>(width(type));
    } else if (words[i] == ".ptr") {
      // The alignment after it is that of the memory that the parameter points at.
      while (i + 1 < words.size() && words[i + 1][0] == '.') i += words[i + 1] == ".align" ? 2 : 1;
    }
  }
  if (const size_t bracket = found.name.find('['); bracket != std::string::npos) {
    const std::string_view size = std::string_view(found.name).substr(bracket + 1);
    found.is_open = size == "]";
    count = found.is_open ? 0 : parse_number(size.substr(0, size.size() - 1));
    found.name.resize(bracket);
  }
  found.alignment = std::max(found.alignment, found.element_bytes);
  found.bytes = count * found.element_bytes;
  return found;
}

uint64_t Declaration::place(uint64_t& end) const {
  end = (end + alignment - 1) / alignment * alignment;
  const uint64_t offset = end;
  end += bytes;
  return offset;
}

}  // namespace subbyte::interpreter
