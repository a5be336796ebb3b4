#include "ops/attention.h"

#include <algorithm>
#include <cmath>

namespace subbyte {
namespace {

/// Turns scores into weights in place. The sink, if any, takes its share and is dropped.
void softmax(std::span<float> scores, const float* sink) {
  float max = *std::ranges::max_element(scores);
  if (sink != nullptr) max = std::max(max, *sink);
  double sum = sink != nullptr ? std::exp(static_cast<double>(*sink) - max) : 0.0;
  for (float& score : scores) {
    score = std::exp(score - max);
    sum += score;
  }
  const auto inverse = static_cast<float>(1.0 / sum);
  for (float& score : scores) score *= inverse;
}

}  // namespace

void attention(Execution& execution, std::span<float> out, std::span<const float> q,
               const KvView& cache, int64_t first_position, const AttentionShape& shape,
               std::span<const float> sinks) {
  const int64_t dim = shape.head_dim;
  const int64_t row = shape.heads * dim;
  const int64_t tokens = static_cast<int64_t>(q.size()) / row;
  const int64_t heads_per_kv = shape.heads / shape.kv_heads;
  const cpu::Kernels& kernels = execution.kernels();

  const int64_t longest = first_position + tokens;
  const auto size = longest * execution.pool().size() * static_cast<int64_t>(sizeof(float));
  auto* scratch = reinterpret_cast<float*>(execution.buffer(Execution::Slot::kScratch, size));
  execution.pool().parallel_for(
      tokens * shape.heads, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t token = i / shape.heads;
          const int64_t head = i % shape.heads;
          const int64_t last = first_position + token;
          const int64_t first =
              shape.window > 0 ? std::max<int64_t>(0, last - shape.window + 1) : 0;
          const int64_t kv_row = (head / heads_per_kv) * cache.capacity;
          const std::span<float> scores(scratch + thread * longest, last - first + 1);
          const float* query = q.data() + token * row + head * dim;
          for (int64_t p = first; p <= last; ++p) {
            scores[p - first] =
                kernels.dot(query, cache.keys + (kv_row + p) * dim, dim) * shape.scale;
          }
          softmax(scores, sinks.empty() ? nullptr : &sinks[head]);
          float* result = out.data() + token * row + head * dim;
          std::fill_n(result, dim, 0.0f);
          for (int64_t p = first; p <= last; ++p) {
            kernels.axpy(result, scores[p - first], cache.values + (kv_row + p) * dim, dim);
          }
        }
      });
}

}  // namespace subbyte
