#include "app/losses.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/quote.h"

namespace subbyte::app {

nlohmann::ordered_json finite_as_json(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json worst_as_json(const WorstLoss& worst) {
  if (worst.name.empty()) return nullptr;
  return {{"name", worst.name}, {"signal_to_noise_db", finite_as_json(worst.signal_to_noise_db)}};
}

std::string worst_as_text(const WorstLoss& worst) {
  if (worst.name.empty()) return {};
  return fmt::format(", worst {:.1f} dB in {}", worst.signal_to_noise_db, quote_name(worst.name));
}

}  // namespace subbyte::app
