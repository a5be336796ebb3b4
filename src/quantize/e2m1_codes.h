#pragma once
// E2M1 codes for whole groups: info(Format::kE2M1).encode() with kNearestEven, made of comparisons
// that a compiler turns into vectors.

#include <cmath>
#include <cstdint>
#include <span>

namespace subbyte {

/// Ties go to the even code: 0.25 to 0, 0.75 to 1, 1.25 to 1 and so on. Saturates at +-6.
inline uint8_t e2m1_code(double value) {
  const double size = std::fabs(value);
  const int magnitude = (size > 0.25) + (size >= 0.75) + (size > 1.25) + (size >= 1.75) +
                        (size > 2.5) + (size >= 3.5) + (size > 5);
  return static_cast<uint8_t>(magnitude | (std::signbit(value) ? 8 : 0));
}

/// Fills `codes` with those of weights / scale and gives the sum of the squared errors, in units of
/// `scale`.
inline double encode_e2m1(std::span<const float> weights, double scale, std::span<uint8_t> codes) {
  static constexpr double kValues[16] = {0,   0.5,  1,  1.5,  2,  3,  4,  6,
                                         -0., -0.5, -1, -1.5, -2, -3, -4, -6};
  double squares = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double value = weights[i] / scale;
    codes[i] = e2m1_code(value);
    const double error = value - kValues[codes[i]];
    squares += error * error;
  }
  return squares;
}

}  // namespace subbyte
