// A product of each head with a matrix of its own (HeadsLinearOp).

#include <algorithm>
#include <vector>

#include "cpu_backend/step_runner.h"
#include "matrix/alternate_rows.h"

namespace subbyte {

bool StepRunner::expands(const LatentSizes& latent, const Part& part) const {
  const auto tokens = std::ssize(part.tokens);
  const int64_t cached = part.sequence->length();
  return !execution_.batch_invariant() && latent.is_expanded(tokens, cached) &&
         heads_that_fit(execution_, latent, cached + tokens) > 0;
}

std::vector<StepRunner::Rows> StepRunner::rows_of_latents(const LatentSizes& latent) const {
  std::vector<Rows> all;
  for (const Part& part : batch_->parts) {
    const bool are_expanded = expands(latent, part);
    if (all.empty() || all.back().are_expanded != are_expanded) {
      const int64_t first = all.empty() ? 0 : all.back().first + all.back().count;
      all.push_back({first, 0, are_expanded});
    }
    all.back().count += std::ssize(part.tokens);
  }
  return all;
}

Status StepRunner::run(const HeadsLinearOp& op) {
  for (const Rows& rows : rows_of_latents(op.latent)) {
    if (rows.are_expanded) {
      move_heads(op, rows.first, rows.count);
    } else {
      SUBBYTE_CHECK(multiply_heads(op, rows.first, rows.count));
    }
  }
  if (op.rest == kNoValue) return {};
  const float* const rest = numbers(op.rest).data();
  const int64_t y_cols = plan_->value(op.y).cols;
  float* const to = numbers(op.y).data() + y_cols - op.rest_cols;
  execution_.pool().parallel_for(rows_of(op.y), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(rest + row * op.rest_cols, op.rest_cols, to + row * y_cols);
    }
  });
  return {};
}

Status StepRunner::multiply_heads(const HeadsLinearOp& op, int64_t first, int64_t rows) {
  const int64_t inputs = op.weight.cols;
  const int64_t outputs = op.outputs();
  const int64_t head_cols = inputs + op.kept;
  const int64_t y_head_cols = outputs + op.kept;
  const int64_t y_cols = plan_->value(op.y).cols;
  const std::span<float> y = numbers(op.y).subspan(first * y_cols);
  const std::span<float> x = heads_.take(op.heads * rows * inputs);
  const float* const from = numbers(op.x).data() + first * op.heads * head_cols;
  execution_.pool().parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = y.data() + row * y_cols;
      for (int64_t head = 0; head < op.heads; ++head) {
        const float* const one = from + (row * op.heads + head) * head_cols;
        std::copy_n(one, inputs, x.data() + (head * rows + row) * inputs);
        std::copy_n(one + inputs, op.kept, to + head * y_head_cols + outputs);
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

void StepRunner::move_heads(const HeadsLinearOp& op, int64_t first, int64_t rows) {
  const bool of_queries = op.rest != kNoValue;
  const int64_t from_cols = op.weight.cols + op.kept;
  const int64_t to_cols = op.outputs() + op.kept;
  const int64_t count = std::min(from_cols, to_cols);
  const int64_t gap = of_queries ? to_cols - count : 0;  // zeros, so that nothing there is NaN
  const int64_t y_cols = plan_->value(op.y).cols;
  const float* const x = numbers(op.x).data() + first * op.heads * from_cols;
  float* const y = numbers(op.y).data() + first * y_cols;
  execution_.pool().parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * op.heads; i < end * op.heads; ++i) {
      float* const to = y + i / op.heads * y_cols + i % op.heads * to_cols;
      std::fill_n(to, gap, 0.0f);
      std::copy_n(x + i * from_cols, count, to + gap);
    }
  });
}

}  // namespace subbyte
