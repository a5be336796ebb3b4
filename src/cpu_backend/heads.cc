#include "cpu_backend/heads.h"

#include <cmath>
#include <vector>

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

class HeadRotation {
 public:
  HeadRotation(const cpu::VectorKernels& kernels, const RotateOp& op, const HeadOperands& operands)
      : kernels_(kernels), op_(op), operands_(operands) {
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

  /// Normalises a head of values, where they are.
  void run_value(float* x) const {
    if (op_.norms.has_values) normalise(x, ones_.data());
  }

  /// Normalises and turns a head of a row, and scales it where it is one of queries.
  void run(float* x, int64_t row, int64_t position, bool is_query) const {
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

 private:
  void normalise(float* x, const float* norm) const {
    kernels_.rms_norm(x, x, norm, op_.shape.head_dim, op_.norms.eps);
  }

  const cpu::VectorKernels& kernels_;
  const RotateOp& op_;
  const HeadOperands& operands_;
  std::vector<float> ones_;
  const float* q_norm_;
  const float* k_norm_;
};

}  // namespace

void rotate_and_store(Execution& execution, const RotateOp& op, std::span<float> qkv,
                      const HeadOperands& operands, std::span<const RowPlace> places,
                      const CpuKvMemory& cache, Element element) {
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  const auto store = kernels.store_kv[static_cast<int>(element)];
  const AttentionShape& shape = op.shape;
  const int64_t dim = shape.head_dim;
  const int64_t layer = op.cache.layer;
  const int64_t heads_of_row = shape.heads_of_token();
  const HeadRotation rotation(kernels, op, operands);
  execution.pool().parallel_for(
      std::ssize(places) * heads_of_row, kHeadGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i / heads_of_row;
          const int64_t head = i % heads_of_row;
          const auto& [position, page] = places[row];
          float* x = qkv.data() + i * dim;
          if (head < shape.heads + shape.kv_heads) {
            rotation.run(x, row, position, head < shape.heads);
          }
          if (head < shape.heads) continue;
          const int64_t kv_head = (head - shape.heads) % shape.kv_heads;
          const int64_t offset = kv_head * cache.head_bytes();
          if (head < shape.heads + shape.kv_heads) {
            store(cache.key(layer, page, position) + offset,
                  cache.key_scale(layer, page, position) + offset, x, dim);
          } else {
            rotation.run_value(x);
            store(cache.value(layer, page, position) + offset,
                  cache.value_scale(layer, page, position) + offset, x, dim);
          }
        }
      });
}

}  // namespace subbyte
