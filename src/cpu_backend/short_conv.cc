// Short convolutions between two gates (ShortConvOp).

#include <algorithm>

#include "cpu_backend/step_runner.h"

namespace subbyte {
namespace {

constexpr int64_t kChannelGrain = 1 << 12;  // channels that are worth a thread

/// A part of a step, and the rows of b, c and x of its tokens.
struct PartRows {
  StatePart part;
  const float* bcx = nullptr;
  int64_t channels = 0;
  int64_t taps = 0;

  /// Adds filter * u of a token; a negative one is of earlier steps.
  void add(float* sum, const float* filter, int64_t token) const {
    if (token >= 0) {
      const float* const b = bcx + token * 3 * channels;
      const float* const x = b + 2 * channels;
      for (int64_t i = 0; i < channels; ++i) sum[i] += filter[i] * (b[i] * x[i]);
    } else if (part.from != nullptr) {
      const float* const u = part.from + (token + taps - 1) * channels;
      for (int64_t i = 0; i < channels; ++i) sum[i] += filter[i] * u[i];
    }
  }

  /// Keeps u of the last tokens.
  void keep() const {
    for (int64_t tap = 0; tap < taps - 1; ++tap) {
      float* const kept = part.to + tap * channels;
      std::fill_n(kept, channels, 0.0f);
      const int64_t token = part.tokens - (taps - 1) + tap;
      if (token >= 0) {
        const float* const b = bcx + token * 3 * channels;
        for (int64_t i = 0; i < channels; ++i) kept[i] = b[i] * b[2 * channels + i];
      } else if (part.from != nullptr) {
        std::copy_n(part.from + (token + taps - 1) * channels, channels, kept);
      }
    }
  }
};

}  // namespace

Status StepRunner::run(const ShortConvOp& op) {
  const std::span<const float> filters = open(op.filters);
  const std::span<const float> bias = open(op.bias);
  const float* bcx = numbers(op.bcx).data();
  float* y = numbers(op.y).data();
  for (const StatePart& part : states(op.cache)) {
    const PartRows rows = {part, bcx, op.channels, op.taps};
    const auto convolve = [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        float* const sum = y + token * op.channels;
        std::fill_n(sum, op.channels, 0.0f);
        if (!bias.empty()) std::ranges::copy(bias, sum);
        for (int64_t tap = 0; tap < op.taps; ++tap) {
          rows.add(sum, filters.data() + tap * op.channels, token - (op.taps - 1) + tap);
        }
        const float* const c = bcx + (3 * token + 1) * op.channels;
        for (int64_t i = 0; i < op.channels; ++i) sum[i] *= c[i];
      }
    };
    execution_.pool().parallel_for(part.tokens, std::max<int64_t>(1, kChannelGrain / op.channels),
                                   convolve);
    rows.keep();
    bcx += part.tokens * 3 * op.channels;
    y += part.tokens * op.channels;
  }
  return {};
}

}  // namespace subbyte
