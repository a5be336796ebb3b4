#include "app/losses.h"

#include <fmt/format.h>

#include "base/quote.h"

namespace subbyte::app {

std::string worst_as_text(const WorstLoss& worst) {
  if (worst.name.empty()) return {};
  return fmt::format(", worst {:.1f} dB in {}", worst.signal_to_noise_db, quote_name(worst.name));
}

}  // namespace subbyte::app
