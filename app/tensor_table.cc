#include "app/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "app/output.h"
#include "app/wrap.h"

namespace subbyte::app {
namespace {

/// name, number, MB, bits, format, shape; the numbers stand at the right of their columns.
using Cells = std::array<std::string, 6>;
constexpr std::array<bool, 6> kAtRight = {false, true, true, true, false, false};

struct Row {
  std::string heading;  // "model.layers.0-7"; empty: of its own
  Cells cells;
};

/// The part of a name with its layers: "model.layers.0-7" of "model.layers.0-7.mlp.down_proj".
std::string heading_of(const std::string& name) {
  for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const bool is_number = dot + 1 < name.size() && name[dot + 1] >= '0' && name[dot + 1] <= '9';
    if (is_number) return name.substr(0, name.find('.', dot + 1));
  }
  return {};
}

std::string module_of(std::string name) {
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

/// "1244.7" and "0.003": what is small has more places.
std::string megabytes(uint64_t bytes) {
  const double number = static_cast<double>(bytes) / 1e6;
  return fmt::format("{:.{}f}", number, number < 100 ? 3 : 1);
}

Row row_of(const TensorKind& kind) {
  const InspectedWeight& weight = kind.weight;
  const std::string name = module_of(weight.name);
  Row row;
  row.heading = heading_of(name);
  const bool has_rest = !row.heading.empty() && row.heading.size() + 1 < name.size();
  if (!has_rest) row.heading.clear();
  row.cells = {has_rest ? "  " + name.substr(row.heading.size() + 1) : name,
               fmt::format("{}", kind.count),
               megabytes(weight.bytes),
               fmt::format("{:.4g}", weight.bits_per_weight()),
               weight.format,
               fmt::format("{}", fmt::join(weight.shape, "x"))};
  if (weight.act_order) row.cells[5] += " act-order";
  for (std::string& cell : row.cells) cell = printable(cell);
  return row;
}

std::string line_of(const Cells& cells, const std::array<std::size_t, 6>& widths) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t fill = widths[i] - std::min(widths[i], width_of(cells[i]));
    const std::string blanks(fill, ' ');
    if (i > 0) text += kAtRight[i] ? " " : "  ";
    text += kAtRight[i] ? blanks + cells[i] : cells[i] + blanks;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

/// Each name in a line, and its numbers in the next ones.
std::string as_list(std::span<const TensorKind> kinds, int columns) {
  std::string text;
  for (const TensorKind& kind : kinds) {
    const Cells cells = row_of(kind).cells;
    text += styled(Style::kBold, printable(module_of(kind.weight.name)), stdout) + "\n";
    text += wrap(
        line("    {}: {} MB, {} bits, {}, {}", cells[1], cells[2], cells[3], cells[4], cells[5]),
        columns, 4);
  }
  return text;
}

}  // namespace

std::string tensor_table(std::span<const TensorKind> kinds, int columns) {
  const Cells titles = {"name", "#", "MB", "bits", "format", "shape"};
  std::vector<Row> rows;
  std::array<std::size_t, 6> widths = {};
  for (std::size_t i = 0; i < titles.size(); ++i) widths[i] = titles[i].size();
  for (const TensorKind& kind : kinds) {
    rows.push_back(row_of(kind));
    for (std::size_t i = 0; i < titles.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(rows.back().cells[i]));
    }
  }
  std::size_t width = 3 * 1 + 2 * 2;  // between the columns
  for (const std::size_t each : widths) width += each;
  if (width >= static_cast<std::size_t>(columns)) return as_list(kinds, columns);
  std::string text = styled(Style::kBold, line_of(titles, widths), stdout);
  std::string heading;
  for (const Row& row : rows) {
    if (row.heading != heading && !row.heading.empty()) {
      text += styled(Style::kBold, printable(row.heading), stdout) + "\n";
    }
    heading = row.heading;
    text += line_of(row.cells, widths);
  }
  return text;
}

}  // namespace subbyte::app
