#pragma once
// config.json and generation_config.json of a shape, in the schema of the published files.

#include <string>

#include "synth/synth.h"
#include "synth/synth_shapes.h"

namespace subbyte {

/// `layers` is how many there are, of shape.layers.
std::string synthetic_config(const ModelShape& shape, int64_t layers, const SynthOptions& options);
std::string synthetic_generation_config(const ModelShape& shape);

}  // namespace subbyte
