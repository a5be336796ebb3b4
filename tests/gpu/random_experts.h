#pragma once
// Experts of random weights, and what holds their bytes.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/backend.h"
#include "ops/step_plan.h"
#include "support/random_matrix.h"
#include "two_level_factors.h"

namespace subbyte::testing {

struct Sizes {
  int64_t experts = 8;
  int64_t hidden = 160;
  int64_t inner = 96;
};

struct TestExperts {
  Sizes sizes;
  WeightFormat format;
  std::vector<RandomMatrix> owners;
  std::vector<std::vector<uint32_t>> orders;
  ExpertMatrices matrices;
  Router router;
};

/// `down`: the format of those matrices, where it is another one.
inline TestExperts random_experts(const WeightFormat& format, const Sizes& sizes, uint64_t seed,
                                  const std::optional<WeightFormat>& down = {}) {
  TestExperts experts;
  experts.sizes = sizes;
  experts.format = format;
  for (int64_t e = 0; e < 2 * sizes.experts; ++e) {
    const bool is_down = e % 2 != 0;
    const int64_t rows = is_down ? sizes.hidden : 2 * sizes.inner;
    const int64_t cols = is_down ? sizes.inner : sizes.hidden;
    RandomMatrix matrix = random_matrix(is_down ? down.value_or(format) : format, rows, cols,
                                        Contents::kReal, seed + e);
    shrink_two_levels(matrix);
    if (e > 0 && !matrix.codebook.empty()) {  // vectors are those of all experts
      matrix.view.codebook = experts.owners.front().codebook;
    }
    if (format.scale == Format::kE8M0) {  // gates of ordinary size: scales of 1/32 and 1/128
      for (std::byte& scale : matrix.scales->span()) scale = std::byte(is_down ? 120 : 122);
    }
    (is_down ? experts.matrices.down : experts.matrices.gate_up).push_back({matrix.view, {}});
    experts.owners.push_back(std::move(matrix));
  }
  Random random(seed + 1000);
  experts.matrices.gate_up_bias.resize(sizes.experts * 2 * sizes.inner);
  experts.matrices.down_bias.resize(sizes.experts * sizes.hidden);
  // Quarters, which both types of activations hold.
  const auto fill = [&](std::vector<float>& bias) {
    for (float& value : bias) value = 0.25f * (static_cast<float>(random.below(9)) - 4);
  };
  fill(experts.matrices.gate_up_bias);
  fill(experts.matrices.down_bias);
  experts.matrices.top_k = std::min<int64_t>(4, sizes.experts);
  experts.matrices.swiglu = {1.702f, 7, 1};
  return experts;
}

/// Gate and up apart, each of its own format, and `down` of a third.
inline TestExperts random_experts_apart(const WeightFormat& gate, const WeightFormat& up,
                                        const WeightFormat& down, const Sizes& sizes,
                                        uint64_t seed) {
  TestExperts experts = random_experts(down, sizes, seed);
  experts.matrices.gate_up.clear();
  for (int64_t e = 0; e < 2 * sizes.experts; ++e) {
    RandomMatrix matrix = random_matrix(e % 2 == 0 ? gate : up, sizes.inner, sizes.hidden,
                                        Contents::kReal, seed + 2000 + e);
    shrink_two_levels(matrix);
    experts.matrices.gate_up.push_back({matrix.view, {}});
    experts.owners.push_back(std::move(matrix));
  }
  return experts;
}

}  // namespace subbyte::testing
