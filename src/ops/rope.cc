#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace subbyte {
namespace {

/// The dimension (of head_dim/2) that makes `turns` full turns over the original context.
double dimension_of(double turns, double head_dim, double theta, double positions) {
  return head_dim * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void scale_yarn(std::span<double> inv_freq, double head_dim, double theta,
                const RopeScaling& scaling) {
  const double positions = scaling.original_max_positions;
  double low = dimension_of(scaling.beta_fast, head_dim, theta, positions);
  double high = dimension_of(scaling.beta_slow, head_dim, theta, positions);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1);
  if (low == high) high += 0.001;  // a step instead of a ramp
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] * (1 - ramp) + inv_freq[i] / scaling.factor * ramp;
  }
}

void scale_by_turns(std::span<double> inv_freq, const RopeScaling& scaling) {
  for (double& frequency : inv_freq) {
    const double turns = scaling.original_max_positions * frequency / (2 * std::numbers::pi);
    const double ramp =
        std::clamp((turns - scaling.beta_slow) / (scaling.beta_fast - scaling.beta_slow), 0.0, 1.0);
    frequency = frequency * ramp + frequency / scaling.factor * (1 - ramp);
  }
}

}  // namespace

Rope::Rope(int64_t head_dim, double theta, const RopeScaling& scaling) : inv_freq_(head_dim / 2) {
  const auto dim = static_cast<double>(head_dim);
  for (std::size_t i = 0; i < inv_freq_.size(); ++i) {
    inv_freq_[i] = std::pow(theta, -2 * static_cast<double>(i) / dim);
  }
  if (scaling.type == RopeScaling::Type::kLinear) {
    for (double& frequency : inv_freq_) frequency /= scaling.factor;
  }
  if (scaling.type == RopeScaling::Type::kTurns) scale_by_turns(inv_freq_, scaling);
  if (scaling.type == RopeScaling::Type::kYarn) {
    scale_yarn(inv_freq_, dim, theta, scaling);
    attention_factor_ = scaling.attention_factor > 0 ? scaling.attention_factor
                        : scaling.factor <= 1        ? 1
                                                     : 0.1 * std::log(scaling.factor) + 1;
  }
}

void Rope::angles(std::span<float> cos, std::span<float> sin, int64_t first_position) const {
  const std::size_t half = inv_freq_.size();
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const auto position = static_cast<double>(first_position + static_cast<int64_t>(i / half));
    const double angle = position * inv_freq_[i % half];
    cos[i] = static_cast<float>(std::cos(angle) * attention_factor_);
    sin[i] = static_cast<float>(std::sin(angle) * attention_factor_);
  }
}

}  // namespace subbyte
