#pragma once
// The formats that `quantize` writes, by their names: the rows that exporters have. Whoever takes
// the name of a format takes these.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/exporter.h"
#include "quantize/format_hints.h"
#include "quantize/quantize_format.h"

namespace subbyte {

/// In the order of their exporters.
std::span<const QuantizeFormat* const> quantize_formats();

/// Their names.
std::vector<std::string> quantize_format_names();

/// The format of that name, of a series, the first of an exporter or a flavour, or of a name that
/// other software has for it ("gptq-v2", "w4a16", "bnb_nf4"); case does not count. nullptr when
/// there is none.
const QuantizeFormat* find_quantize_format(std::string_view name);

/// The same for codes of so many bits, so that its name is that of what is written: of a series its
/// format of that width (kbit with 3 bits is kbit3), and for a mean of widths, such as 3.4, the
/// series itself. nullopt: the bits that the name says, or the usual ones.
/// Codes: quantize.format (no such name, and what may be meant); quantize.bits (the name says other
/// bits, or the format has not these).
Result<const QuantizeFormat*> choose_quantize_format(std::string_view name,
                                                     std::optional<double> bits,
                                                     ElsewhereFormat elsewhere);

/// The format that an exporter writes; nullptr where quantize has none.
const QuantizeFormat* quantize_format_of(std::string_view exporter);

/// The usual format of the flavour that an exporter is of, where it has no format of its own.
const QuantizeFormat* usual_quantize_format_of(std::string_view exporter);

/// The exporter that writes a format.
const Exporter& writer_of(const QuantizeFormat& format);

}  // namespace subbyte
