#include "cpu_backend/norm.h"

#include <algorithm>
#include <cmath>

namespace subbyte {
namespace {

constexpr int64_t kGrain = 1 << 13;  // floats, about two microseconds

/// Rows that are worth a thread.
int64_t row_grain(std::size_t size) {
  return std::max<int64_t>(1, kGrain / static_cast<int64_t>(size));
}

void norm_row(float* y, const float* x, const NormNumbers& norm) {
  const auto size = std::ssize(norm.weight);
  double mean = 0;
  if (norm.is_centred) {
    for (int64_t i = 0; i < size; ++i) mean += x[i];
    mean /= static_cast<double>(size);
  }
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double factor = 1 / std::sqrt(squares / static_cast<double>(size) + norm.eps);
  for (int64_t i = 0; i < size; ++i) {
    const double scaled = (x[i] - mean) * factor * norm.weight[i];
    y[i] = static_cast<float>(norm.bias.empty() ? scaled : scaled + norm.bias[i]);
  }
}

}  // namespace

void any_norm(Execution& execution, std::span<float> y, std::span<const float> x,
              const NormNumbers& norm) {
  const auto size = std::ssize(norm.weight);
  execution.pool().parallel_for(std::ssize(x) / size, row_grain(norm.weight.size()),
                                [&](int64_t begin, int64_t end, int) {
                                  for (int64_t i = begin * size; i < end * size; i += size) {
                                    norm_row(y.data() + i, x.data() + i, norm);
                                  }
                                });
}

void rms_norm(Execution& execution, std::span<float> y, std::span<const float> x,
              std::span<const float> weight, float eps) {
  const auto size = static_cast<int64_t>(weight.size());
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  execution.pool().parallel_for(
      std::ssize(x) / size, row_grain(weight.size()), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin * size; i < end * size; i += size) {
          kernels.rms_norm(y.data() + i, x.data() + i, weight.data(), size, eps);
        }
      });
}

void rms_norm_columns(Execution& execution, std::span<float> x, int64_t stride, int64_t first,
                      std::span<const float> weight, float eps) {
  const auto size = static_cast<int64_t>(weight.size());
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  execution.pool().parallel_for(std::ssize(x) / stride, row_grain(weight.size()),
                                [&](int64_t begin, int64_t end, int) {
                                  for (int64_t row = begin; row < end; ++row) {
                                    float* const columns = x.data() + row * stride + first;
                                    kernels.rms_norm(columns, columns, weight.data(), size, eps);
                                  }
                                });
}

void add(Execution& execution, std::span<float> y, std::span<float> x, std::span<const float> delta,
         float factor) {
  execution.pool().parallel_for(std::ssize(x), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      x[i] = factor == 1 ? x[i] + delta[i] : std::fma(factor, delta[i], x[i]);
      y[i] = x[i];
    }
  });
}

void add_rms_norm_row(const cpu::VectorKernels& kernels, float* y, float* x, const float* delta,
                      std::span<const float> weight, float eps, float factor, float scale) {
  const auto size = std::ssize(weight);
  if (factor == 1 && scale == 1) {
    kernels.add_rms_norm(y, x, delta, weight.data(), size, eps);
    return;
  }
  for (int64_t i = 0; i < size; ++i) x[i] = scale * std::fma(factor, delta[i], x[i]);
  kernels.rms_norm(y, x, weight.data(), size, eps);
}

void add_rms_norm(Execution& execution, std::span<float> y, std::span<float> x,
                  std::span<const float> delta, std::span<const float> weight, float eps,
                  float factor, float scale) {
  const auto size = static_cast<int64_t>(weight.size());
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  execution.pool().parallel_for(std::ssize(x) / size, row_grain(weight.size()),
                                [&](int64_t begin, int64_t end, int) {
                                  for (int64_t i = begin * size; i < end * size; i += size) {
                                    add_rms_norm_row(kernels, y.data() + i, x.data() + i,
                                                     delta.data() + i, weight, eps, factor, scale);
                                  }
                                });
}

}  // namespace subbyte
