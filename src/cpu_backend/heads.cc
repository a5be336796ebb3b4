#include "cpu_backend/heads.h"

#include <algorithm>
#include <cmath>

namespace subbyte {
namespace {

constexpr int64_t kHeadGrain = 32;  // heads that are worth a thread

/// Turns elements 2 i and 2 i + 1 together, i < half.
void turn_neighbours(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i, x += 2) {
    const float even = x[0];
    x[0] = even * cos[i] - x[1] * sin[i];
    x[1] = even * sin[i] + x[1] * cos[i];
  }
}

float factor_of(const QueryScale& scale, int64_t position) {
  const auto steps = static_cast<double>((position + scale.first) / scale.step);
  return static_cast<float>(1 + double{scale.beta} * std::log1p(steps));
}

}  // namespace

RotatedRows::RotatedRows(const cpu::VectorKernels& kernels, const RotateOp& op,
                         std::span<float> qkv, const HeadOperands& operands,
                         std::span<const RowPlace> places, const CpuKvMemory& cache,
                         Element element)
    : kernels_(kernels),
      op_(op),
      qkv_(qkv),
      operands_(operands),
      places_(places),
      cache_(cache),
      element_(element) {
  if (op.norms.are_plain || op.norms.has_values) {
    ones_.assign(static_cast<std::size_t>(op.shape.head_dim), 1);
  }
  const auto norm_of = [&](std::span<const float> weights) {
    if (op.norms.are_plain) return static_cast<const float*>(ones_.data());
    return weights.empty() ? nullptr : weights.data();
  };
  q_norm_ = norm_of(operands.q_norm);
  k_norm_ = norm_of(operands.k_norm);
}

void RotatedRows::run(int64_t row, int64_t head) const {
  run(qkv_.data() + row * op_.shape.qkv_size() + head * op_.shape.head_dim, row, head);
}

void RotatedRows::prepare(int64_t row, int64_t kv_head, bool stores, float* room) const {
  const AttentionShape& shape = op_.shape;
  const float* const of_row = qkv_.data() + row * shape.qkv_size();
  const auto run_copy = [&](int64_t head, float* to) {
    std::copy_n(of_row + head * shape.head_dim, shape.head_dim, to);
    run(to, row, head);
  };
  const int64_t q_per_kv = shape.heads / shape.kv_heads;
  for (int64_t i = 0; i < q_per_kv; ++i) {
    run_copy(kv_head * q_per_kv + i, room + i * shape.head_dim);
  }
  if (!stores || !shape.has_keys) return;
  run_copy(shape.heads + kv_head, room + q_per_kv * shape.head_dim);
  run_copy(shape.heads + shape.kv_heads + kv_head, room + q_per_kv * shape.head_dim);
}

void RotatedRows::run(float* x, int64_t row, int64_t head) const {
  const AttentionShape& shape = op_.shape;
  const auto& [position, page] = places_[row];
  if (head < shape.heads + shape.kv_heads) turn(x, row, position, head < shape.heads);
  if (head < shape.heads) return;
  const auto store = kernels_.store_kv[static_cast<int>(element_)];
  const int64_t layer = op_.cache.layer;
  const int64_t offset = (head - shape.heads) % shape.kv_heads * cache_.head_bytes();
  if (head < shape.heads + shape.kv_heads) {
    store(cache_.key(layer, page, position) + offset,
          cache_.key_scale(layer, page, position) + offset, x, shape.head_dim);
    return;
  }
  if (op_.norms.has_values) normalise(x, ones_.data());
  store(cache_.value(layer, page, position) + offset,
        cache_.value_scale(layer, page, position) + offset, x, shape.head_dim);
}

void RotatedRows::turn(float* x, int64_t row, int64_t position, bool is_query) const {
  const float* const norm = is_query ? q_norm_ : k_norm_;
  const float* const cos = operands_.cos.data() + row * operands_.half;
  const float* const sin = operands_.sin.data() + row * operands_.half;
  const int64_t dim = op_.shape.head_dim;
  const int64_t odd = 2 * operands_.half + 1 == dim ? 1 : 0;  // the last one stays
  const int64_t turning = 2 * operands_.half + odd;
  const bool in_one =
      op_.pairs == RopePairs::kHalves && !op_.norms.are_after_rope && turning == dim;
  if (in_one) {
    kernels_.norm_rotate(x, x, norm, op_.norms.eps, cos, sin, dim);
  } else {
    if (norm != nullptr && !op_.norms.are_after_rope) normalise(x, norm);
    float* const first = x + op_.shape.first_turning;
    if (op_.pairs == RopePairs::kNeighbours) {
      turn_neighbours(first, cos, sin, operands_.half);
    } else if (turning > 0) {
      kernels_.norm_rotate(first, first, nullptr, 0, cos, sin, turning);
    }
    if (norm != nullptr && op_.norms.are_after_rope) normalise(x, norm);
  }
  if (!is_query || op_.query_scale.beta == 0) return;
  const float factor = factor_of(op_.query_scale, position);
  for (int64_t i = 0; i < dim; ++i) x[i] *= factor;
}

void RotatedRows::normalise(float* x, const float* norm) const {
  kernels_.rms_norm(x, x, norm, op_.shape.head_dim, op_.norms.eps);
}

void RotatedRows::run_all(Execution& execution) const {
  const int64_t heads = op_.shape.heads_of_token();
  execution.pool().parallel_for(std::ssize(places_) * heads, kHeadGrain,
                                [&](int64_t begin, int64_t end, int) {
                                  for (int64_t i = begin; i < end; ++i) run(i / heads, i % heads);
                                });
}

}  // namespace subbyte
