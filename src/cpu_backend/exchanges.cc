// What a rank tells the others, and a stage the next one, in a step (ops/exchange.h).

#include <algorithm>

#include "cpu_backend/step_runner.h"

namespace subbyte {
namespace {

int64_t cols_of(const Columns& columns) {
  int64_t cols = 0;
  for (const ColumnRange& range : columns) cols += range.count;
  return cols;
}

}  // namespace

Status StepRunner::run(const AllReduceOp& op) {
  return exchange_->all_reduce(numbers(op.y));
}

bool StepRunner::gathers_logits(const AllGatherOp& op) const {
  const auto* const last = std::get_if<LogitsOp>(&plan_->ops.back().what);
  return last != nullptr && last->logits == op.y;
}

/// Ranks give as much as the one with the most columns.
///
///   all   [ranks][rows][most columns]   ->   y [rows][cols]
Status StepRunner::run(const AllGatherOp& op) {
  if (gathers_logits(op)) {
    head_parts_ = &op;
    logits_.clear();
    return {};
  }
  const int64_t rows = rows_of(op.y);
  const int64_t most = cols_of(*std::ranges::max_element(op.parts, {}, cols_of));
  const int64_t own = plan_->value(op.x).cols;
  const std::span<float> all = gathered_.take(exchange_->size() * rows * most);
  const std::span<float> mine = all.subspan(exchange_->rank() * rows * most, rows * most);
  const float* const x = numbers(op.x).data();
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(x + row * own, own, mine.data() + row * most);
  }
  SUBBYTE_CHECK(exchange_->all_gather(std::as_bytes(mine), std::as_writable_bytes(all)));
  float* const y = numbers(op.y).data();
  const float* from = all.data();
  for (const Columns& columns : op.parts) {
    for (int64_t row = 0; row < rows; ++row, from += most) {
      const float* next = from;
      for (const ColumnRange& range : columns) {
        std::copy_n(next, range.count, y + row * op.cols + range.first);
        next += range.count;
      }
    }
  }
  return {};
}

Status StepRunner::run(const ReceiveOp& op) {
  const std::span<float> y = numbers(op.y);
  const auto first = batch_->received.begin() + rows_of(op.y) * op.before;
  std::copy_n(first, y.size(), y.begin());
  return {};
}

Status StepRunner::run(const SendOp& op) {
  const std::span<const float> x = numbers(op.x);
  sent_.insert(sent_.end(), x.begin(), x.end());
  return {};
}

}  // namespace subbyte
