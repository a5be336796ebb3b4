#pragma once
// What the operations of a backend read and write. All three are handles: only the backend that
// made one looks inside.

#include <cstdint>
#include <memory>
#include <vector>

#include "matrix/matrix.h"

namespace subbyte {

/// Activations of one step, [rows][cols], in the type that the backend computes in (CPU: float32).
/// A row is a token of the batch, in the order of its parts. Valid until the step is finished.
struct Tensor {
  void* data = nullptr;  // nullptr: no tensor
  int64_t rows = 0;
  int64_t cols = 0;
};

/// A matrix [rows][cols] = [outputs][inputs] with its bias, or several joined along their outputs,
/// in the form that the products of the backend read. Copies share the bytes.
struct Weight {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t bytes = 0;  // that a product reads
  std::shared_ptr<const void> storage;
};

/// `size` numbers in float32: norms, sinks.
struct Vector {
  int64_t size = 0;
  std::shared_ptr<const void> storage;
};

/// The experts of one layer as a file has them.
struct ExpertMatrices {
  std::vector<Matrix> gate_up;      // [experts] of [2 * intermediate][hidden], rows alternate
  std::vector<float> gate_up_bias;  // [experts][2 * intermediate]
  std::vector<Matrix> down;         // [experts] of [hidden][intermediate]
  std::vector<float> down_bias;     // [experts][hidden]
  int64_t top_k = 0;                // experts of a token
  float alpha = 1.702f;             // of the clamped SwiGLU
  float limit = 7.0f;
};

/// The same in the memory of a backend.
struct Experts {
  std::shared_ptr<const void> storage;
};

}  // namespace subbyte
