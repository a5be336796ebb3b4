#include "ops/weights.h"

#include <algorithm>
#include <string>

namespace subbyte {
namespace {

Error unsupported(const std::string& message) {
  return {"linear.unsupported", message};
}

}  // namespace

Result<Weight> joined_sizes(std::span<const Matrix> matrices, std::span<const float> bias) {
  if (matrices.empty()) return unsupported("no matrix");
  Weight weight;
  weight.cols = matrices.front().view.cols;
  for (const Matrix& matrix : matrices) {
    if (matrix.view.cols != weight.cols) return unsupported("joined matrices of unequal columns");
    weight.rows += matrix.view.rows;
  }
  if (!bias.empty() && std::ssize(bias) != weight.rows) {
    return unsupported("a bias of another size than the rows");
  }
  return weight;
}

Status check_shapes(const ExpertMatrices& experts) {
  const auto count = std::ssize(experts.down);
  const int64_t parts = experts.is_apart() ? 2 : 1;
  const int64_t halves = is_gated(experts.gate) ? 2 : 1;
  if (count == 0 || std::ssize(experts.gate_up) != parts * count || parts > halves) {
    return unsupported(
        "experts: expected as many gate_up as down matrices, or two of each, found " +
        std::to_string(count) + " down and " + std::to_string(experts.gate_up.size()) + " gate_up");
  }
  if (experts.top_k < 1 || experts.top_k > count) {
    return unsupported("experts: expected 1 to " + std::to_string(count) +
                       " experts of a token, found " + std::to_string(experts.top_k));
  }
  const int64_t hidden = experts.down[0].view.rows;
  const int64_t inner = experts.down[0].view.cols;
  const auto are_alike = [](const std::vector<Matrix>& matrices, int64_t rows, int64_t cols) {
    return std::ranges::all_of(matrices, [=](const Matrix& matrix) {
      return matrix.view.rows == rows && matrix.view.cols == cols;
    });
  };
  if (!are_alike(experts.gate_up, halves * inner / parts, hidden) ||
      !are_alike(experts.down, hidden, inner)) {
    return unsupported(
        "experts: expected gate_up [2 n][hidden], or gate and up [n][hidden], or up alone, and "
        "down [hidden][n], all alike");
  }
  const auto is_bias = [count](const std::vector<float>& bias, int64_t rows) {
    return bias.empty() || std::ssize(bias) == count * rows;
  };
  if (!is_bias(experts.gate_up_bias, halves * inner) || !is_bias(experts.down_bias, hidden)) {
    return unsupported("experts: expected a bias for each output of each expert, or none");
  }
  return {};
}

int64_t bytes_of(const ExpertMatrices& experts) {
  int64_t bytes = 0;
  for (const std::vector<Matrix>* const matrices : {&experts.gate_up, &experts.down}) {
    for (const Matrix& matrix : *matrices) bytes += matrix.view.bytes();
  }
  return bytes;
}

}  // namespace subbyte
