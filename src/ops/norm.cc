#include "ops/norm.h"

#include <cmath>

#include "base/float16.h"

namespace subbyte {
namespace {

float round_to(ActivationType type, float value) {
  switch (type) {
    case ActivationType::kBF16:
      return to_float(to_bfloat16(value));
    case ActivationType::kF16:
      return to_float(to_float16(value));
    case ActivationType::kF32:
      break;
  }
  return value;
}

}  // namespace

void rms_norm(std::span<float> y, std::span<const float> x, const Norm& norm) {
  const std::size_t size = norm.weight.size();
  for (std::size_t first = 0; first < x.size(); first += size) {
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double value = x[first + i];
      sum += value * value;
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(size));
    const float inverse = 1.0f / std::sqrt(mean + norm.eps);
    for (std::size_t i = 0; i < size; ++i) {
      float value = x[first + i] * inverse;
      if (norm.order == NormOrder::kRoundThenScale) value = round_to(norm.activations, value);
      y[first + i] = round_to(norm.activations, value * norm.weight[i]);
    }
  }
}

}  // namespace subbyte
