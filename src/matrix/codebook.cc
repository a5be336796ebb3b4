#include "matrix/codebook.h"

#include <cmath>

namespace subbyte {
bool may_have_codebook(Format element) {
  return element >= Format::kNFL2 && element <= Format::kNFL5;
}

std::vector<float> default_codebook(Format element) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 1u << info(element).bits; ++code) {
    values.push_back(static_cast<float>(info(element).decode(code)));
  }
  return values;
}

std::string codebook_fault(std::span<const float> values, int bits) {
  const std::size_t expected = std::size_t{1} << bits;
  if (values.size() != expected) {
    return std::to_string(expected) + " values for " + std::to_string(bits) + " bits, found " +
           std::to_string(values.size());
  }
  for (std::size_t code = 0; code < expected; ++code) {
    const std::string found =
        "value " + std::to_string(code) + " is " + std::to_string(values[code]);
    if (!std::isfinite(values[code])) return "finite values, but " + found;
    if (code > 0 && !(values[code] > values[code - 1])) {
      return "increasing values, but " + found + " after " + std::to_string(values[code - 1]);
    }
  }
  return {};
}

}  // namespace subbyte
