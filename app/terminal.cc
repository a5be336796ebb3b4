#include "app/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace subbyte::app {
namespace {

constexpr int kLeastColumns = 20;
constexpr int kUsualColumns = 80;

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

bool has_colours() {
  return moves_cursor() && variable("NO_COLOR").empty();
}

bool moves_cursor() {
  const std::string_view term = variable("TERM");
  return !term.empty() && term != "dumb" && isatty(STDERR_FILENO) != 0;
}

int terminal_columns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return std::max<int>(kLeastColumns, size.ws_col);
}

}  // namespace subbyte::app
