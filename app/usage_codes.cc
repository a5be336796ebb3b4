#include "app/usage_codes.h"

#include <algorithm>

namespace subbyte::app {
namespace {

/// Codes of libraries that are about values of options alone.
constexpr std::string_view kCodes[] = {
    // options of sampling, --head-bits, --kv-cache-type, --ids
    "sampling.range", "model.head_bits", "kv.unsupported", "model.token_range", "tokenizer.bad_id",
    // quantize
    "quantize.format", "quantize.bits", "quantize.group_size", "quantize.symmetry", "quantize.head",
    "quantize.embedding", "quantize.pattern", "quantize.ignore",
    // convert, pack
    "convert.format", "pack.layout", "pack.tile", "pack.activations"};

/// And of all errors of the program's own parser, of --device and SUBBYTE_ISA, and of `synth`,
/// which reads no file.
constexpr std::string_view kFamilies[] = {"usage.", "device.", "isa.", "synth."};

}  // namespace

bool is_usage_error(std::string_view code) {
  return std::ranges::find(kCodes, code) != std::end(kCodes) ||
         std::ranges::any_of(kFamilies,
                             [&](std::string_view family) { return code.starts_with(family); });
}

}  // namespace subbyte::app
