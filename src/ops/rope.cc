#include "ops/rope.h"

#include <cmath>

namespace subbyte {

std::vector<double> rope_frequencies(int64_t dim, double theta) {
  std::vector<double> inv_freq(dim / 2);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(dim));
  }
  return inv_freq;
}

void Rope::angles(std::span<float> cos, std::span<float> sin, int64_t first_position,
                  bool is_long) const {
  const std::span<const double> frequencies = is_long ? long_inv_freq_ : inv_freq_;
  const std::size_t half = inv_freq_.size();
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const auto position = static_cast<double>(first_position + static_cast<int64_t>(i / half));
    const double angle = position * frequencies[i % half];
    cos[i] = static_cast<float>(std::cos(angle) * attention_factor_);
    sin[i] = static_cast<float>(std::sin(angle) * attention_factor_);
  }
}

}  // namespace subbyte
