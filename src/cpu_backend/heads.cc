#include "cpu_backend/heads.h"

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

/// Normalises a head, unless `norm` is nullptr, and turns `turning` of its elements.
void norm_and_turn(const cpu::VectorKernels& kernels, float* x, const float* norm, float eps,
                   const float* cos, const float* sin, const AttentionShape& shape, RopePairs pairs,
                   int64_t turning) {
  const bool turns_all = turning == shape.head_dim && pairs == RopePairs::kHalves;
  if (norm != nullptr && !turns_all) kernels.rms_norm(x, x, norm, shape.head_dim, eps);
  x += shape.first_turning;
  if (pairs == RopePairs::kNeighbours) return turn_neighbours(x, cos, sin, turning / 2);
  kernels.norm_rotate(x, x, turns_all ? norm : nullptr, eps, cos, sin, turning);
}

}  // namespace

void rotate_and_store(Execution& execution, std::span<float> qkv, const AttentionShape& shape,
                      RopePairs pairs, const HeadNormWeights& norms, const RowAngles& angles,
                      std::span<const RowPlace> places, const CpuKvMemory& cache, Element element,
                      int64_t layer) {
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  const auto store = kernels.store_kv[static_cast<int>(element)];
  const int64_t dim = shape.head_dim;
  const int64_t turning = 2 * angles.half + (2 * angles.half + 1 == dim ? 1 : 0);  // odd: one stays
  const int64_t heads_of_row = shape.heads_of_token();
  const float* q_norm = norms.q.empty() ? nullptr : norms.q.data();
  const float* k_norm = norms.k.empty() ? nullptr : norms.k.data();
  const std::vector<float> ones(norms.has_values ? dim : 0, 1.0f);
  execution.pool().parallel_for(
      std::ssize(places) * heads_of_row, kHeadGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i / heads_of_row;
          const int64_t head = i % heads_of_row;
          const float* cos = angles.cos.data() + row * angles.half;
          const float* sin = angles.sin.data() + row * angles.half;
          float* x = qkv.data() + i * dim;
          if (head < shape.heads) {
            norm_and_turn(kernels, x, q_norm, norms.eps, cos, sin, shape, pairs, turning);
            continue;
          }
          const auto& [position, page] = places[row];
          const int64_t kv_head = (head - shape.heads) % shape.kv_heads;
          const int64_t offset = kv_head * cache.head_bytes();
          if (head < shape.heads + shape.kv_heads) {
            norm_and_turn(kernels, x, k_norm, norms.eps, cos, sin, shape, pairs, turning);
            store(cache.key(layer, page, position) + offset,
                  cache.key_scale(layer, page, position) + offset, x, dim);
          } else {
            if (!ones.empty()) kernels.rms_norm(x, x, ones.data(), dim, norms.eps);
            store(cache.value(layer, page, position) + offset,
                  cache.value_scale(layer, page, position) + offset, x, dim);
          }
        }
      });
}

}  // namespace subbyte
