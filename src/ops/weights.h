#pragma once
// What the operations of a step read besides the values of the step. All are handles: only the
// backend that made one looks inside.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/operands.h"
#include "base/status.h"
#include "matrix/matrix.h"

namespace subbyte {

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

/// The part that a tensor has in a model.
enum class TensorRole : uint8_t {
  kTable,          // a matrix whose rows are looked up
  kLinear,         // a matrix that is multiplied
  kRouter,         // a matrix whose results choose experts
  kExpertsGateUp,  // gate and up of all experts of a layer, or up alone
  kExpertsDown,    // what follows them
  kHead,           // a matrix whose results are logits
  kNorm,           // factors near 1
  kVector,         // any numbers
  kRates,          // numbers w of which -exp(w) is computed with
  kFactors,        // numbers near 1 that are no norm's
  kFilters,  // of a convolution over tokens, a filter of `cols` taps for each of `rows` channels
};

/// The function between the products of a dense block or of an expert.
enum class Gate : uint8_t {
  kSilu,  // of the gate: silu(x) = x / (1 + exp(-x))
  kGelu,  // of the gate: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), "gelu_pytorch_tanh"
  kSquaredRelu,  // there is no gate: max(x, 0)^2 of up alone
};
constexpr bool is_gated(Gate gate) {
  return gate != Gate::kSquaredRelu;
}

/// Rows and columns of matrices that are joined. Code linear.unsupported: no matrix, unequal
/// columns, a bias of another size.
Result<Weight> joined_sizes(std::span<const Matrix> matrices, std::span<const float> bias);

/// The experts of one layer as a file has them.
struct ExpertMatrices {
  /// [experts] of [2 * intermediate][hidden], whose rows are gate and up in turns; or apart,
  /// [2 * experts] of [intermediate][hidden], gate and up of each expert, in formats of their own;
  /// or without a gate [experts] of [intermediate][hidden].
  std::vector<Matrix> gate_up;
  std::vector<float> gate_up_bias;  // [experts][rows of all of one] in their order, or empty
  std::vector<Matrix> down;         // [experts] of [hidden][intermediate]
  std::vector<float> down_bias;     // [experts][hidden], or empty
  int64_t top_k = 0;                // experts of a token
  Gate gate = Gate::kSilu;
  SwiGLU swiglu = {};  // of kSilu

  /// Says whether gate and up of an expert are two matrices.
  bool is_apart() const { return gate_up.size() == 2 * down.size(); }
};

/// Checks that there are as many matrices of each kind, alike, with biases of their sizes, and a
/// top_k of them. Code linear.unsupported.
Status check_shapes(const ExpertMatrices& experts);
/// All that a file has of them, but for biases.
int64_t bytes_of(const ExpertMatrices& experts);

/// The same in the memory of a backend.
struct Experts {
  int64_t count = 0;
  int64_t top_k = 0;
  int64_t hidden = 0;
  int64_t inner = 0;  // outputs of the gate of one
  std::shared_ptr<const void> storage;
  bool has_two_formats = false;  // gate another one than up, or it may
  int64_t bytes = 0;             // of all of them, where that is known
};

}  // namespace subbyte
