#pragma once
// How commands say what rounding lost.

#include <string>

#include "transform/difference.h"

namespace subbyte::app {

/// ", worst 18.1 dB in 'NAME'"; empty where nothing was lost.
std::string worst_as_text(const WorstLoss& worst);

}  // namespace subbyte::app
