#include "cpu_backend/linear_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/blocks.h"
#include "matrix/zero_points.h"

namespace subbyte {
namespace {

/// The matrix without its offsets: codes around a constant zero point.
Matrix without_offsets(Matrix matrix) {
  MatrixView& view = matrix.view;
  const FormatInfo& element = info(view.format.element);
  view.format.zero = Zero::kNone;
  view.zeros = {};
  if (element.min < 0) return matrix;
  view.format.zero = element.bits == 8 ? Zero::kU16 : Zero::kU8;
  const auto size =
      static_cast<std::size_t>(view.rows * view.groups() * zero_bytes(view.format.zero));
  const auto zeros = allocate_bytes(size);
  view.zeros = {zeros.get(), size};
  matrix.owners.push_back(zeros);
  return matrix;
}

Matrix offsets_of(const Matrix& matrix) {
  Matrix offsets;
  offsets.view.format = {.element = offset_format(matrix.view.format.zero)};
  offsets.view.rows = matrix.view.rows;
  offsets.view.cols = matrix.view.groups();
  offsets.view.codes = matrix.view.zeros;
  offsets.owners = matrix.owners;
  return offsets;
}

Result<Matrix> as_floats(Execution& execution, const MatrixView& view) {
  const auto size = static_cast<std::size_t>(view.rows * view.cols * 4);
  const auto floats = allocate_bytes(size);
  SUBBYTE_CHECK(
      cpu::dequantize(view, Format::kF32, floats.get(), execution.kernels(), execution.pool()));
  Matrix dense;
  dense.view.rows = view.rows;
  dense.view.cols = view.cols;
  dense.view.codes = {floats.get(), size};
  dense.owners.push_back(floats);
  return dense;
}

}  // namespace

Result<LinearWeights> LinearWeights::create(Execution& execution, Matrix matrix) {
  LinearWeights weights;
  const bool has_offsets = is_offset(matrix.view.format.zero);
  Matrix codes = for_host_kernels(has_offsets ? without_offsets(matrix) : matrix);
  if (check_linear(execution, codes.view).ok()) {
    if (has_offsets) {
      weights.offsets_ = offsets_of(matrix);
      weights.group_size_ = matrix.view.group_size();
      weights.offset_scale_ = matrix.view.tensor_scale;
      SUBBYTE_CHECK(check_linear(execution, weights.offsets_.view));
    }
    weights.matrix_ = std::move(codes);
    return weights;
  }
  SUBBYTE_TRY(weights.matrix_, as_floats(execution, matrix.view));
  SUBBYTE_CHECK(check_linear(execution, weights.matrix_.view));
  return weights;
}

void LinearWeights::sum_groups(Executor& executor, std::span<float> sums, std::span<const float> x,
                               int64_t m) const {
  const std::span<const uint32_t> order = matrix_.view.input_order;
  const int64_t cols = matrix_.view.cols;
  const int64_t groups = offsets_.view.cols;
  executor.parallel_for(m * groups, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x.data() + i / groups * cols;
      const int64_t first = i % groups * group_size_;
      const int64_t last = std::min(first + group_size_, cols);
      double sum = 0;
      for (int64_t k = first; k < last; ++k) sum += row[order.empty() ? k : order[k]];
      sums[i] = static_cast<float>(sum * offset_scale_);
    }
  });
}

Status LinearWeights::multiply(Execution& execution, std::span<float> y, std::span<const float> x,
                               int64_t m, std::span<const float> bias) const {
  SUBBYTE_CHECK(linear(execution, y, x, m, matrix_.view, bias));
  if (!has_offsets()) return {};
  std::vector<float> sums(m * offsets_.view.cols);
  sum_groups(execution.pool(), sums, x, m);
  std::vector<float> added(m * offsets_.view.rows);
  SUBBYTE_CHECK(exact_linear(execution, added, sums, m, offsets_.view));
  execution.pool().parallel_for(std::ssize(added), 4096, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) y[i] += added[i];
  });
  return {};
}

}  // namespace subbyte
