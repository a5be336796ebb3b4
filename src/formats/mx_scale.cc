#include "formats/mx_scale.h"

#include <algorithm>
#include <cmath>

namespace subbyte {
namespace {

constexpr int kMaxCode = 254;
constexpr uint32_t kNanCode = 255;
constexpr int kBias = 127;

}  // namespace

uint32_t shared_exponent(double amax, const FormatInfo& element, ScaleRule rule) {
  if (std::isnan(amax)) return kNanCode;
  if (std::isinf(amax)) return kMaxCode;
  if (amax == 0) return 0;
  // frexp gives significands in [0.5, 1); only differences of exponents are used.
  int amax_exponent = 0;
  int max_exponent = 0;
  const double significand = std::frexp(amax, &amax_exponent);
  const double max_significand = std::frexp(element.max, &max_exponent);
  int exponent = amax_exponent - max_exponent;
  // The logarithms of the definition round; comparing significands is exact.
  if (rule == ScaleRule::kCeil && significand > max_significand) ++exponent;
  if (rule == ScaleRule::kBump175 && significand >= 1.75 / 2) ++exponent;
  return static_cast<uint32_t>(std::clamp(exponent + kBias, 0, kMaxCode));
}

}  // namespace subbyte
