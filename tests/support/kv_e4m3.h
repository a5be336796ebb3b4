#pragma once
// Keys and values in e4m3 by the codecs of src/formats/, for tests of what stores and reads them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/format.h"

namespace subbyte::testing {

/// One key or value as the cache has it, and what that is.
struct E4M3Run {
  std::vector<uint8_t> elements;
  uint8_t scale = 0;
  std::vector<float> values;
};

/// The exponents that scales may have.
inline constexpr int kLeastE4M3Exponent = -126;
inline constexpr int kMaxE4M3Exponent = 119;

inline E4M3Run to_e4m3(std::span<const float> x) {
  const FormatInfo& element = info(Format::kE4M3);
  double largest = 0;
  bool is_finite = true;
  for (const float value : x) {
    is_finite = is_finite && std::isfinite(value);
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  E4M3Run run;
  if (!is_finite) {  // NaN, whatever the elements are
    run.scale = 255;
    run.elements.assign(x.size(), 0x7F);
    run.values.assign(x.size(), NAN);
    return run;
  }
  int exponent = kLeastE4M3Exponent;
  while (exponent < kMaxE4M3Exponent && largest > std::ldexp(element.max, exponent)) ++exponent;
  run.scale = static_cast<uint8_t>(exponent + 127);
  for (const float value : x) {
    const uint32_t code =
        element.encode(std::ldexp(static_cast<double>(value), -exponent), Rounding::kNearestEven);
    run.elements.push_back(static_cast<uint8_t>(code));
    run.values.push_back(static_cast<float>(std::ldexp(element.decode(code), exponent)));
  }
  return run;
}

}  // namespace subbyte::testing
