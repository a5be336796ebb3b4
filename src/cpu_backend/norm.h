#pragma once
// Normalisation of rows: y = x / sqrt(mean(x^2) + eps) * weight, and of x less its mean.

#include <cstdint>
#include <span>

#include "kernels/cpu/execution.h"

namespace subbyte {

/// Normalises each row of x [rows][size], size = weight.size(); y may be x. The mean is accumulated
/// in double precision.
void rms_norm(Execution& execution, std::span<float> y, std::span<const float> x,
              std::span<const float> weight, float eps);

/// The same in place of `weight.size()` columns of each row of x [rows][stride], from `first` on.
void rms_norm_columns(Execution& execution, std::span<float> x, int64_t stride, int64_t first,
                      std::span<const float> weight, float eps);

/// Numbers of a norm of any kind; `bias` may be empty.
struct NormNumbers {
  std::span<const float> weight, bias;
  float eps = 0;
  bool is_centred = false;
};

/// Normalises each row of x [rows][weight.size()]; y may be x. Mean and variance are accumulated in
/// double precision.
void any_norm(Execution& execution, std::span<float> y, std::span<const float> x,
              const NormNumbers& norm);

/// x += factor * delta; y = x.
void add(Execution& execution, std::span<float> y, std::span<float> x, std::span<const float> delta,
         float factor);

/// The next for one row of weight.size() numbers.
void add_rms_norm_row(const cpu::VectorKernels& kernels, float* y, float* x, const float* delta,
                      std::span<const float> weight, float eps, float factor, float scale);

/// x = scale * (x + factor * delta), then y = the normalised x, in one pass; y may not be x.
void add_rms_norm(Execution& execution, std::span<float> y, std::span<float> x,
                  std::span<const float> delta, std::span<const float> weight, float eps,
                  float factor = 1, float scale = 1);

}  // namespace subbyte
