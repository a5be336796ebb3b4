#include "app/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "exchange/mpi_exchange.h"

namespace subbyte::app {
namespace {

constexpr int kLeastColumns = 20;
constexpr int kUsualColumns = 80;

Colours chosen = Colours::kAuto;

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_dumb() {
  const std::string_view term = variable("TERM");
  return term.empty() || term == "dumb";
}

}  // namespace

void choose_colours(Colours colours) {
  chosen = colours;
}

bool has_colours(std::FILE* to) {
  if (chosen != Colours::kAuto) return chosen == Colours::kAlways;
  return is_terminal(to) && !is_dumb() && variable("NO_COLOR").empty();
}

bool is_terminal(std::FILE* to) {
  // Open MPI 4 gives a rank a terminal of its own, and writes elsewhere what it reads from that.
  if (to == stdout && find_mpi_place()) return false;
  return isatty(fileno(to)) != 0;
}

bool moves_cursor() {
  return is_terminal(stderr) && !is_dumb();
}

int columns_of(std::FILE* to) {
  const std::string_view text = variable("COLUMNS");
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && columns > 0) return std::max(kLeastColumns, columns);
  winsize size = {};
  if (ioctl(fileno(to), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return std::max<int>(kLeastColumns, size.ws_col);
}

}  // namespace subbyte::app
