#pragma once
// Models of the checkout on the GPU and on the CPU, and how near their logits have to be: what the
// tests of whole models share.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "backends/backends.h"
#include "base/random.h"
#include "models/model.h"
#include "support/goldens.h"
#include "support/value_of.h"

namespace subbyte::testing {

// What is rounded to 16 bits in a layer is twice what `--activations bf16` rounds on the CPU
// (results of products, too), so its error is 3 dB more than the 30 dB that
// docs/kernels/accuracy.md states for that; f16 rounds an eighth as much, 18 dB. Both are for the
// two layers of the goldens, errors of layers being independent: four times as many are 6 dB.
inline constexpr double kBF16Decibels = 30 - 3;
inline constexpr double kF16Decibels = kBF16Decibels + 18;
inline constexpr double kEightLayers = 6;
inline constexpr double kOfDifferences = 3;  // where both of two are rounded

/// What is stated for two layers, of that many.
inline double of_layers(double decibels, int64_t layers) {
  return decibels - 10 * std::log10(static_cast<double>(layers) / 2);
}

/// The signal over the error, of all tokens; NaN, which is less than any bound, of what has not as
/// many numbers.
inline double decibels(std::span<const float> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  if (found.size() != expected.size()) return NAN;
  double signal = 0;
  double noise = 1e-30;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = static_cast<double>(found[i]) - expected[i];
    signal += static_cast<double>(expected[i]) * expected[i];
    noise += error * error;
  }
  return 10 * std::log10(signal / noise);
}

struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

inline LoadedModel load(const std::filesystem::path& directory, const DeviceOptions& options,
                        int head_bits = 16) {
  auto backend = value_of(make_backend(options));
  auto model = value_of(load_model(directory, *backend, {.head_bits = head_bits}));
  return {std::move(backend), std::move(model)};
}

inline std::vector<int32_t> random_tokens(const LoadedModel& on, int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.below(on.model->config().vocab_size));
  }
  return tokens;
}

inline void append(std::vector<float>& all, std::span<const float> more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// In the checkout that the program was built in, or in the one that it was carried to.
inline std::filesystem::path checkout() {
  const auto built_in = std::filesystem::path(SUBBYTE_TEST_DATA) / "../..";
  return std::filesystem::exists(built_in) ? built_in : std::filesystem::current_path();
}
inline std::filesystem::path golden(const std::string& name) {
  return checkout() / "tests/data/goldens" / name;
}
inline std::filesystem::path gguf_golden(const std::string& name) {
  return checkout() / "tests/data/gguf" / name;
}
inline std::filesystem::path demo() {
  return checkout() / "demo/model";
}

inline DeviceOptions gpu(Activations activations = Activations::kF32) {
  return {.device = "cuda", .num_threads = 2, .activations = activations};
}

/// Of a row of logits: the best token, and how far the next one is.
struct Best {
  int32_t token = 0;
  double gap = 0;
};

inline Best best_of(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  float next = -INFINITY;
  for (auto at = logits.begin(); at != logits.end(); ++at) {
    if (at != best) next = std::max(next, *at);
  }
  return {static_cast<int32_t>(best - logits.begin()), static_cast<double>(*best) - next};
}

/// The standard deviation of the difference of two logits that an error of so many decibels allows.
inline double stated_difference(std::span<const float> logits, double stated = kF16Decibels) {
  double squares = 0;
  for (const float value : logits) squares += static_cast<double>(value) * value;
  return std::sqrt(2 * squares / static_cast<double>(logits.size())) * std::pow(10, -stated / 20);
}

}  // namespace subbyte::testing
