#pragma once
// Root mean square normalisation: y = x / sqrt(mean(x^2) + eps) * weight.

#include <cstdint>
#include <span>

#include "ops/execution.h"

namespace subbyte {

/// Where the result is rounded to the type of the activations. The families of models differ:
///
///   kRoundThenScale   round(x / rms) * weight, rounded again     Qwen3, Llama
///   kScaleThenRound   round(x / rms * weight)                    gpt-oss
///
/// With float32 activations both are the same formula.
enum class NormOrder : uint8_t { kRoundThenScale, kScaleThenRound };

enum class ActivationType : uint8_t { kF32, kBF16, kF16 };

struct Norm {
  std::span<const float> weight;  // [size]
  float eps = 1e-6f;
  NormOrder order = NormOrder::kRoundThenScale;
  ActivationType activations = ActivationType::kF32;
};

/// Normalises each row of x [rows][size], size = norm.weight.size(); y may be x. The mean is
/// accumulated in double precision.
void rms_norm(Execution& execution, std::span<float> y, std::span<const float> x, const Norm& norm);

/// x += delta, then y = the normalised x, in one pass; y may not be x.
void add_rms_norm(Execution& execution, std::span<float> y, std::span<float> x,
                  std::span<const float> delta, const Norm& norm);

}  // namespace subbyte
