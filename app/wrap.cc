#include "app/wrap.h"

#include <algorithm>

#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte::app {
namespace {

/// The end of the escape sequence "ESC [ ... m" that begins at `at`, or `at`.
std::size_t after_escape(std::string_view text, std::size_t at) {
  if (text.substr(at, 2) != "\033[") return at;
  const std::size_t end = text.find('m', at);
  return end == std::string_view::npos ? at : end + 1;
}

void wrap_line(std::string_view line, std::size_t width, std::size_t indent, std::size_t at,
               std::string& text) {
  bool begins = at == 0;
  while (!line.empty()) {
    const std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t end = std::min(line.find(' ', blanks), line.size());
    const std::string_view word = line.substr(blanks, end - blanks);
    if (!begins && at > indent && at + blanks + width_of(word) > width && !word.empty()) {
      text += "\n" + std::string(indent, ' ');
      at = indent;
    } else {
      text.append(blanks, ' ');
      at += blanks;
    }
    text += word;
    at += width_of(word);
    begins = false;
    line.remove_prefix(end);
  }
}

}  // namespace

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = after_escape(text, i);
    if (end > i) {
      i = end;
      continue;
    }
    const utf8::Decoded c = utf8::decode_one(text.substr(i));
    width += static_cast<std::size_t>(unicode::width(c.value));
    i += c.length;
  }
  return width;
}

std::string wrap(std::string_view text, int columns, std::size_t indent, std::size_t at) {
  const auto width = static_cast<std::size_t>(std::max(columns - 1, 1));
  std::string wrapped;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    wrap_line(text.substr(0, end), width, indent, at, wrapped);
    at = 0;
    if (end < text.size()) wrapped += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrapped;
}

}  // namespace subbyte::app
