#pragma once
// Weights, vectors and experts as this backend keeps them: in the canonical form, which its kernels
// read in place.

#include <span>
#include <vector>

#include "matrix/matrix.h"
#include "ops/weights.h"

namespace subbyte {

/// Matrices whose outputs follow each other.
struct CpuWeight {
  std::vector<Matrix> parts;
  std::vector<float> bias;  // of all outputs, or empty

  std::span<const float> bias_of(int64_t first, int64_t rows) const {
    return bias.empty() ? std::span<const float>() : std::span(bias).subspan(first, rows);
  }
};

inline const CpuWeight& open(const Weight& weight) {
  return *static_cast<const CpuWeight*>(weight.storage.get());
}

inline std::span<const float> open(const Vector& vector) {
  if (vector.storage == nullptr) return {};
  return *static_cast<const std::vector<float>*>(vector.storage.get());
}

inline const ExpertMatrices& open(const Experts& experts) {
  return *static_cast<const ExpertMatrices*>(experts.storage.get());
}

}  // namespace subbyte
