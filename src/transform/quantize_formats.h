#pragma once
// The formats of checkpoints/quantize_formats.h as commands have them: with the names of all
// commands in errors.

#include <optional>
#include <string_view>

#include "checkpoints/quantize_formats.h"
#include "transform/format_hints.h"

namespace subbyte {

inline Result<const QuantizeFormat*> choose_quantize_format(std::string_view name,
                                                            std::optional<double> bits) {
  return choose_quantize_format(name, bits, command_with);
}

}  // namespace subbyte
