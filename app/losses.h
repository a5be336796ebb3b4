#pragma once
// How commands say what rounding lost.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transform/difference.h"

namespace subbyte::app {

/// A number, or null where it is infinite.
nlohmann::ordered_json finite_as_json(double value);

/// {"name": ..., "signal_to_noise_db": ...}; null where nothing was lost.
nlohmann::ordered_json worst_as_json(const WorstLoss& worst);

/// ", worst 18.1 dB in 'NAME'"; empty where nothing was lost.
std::string worst_as_text(const WorstLoss& worst);

}  // namespace subbyte::app
