#pragma once
// Models with random weights, made when they are first wanted and kept.

#include <filesystem>

#include "synth/synth.h"

namespace subbyte::bench {

/// Writes the model unless there is something of that name; one line on standard error says so.
/// Codes: those of synthesize.
Status make_model(const std::filesystem::path& directory, const SynthOptions& options);

}  // namespace subbyte::bench
