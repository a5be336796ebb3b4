#include "app/output.h"

#include "app/interrupt.h"
#include "app/terminal.h"
#include "app/wrap.h"
#include "json/shown_json.h"

namespace subbyte::app {
namespace {

constexpr std::size_t kErrorIndent = 2;

bool quiet = false;
bool errors_as_json = false;

std::string_view sequence_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kError:
      return "\033[1;31m";
    case Style::kWarning:
      return "\033[33m";
    case Style::kGood:
      return "\033[1;32m";
  }
  return "";
}

}  // namespace

void print(std::FILE* to, std::string_view text) {
  if (to == stdout && !text.empty()) set_written();
  std::fwrite(text.data(), 1, text.size(), to);
}

void be_quiet() {
  quiet = true;
}

bool is_quiet() {
  return quiet;
}

void print_errors_as_json() {
  errors_as_json = true;
}

bool prints_errors_as_json() {
  return errors_as_json;
}

std::string fitted(std::string_view lines, std::FILE* to, std::size_t indent) {
  return is_terminal(to) ? wrap(lines, columns_of(to), indent) : std::string(lines);
}

void tell(std::string_view lines, std::size_t indent) {
  print(stderr, fitted(lines, stderr, indent));
}

void note(std::string_view lines) {
  if (!quiet) tell(lines);
}

void print_notice(const std::string& text) {
  note(line("subbyte: {}", text));
}

void print_error(const Error& error) {
  print_error(error, Json::object());
}

void print_error(const Error& error, const Json& beside) {
  const std::string text = styled(Style::kError, "subbyte: error:", stderr) +
                           line(" {} [{}]", error.message, error.code);
  print(stderr, fitted(text, stderr, kErrorIndent));
  if (!errors_as_json) return;
  Json object = beside;
  object["error"] = {{"code", error.code}, {"message", error.message}};
  print(stdout, json_text(object, -1));
  std::fflush(stdout);
}

std::string styled(Style style, std::string_view text, std::FILE* to) {
  const std::string_view begin = has_colours(to) ? sequence_of(style) : "";
  if (begin.empty()) return std::string(text);
  return std::string(begin).append(text).append("\033[0m");
}

std::string json_text(const Json& object, int indent) {
  return json::to_ascii(object, indent) + "\n";
}

}  // namespace subbyte::app
