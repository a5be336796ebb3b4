#include "ops/norm.h"

#include <algorithm>
#include <cmath>

#include "base/float16.h"

namespace subbyte {
namespace {

constexpr int64_t kGrain = 1 << 13;  // floats, about two microseconds

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

void normalise_row(const cpu::VectorKernels& kernels, float* y, const float* x, const Norm& norm) {
  const auto size = static_cast<int64_t>(norm.weight.size());
  if (norm.activations == ActivationType::kF32) {
    kernels.rms_norm(y, x, norm.weight.data(), size, norm.eps);
    return;
  }
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double value = x[i];
    sum += value * value;
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(size));
  const float inverse = 1.0f / std::sqrt(mean + norm.eps);
  for (int64_t i = 0; i < size; ++i) {
    float value = x[i] * inverse;
    if (norm.order == NormOrder::kRoundThenScale) value = round_to(norm.activations, value);
    y[i] = round_to(norm.activations, value * norm.weight[i]);
  }
}

/// Rows that are worth a thread.
int64_t row_grain(std::size_t size) {
  return std::max<int64_t>(1, kGrain / static_cast<int64_t>(size));
}

}  // namespace

void rms_norm(Execution& execution, std::span<float> y, std::span<const float> x,
              const Norm& norm) {
  const auto size = static_cast<int64_t>(norm.weight.size());
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  execution.pool().parallel_for(static_cast<int64_t>(x.size()) / size,
                                row_grain(norm.weight.size()),
                                [&](int64_t begin, int64_t end, int) {
                                  for (int64_t i = begin * size; i < end * size; i += size) {
                                    normalise_row(kernels, y.data() + i, x.data() + i, norm);
                                  }
                                });
}

void add_rms_norm(Execution& execution, std::span<float> y, std::span<float> x,
                  std::span<const float> delta, const Norm& norm) {
  const auto size = static_cast<int64_t>(norm.weight.size());
  const cpu::Kernels& kernels = execution.kernels();
  execution.pool().parallel_for(
      static_cast<int64_t>(x.size()) / size, row_grain(norm.weight.size()),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin * size; i < end * size; i += size) {
          if (norm.activations == ActivationType::kF32) {
            kernels.vectors->add_rms_norm(y.data() + i, x.data() + i, delta.data() + i,
                                          norm.weight.data(), size, norm.eps);
            continue;
          }
          kernels.axpy(x.data() + i, 1, delta.data() + i, size);
          normalise_row(*kernels.vectors, y.data() + i, x.data() + i, norm);
        }
      });
}

}  // namespace subbyte
