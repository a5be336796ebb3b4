#pragma once
// The arithmetic that chooses a token, the same bits on the host and on a GPU: every operation is
// rounded exactly by IEEE 754, products that a compiler could contract are written as fma, and
// weights are integers, whose sums have no order.
//
// A weight is the probability of a token divided by that of the best one, in units of 2^-38,
// rounded to nearest: a token that is 2^-39 times as likely as the best or less is never drawn.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace subbyte {

/// Weight of the best token. The sum over 2^24 tokens, the largest vocabulary, fits.
inline constexpr uint64_t kBestWeight = uint64_t{1} << 38;

/// A token that may be chosen.
struct TokenCandidate {
  int32_t token = 0;
  float logit = 0;
  uint64_t weight = 0;
};

/// Rounded to a finite float.
SUBBYTE_HOST_DEVICE float finite_float(double value) {
  const double largest = FLT_MAX;
  return static_cast<float>(value > largest ? largest : value < -largest ? -largest : value);
}

/// Logit of a token that has occurred: positive logits are divided and negative ones multiplied,
/// rounded to a finite float. What is not finite stays as it is.
SUBBYTE_HOST_DEVICE float penalized(float logit, double penalty) {
  if (!(logit >= -FLT_MAX && logit <= FLT_MAX)) return logit;
  const double wide = logit;
  return finite_float(logit > 0 ? wide / penalty : wide * penalty);
}

/// Changes of the logit of one token before a choice.
struct LogitChange {
  float bias = 0;         // added first; -infinity: the token is never chosen
  int32_t count = 0;      // times that it was generated
  bool occurred = false;  // in the prompt or what was generated: the repetition penalty applies

  SUBBYTE_HOST_DEVICE bool is_none() const { return bias == 0 && count == 0 && !occurred; }
};

/// Penalties on tokens that occurred, in the order in which they apply.
struct TokenPenalties {
  double repetition = 1;  // Keskar et al., "CTRL", 2019
  double frequency = 0;   // taken off for each time that the token was generated
  double presence = 0;    // taken off once, if it was generated
};

/// A logit as it is chosen from. What is not finite stays as it is.
SUBBYTE_HOST_DEVICE float changed_logit(float logit, const LogitChange& change,
                                        const TokenPenalties& penalties) {
  if (!(logit >= -FLT_MAX && logit <= FLT_MAX)) return logit;
  if (!(change.bias >= -FLT_MAX)) return change.bias;
  logit = finite_float(static_cast<double>(logit) + static_cast<double>(change.bias));
  if (change.occurred) logit = penalized(logit, penalties.repetition);
  if (change.count == 0) return logit;
  const double wide =
      fma(-penalties.frequency, static_cast<double>(change.count), static_cast<double>(logit));
  return finite_float(wide - penalties.presence);
}

/// exp(x) for x in [-30, 0], relative error below 2^-51: x = n ln 2 + r, |r| <= ln 2 / 2, and the
/// series of exp(r), whose next term is below 2^-51.
SUBBYTE_HOST_DEVICE double exp_of_negative(double x) {
  const double n = floor(fma(x, 0x1.71547652b82fep+0, 0.5));
  double r = fma(n, -0x1.62e42fefa39efp-1, x);
  r = fma(n, -0x1.abc9e3b39803fp-56, r);
  double sum = 1.0 / 479001600;
  sum = fma(sum, r, 1.0 / 39916800);
  sum = fma(sum, r, 1.0 / 3628800);
  sum = fma(sum, r, 1.0 / 362880);
  sum = fma(sum, r, 1.0 / 40320);
  sum = fma(sum, r, 1.0 / 5040);
  sum = fma(sum, r, 1.0 / 720);
  sum = fma(sum, r, 1.0 / 120);
  sum = fma(sum, r, 1.0 / 24);
  sum = fma(sum, r, 1.0 / 6);
  sum = fma(sum, r, 0.5);
  sum = fma(sum, r, 1.0);
  sum = fma(sum, r, 1.0);
  const uint64_t power_bits = static_cast<uint64_t>(1023 + static_cast<int>(n)) << 52;
  double power;
  memcpy(&power, &power_bits, sizeof(power));
  return sum * power;
}

/// `best` is finite and at least `logit`; temperature > 0. As the error of exp() is far below a
/// unit, a smaller logit has at most one unit more.
SUBBYTE_HOST_DEVICE uint64_t token_weight(float logit, float best, double temperature) {
  const double x = (static_cast<double>(logit) - static_cast<double>(best)) / temperature;
  if (!(x > -28)) return 0;  // exp(-27.1) is below 2^-39
  return static_cast<uint64_t>(fma(exp_of_negative(x), 0x1p38, 0.5));
}

/// Sum that the weights of the most likely tokens have to reach for top_p, at least 1.
SUBBYTE_HOST_DEVICE uint64_t weight_of_top_p(double top_p, uint64_t total) {
  const double needed = ceil(top_p * static_cast<double>(total));
  if (needed >= static_cast<double>(total)) return total;
  return needed < 1 ? 1 : static_cast<uint64_t>(needed);
}

/// Weight that a token needs for min_p, at least 1.
SUBBYTE_HOST_DEVICE uint64_t weight_of_min_p(double min_p) {
  const double needed = ceil(min_p * static_cast<double>(kBestWeight));
  return needed < 1 ? 1 : static_cast<uint64_t>(needed);
}

/// 1 to `total` for `uniform` in [0, 1): the token with which the sum reaches it is drawn.
SUBBYTE_HOST_DEVICE uint64_t drawn_weight(double uniform, uint64_t total) {
  const auto below = static_cast<uint64_t>(uniform * static_cast<double>(total));
  return (below < total ? below : total - 1) + 1;
}

/// Larger for larger logits, the same for both zeros, above infinity's for NaN.
SUBBYTE_HOST_DEVICE uint32_t logit_order(float logit) {
  if (logit != logit) return ~uint32_t{0};
  const float value = logit == 0 ? 0.0f : logit;
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits >> 31 != 0 ? ~bits : bits | 0x8000'0000u;
}

/// The logit of an order; not for NaN.
SUBBYTE_HOST_DEVICE float logit_of_order(uint32_t order) {
  const uint32_t bits = order >> 31 != 0 ? order & 0x7FFF'FFFFu : ~order;
  float logit;
  memcpy(&logit, &bits, sizeof(logit));
  return logit;
}

}  // namespace subbyte
