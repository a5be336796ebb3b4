#include "checkpoints/quantize_formats.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/quote.h"
#include "base/small_letters.h"
#include "checkpoints/flavour.h"

namespace subbyte {
namespace {

struct Row {
  const QuantizeFormat* format;
  const Exporter* exporter;
  const Flavour* flavour;
};

/// All rows, those of series too.
const std::vector<Row>& all_rows() {
  static const auto& all = *[] {
    auto* rows = new std::vector<Row>();
    for (const Flavour* const flavour : all_flavours()) {
      for (const Exporter* const exporter : flavour->exporters) {
        for (const QuantizeFormat& format : exporter->quantized) {
          rows->push_back({&format, exporter, flavour});
        }
      }
    }
    return rows;
  }();
  return all;
}

/// The name without what does not count.
std::string spelled(std::string_view name) {
  std::string usual = small_letters(name);
  std::ranges::replace(usual, '-', '_');
  return usual;
}

/// The first format for whose row has() holds; nullptr without one.
template <typename Has>
const QuantizeFormat* find_row(const Has& has) {
  const auto found = std::ranges::find_if(all_rows(), has);
  return found == all_rows().end() ? nullptr : found->format;
}

const QuantizeFormat* find_named(std::string_view name) {
  return find_row([&](const Row& row) { return row.format->name == name; });
}

/// The bits that the name says; 0: none.
int named_bits(const QuantizeFormat& format, std::string_view name) {
  if (spelled(name) == spelled(format.other_name)) return format.other_bits;
  return format.series.empty() ? 0 : format.default_bits;
}

/// The shortest text of a number: "4", "3.4".
std::string shown(double number) {
  char text[32];
  const auto [end, failed] = std::to_chars(std::begin(text), std::end(text), number);
  return failed == std::errc() ? std::string(text, end) : std::string();
}

Error other_bits(std::string_view name, const QuantizeFormat& format, double bits, int named) {
  const QuantizeFormat* series = find_named(format.series);
  if (series == nullptr) series = &format;
  std::string has;
  if (series->bits.size() > 1)
    has = "; " + std::string(series->name) + " has " + list_bits(*series);
  return Error{"quantize.bits", shown(bits) + " bits, expected " + std::to_string(named) +
                                    ", which the name " + quote(name) + " says" + has};
}

Error no_such_bits(const QuantizeFormat& format, double bits) {
  return Error{"quantize.bits", shown(bits) + " bits, expected " + list_bits(format) +
                                    ", which are what " + std::string(format.name) + " has"};
}

}  // namespace

std::span<const QuantizeFormat* const> quantize_formats() {
  static const auto& all = *[] {
    auto* formats = new std::vector<const QuantizeFormat*>();
    for (const Row& row : all_rows()) {
      if (!row.format->is_series) formats->push_back(row.format);
    }
    return formats;
  }();
  return all;
}

std::vector<std::string> quantize_format_names() {
  std::vector<std::string> names;
  for (const QuantizeFormat* const format : quantize_formats()) names.emplace_back(format->name);
  return names;
}

const QuantizeFormat* find_quantize_format(std::string_view name) {
  const std::string usual = spelled(name);
  if (usual.empty()) return nullptr;
  for (const auto& name_of : {+[](const Row& row) { return row.format->name; },
                              +[](const Row& row) { return row.format->other_name; },
                              +[](const Row& row) { return row.exporter->name; },
                              +[](const Row& row) { return row.flavour->name; }}) {
    const auto* const found =
        find_row([&](const Row& row) { return spelled(name_of(row)) == usual; });
    if (found != nullptr) return found;
  }
  return nullptr;
}

Result<const QuantizeFormat*> choose_quantize_format(std::string_view name,
                                                     std::optional<double> bits,
                                                     ElsewhereFormat elsewhere) {
  const QuantizeFormat* const found = find_quantize_format(name);
  if (found == nullptr) {
    return unknown_format("quantize.format", name, quantize_format_names(), elsewhere);
  }
  const int named = named_bits(*found, name);
  if (bits && named != 0 && *bits != named) return other_bits(name, *found, *bits, named);
  const double width = bits.value_or(named != 0 ? named : found->default_bits);
  if (width != std::floor(width) && !std::isnan(width)) return found;  // a mean of widths
  if (std::ranges::find(found->bits, width) == found->bits.end()) {
    return no_such_bits(*found, width);
  }
  const auto member = std::ranges::find_if(quantize_formats(), [&](const QuantizeFormat* format) {
    return format->series == found->name && format->default_bits == width;
  });
  return member == quantize_formats().end() ? found : *member;
}

const QuantizeFormat* quantize_format_of(std::string_view exporter) {
  return find_row([&](const Row& row) { return row.exporter->name == exporter; });
}

const QuantizeFormat* usual_quantize_format_of(std::string_view exporter) {
  return find_row([&](const Row& row) {
    return std::ranges::find(row.flavour->exporters, exporter, &Exporter::name) !=
           row.flavour->exporters.end();
  });
}

const Exporter& writer_of(const QuantizeFormat& format) {
  return *std::ranges::find(all_rows(), &format, &Row::format)->exporter;
}

}  // namespace subbyte
