#include "cpu_backend/heads.h"

#include <vector>

namespace subbyte {
namespace {

constexpr int64_t kHeadGrain = 32;  // heads that are worth a thread

/// Normalises a head, unless `norm` is nullptr, and turns its first `turning` elements.
void norm_and_turn(const cpu::VectorKernels& kernels, float* x, const float* norm, float eps,
                   const float* cos, const float* sin, int64_t dim, int64_t turning) {
  if (norm != nullptr && turning < dim) kernels.rms_norm(x, x, norm, dim, eps);
  kernels.norm_rotate(x, x, turning < dim ? nullptr : norm, eps, cos, sin, turning);
}

}  // namespace

void rotate_and_store(Execution& execution, std::span<float> qkv, const AttentionShape& shape,
                      const HeadNormWeights& norms, const RowAngles& angles,
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
            norm_and_turn(kernels, x, q_norm, norms.eps, cos, sin, dim, turning);
            continue;
          }
          const auto& [position, page] = places[row];
          const int64_t kv_head = (head - shape.heads) % shape.kv_heads;
          const int64_t offset = kv_head * cache.head_bytes();
          if (head < shape.heads + shape.kv_heads) {
            norm_and_turn(kernels, x, k_norm, norms.eps, cos, sin, dim, turning);
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
