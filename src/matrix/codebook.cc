#include "matrix/codebook.h"

#include <cmath>
#include <utility>

namespace subbyte {

bool may_have_codebook(Format element) {
  return (element >= Format::kNFL2 && element <= Format::kNFL5) || needs_codebook(element);
}

bool needs_codebook(Format element) {
  return info(element).vector_size > 1;
}

std::vector<float> default_codebook(Format element) {
  std::vector<float> values;
  for (uint32_t code = 0; code < 1u << info(element).bits; ++code) {
    values.push_back(static_cast<float>(info(element).decode(code)));
  }
  return values;
}

std::string codebook_fault(std::span<const float> values, Format element) {
  const auto [bits, size] = std::pair(info(element).bits, info(element).vector_size);
  const std::size_t expected =
      size > 1 ? static_cast<std::size_t>(kVectors * size) : std::size_t{1} << bits;
  if (values.size() != expected) {
    return std::to_string(expected) + " values for " + std::to_string(bits) + " bits, found " +
           std::to_string(values.size());
  }
  for (std::size_t code = 0; code < expected; ++code) {
    const std::string found =
        "value " + std::to_string(code) + " is " + std::to_string(values[code]);
    if (!std::isfinite(values[code])) return "finite values, but " + found;
    if (size == 1 && code > 0 && !(values[code] > values[code - 1])) {
      return "increasing values, but " + found + " after " + std::to_string(values[code - 1]);
    }
  }
  return {};
}

}  // namespace subbyte
