#pragma once
// E2M1 codes for whole groups: info(Format::kE2M1).encode() with kNearestEven, made of comparisons
// that a compiler turns into vectors.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "quantize/wide.h"

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

/// A group of kSize weights under two scales: codes, and the sums of the squared errors in units of
/// each scale.
template <std::size_t kSize>
struct E2m1Trials {
  double scales[2] = {};
  double errors[2] = {};
  std::array<int64_t, kSize> codes[2] = {};
};

namespace e2m1 {

/// Both sums go along together, since each waits for its last addition.
template <std::size_t kSize>
[[gnu::always_inline]] inline void encode_both(const float* weights, E2m1Trials<kSize>* to) {
  E2m1Trials<kSize>& trials = *to;
  using Doubles [[gnu::vector_size(32)]] = double;
  using Longs [[gnu::vector_size(32)]] = int64_t;
  constexpr std::size_t kLanes = 4;
  const Longs kSign = Longs{} + std::bit_cast<int64_t>(-0.0);
  double squares[2][kSize];
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t i = 0; i < kSize; i += kLanes) {
      double four[kLanes];
      for (std::size_t lane = 0; lane < kLanes; ++lane) four[lane] = weights[i + lane];
      Doubles value;
      std::memcpy(&value, four, sizeof value);
      value /= trials.scales[t];
      const auto bits = reinterpret_cast<Longs>(value);
      const auto size = reinterpret_cast<Doubles>(bits & ~kSign);
      Longs code = {};
      Doubles rounded = {};
      const auto step = [&](const Longs& is_over, double more) __attribute__((always_inline)) {
        code -= is_over;
        rounded += is_over ? Doubles{} + more : Doubles{};
      };
      step(size > 0.25, 0.5);
      step(size >= 0.75, 0.5);
      step(size > 1.25, 0.5);
      step(size >= 1.75, 0.5);
      step(size > 2.5, 1);
      step(size >= 3.5, 1);
      step(size > 5, 2);
      const Doubles error = size - rounded;
      const Doubles square = error * error;
      const Longs signs = bits < 0;
      code |= signs & 8;
      std::memcpy(&trials.codes[t][i], &code, sizeof code);
      std::memcpy(squares[t] + i, &square, sizeof square);
    }
  }
  double first = 0;
  double second = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    first += squares[0][i];
    second += squares[1][i];
  }
  trials.errors[0] = first;
  trials.errors[1] = second;
}

}  // namespace e2m1

/// Encodes a group under `trials.scales`, as encode_e2m1() does, and says which of them has the
/// smaller error, in units of the first; of equal ones the first.
template <std::size_t kSize>
int encode_e2m1_better(std::span<const float> weights, E2m1Trials<kSize>& trials,
                       std::span<uint8_t> codes) {
  run_wide<e2m1::encode_both<kSize>>(weights.data(), &trials);
  const auto& [scales, errors, all_codes] = trials;
  const int better = errors[1] * scales[1] * scales[1] < errors[0] * scales[0] * scales[0] ? 1 : 0;
  for (std::size_t i = 0; i < kSize; ++i) codes[i] = static_cast<uint8_t>(all_codes[better][i]);
  return better;
}

}  // namespace subbyte
