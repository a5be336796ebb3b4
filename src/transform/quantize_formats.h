#pragma once
// The formats of quantize/quantize_formats.h as commands have them: with what writes a checkpoint,
// and with the names of all commands in errors.

#include <optional>
#include <string_view>

#include "checkpoints/exporter.h"
#include "quantize/quantize_formats.h"
#include "transform/format_hints.h"

namespace subbyte {

inline const Exporter& writer_of(const QuantizeFormat& format) {
  return *find_exporter(format.exporter);
}

inline Result<const QuantizeFormat*> choose_quantize_format(std::string_view name,
                                                            std::optional<double> bits) {
  return choose_quantize_format(name, bits, command_with);
}

}  // namespace subbyte
