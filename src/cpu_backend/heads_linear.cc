// A product of each head with a matrix of its own (HeadsLinearOp).

#include <algorithm>
#include <vector>

#include "cpu_backend/step_runner.h"
#include "matrix/alternate_rows.h"

namespace subbyte {

Status StepRunner::run(const HeadsLinearOp& op) {
  const int64_t rows = rows_of(op.x);
  const int64_t inputs = op.weight.cols;
  const int64_t outputs = op.outputs();
  const int64_t head_cols = inputs + op.kept;
  const int64_t y_head_cols = outputs + op.kept;
  const int64_t y_cols = op.heads * y_head_cols + op.rest_cols;
  const std::span<float> y = numbers(op.y);
  const std::span<float> x = heads_.take(op.heads * rows * inputs);
  const float* const from = numbers(op.x).data();
  const float* const rest = op.rest == kNoValue ? nullptr : numbers(op.rest).data();
  execution_.pool().parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = y.data() + row * y_cols;
      for (int64_t head = 0; head < op.heads; ++head) {
        const float* const one = from + (row * op.heads + head) * head_cols;
        std::copy_n(one, inputs, x.data() + (head * rows + row) * inputs);
        std::copy_n(one + inputs, op.kept, to + head * y_head_cols + outputs);
      }
      if (rest != nullptr) {
        std::copy_n(rest + row * op.rest_cols, op.rest_cols, to + op.heads * y_head_cols);
      }
    }
  });
  std::vector<MatrixView> weights;
  for (int64_t head = 0; head < op.heads; ++head) {
    weights.push_back(
        subbyte::rows_of(open(op.weight).parts.front().view, head * outputs, outputs));
  }
  std::vector<LinearProduct> products;
  for (int64_t head = 0; head < op.heads; ++head) {
    LinearProduct product = {y.subspan(head * y_head_cols), x.subspan(head * rows * inputs), rows,
                             &weights[head]};
    product.y_stride = y_cols;
    products.push_back(product);
  }
  return linear_group(execution_, products);
}

}  // namespace subbyte
