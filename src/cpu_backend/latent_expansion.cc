#include "cpu_backend/latent_expansion.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "cpu_backend/cached_keys.h"
#include "kernels/cpu/linear.h"
#include "matrix/alternate_rows.h"
#include "matrix/float_rows.h"

namespace subbyte {
namespace {

constexpr int64_t kMostFloats = int64_t{32} << 20;  // of latents, keys and values
constexpr int64_t kGrain = 16;                      // positions that are worth a thread

/// Positions of whole pages.
int64_t paged(int64_t positions) {
  return static_cast<int64_t>(round_up(positions, kPagePositions));
}

int64_t floats_of_head(const LatentSizes& sizes, int64_t positions) {
  return 2 * sizes.head_dim() * paged(positions);
}

/// Heads that are expanded at a time.
int64_t heads_that_fit(const LatentSizes& sizes, int64_t positions) {
  const int64_t left = kMostFloats - positions * (sizes.rank + sizes.turning);
  return std::min(sizes.heads, left / floats_of_head(sizes, positions));
}

/// Keys and values of some heads.
struct Expanded {
  float* numbers;
  int64_t heads;
  int64_t positions;
  int64_t head_dim;

  int64_t run() const { return paged(positions) * head_dim; }
  float* keys(int64_t head) const { return numbers + 2 * head * run(); }
  float* values(int64_t head) const { return keys(head) + run(); }

  KvLayer layer() const {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
    return {reinterpret_cast<std::byte*>(numbers), kPagePositions * head_dim * kBytes, 0,
            run() * kBytes, Element::kF32};
  }
};

void read_latents(Executor& pool, const KvLayer& layer, std::span<const int32_t> pages,
                  const LatentSizes& sizes, std::span<float> latents, std::span<float> turned) {
  const int64_t dim = sizes.rank + sizes.turning;
  const int64_t positions = std::ssize(latents) / sizes.rank;
  pool.parallel_for(positions, kGrain, [&](int64_t begin, int64_t end, int) {
    std::vector<float> key(static_cast<std::size_t>(dim));
    for (int64_t i = begin; i < end; ++i) {
      read_key(layer, place_of(layer, pages, i, dim), key.data(), dim);
      std::copy_n(key.data(), sizes.rank, latents.data() + i * sizes.rank);
      std::copy_n(key.data() + sizes.rank, sizes.turning, turned.data() + i * sizes.turning);
    }
  });
}

/// Rows [begin, end) of [heads * rank][nope], a matrix of each head the other way round.
void turn_matrices(Executor& pool, const MatrixView& keys, const LatentSizes& sizes, int64_t first,
                   int64_t heads, std::span<float> to) {
  const FloatRows rows(keys);
  pool.parallel_for(heads, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<std::size_t>(sizes.nope));
    for (int64_t head = begin; head < end; ++head) {
      float* const matrix = to.data() + head * sizes.nope * sizes.rank;
      for (int64_t k = 0; k < sizes.rank; ++k) {
        rows.row((first + head) * sizes.rank + k, row.data());
        for (int64_t i = 0; i < sizes.nope; ++i) matrix[i * sizes.rank + k] = row[i];
      }
    }
  });
}

/// Writes what products do not: numbers that turn, and zeros to the end of each key and value.
void complete(Executor& pool, const Expanded& to, const LatentSizes& sizes,
              std::span<const float> turned) {
  pool.parallel_for(to.positions, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t head = 0; head < to.heads; ++head) {
      for (int64_t i = begin; i < end; ++i) {
        float* const key = to.keys(head) + i * to.head_dim;
        float* const value = to.values(head) + i * to.head_dim;
        std::copy_n(turned.data() + i * sizes.turning, sizes.turning, key + sizes.nope);
        std::fill(key + sizes.nope + sizes.turning, key + to.head_dim, 0.0f);
        std::fill(value + sizes.value, value + to.head_dim, 0.0f);
      }
    }
  });
}

Status expand(Execution& execution, const Expanded& to, const LatentSizes& sizes,
              std::span<const float> latents, std::span<const float> matrices,
              const MatrixView& values, int64_t first) {
  std::vector<MatrixView> weights;
  for (int64_t head = 0; head < to.heads; ++head) {
    MatrixView keys;
    keys.format = {Format::kF32};
    keys.rows = sizes.nope;
    keys.cols = sizes.rank;
    keys.codes =
        std::as_bytes(matrices.subspan(head * sizes.nope * sizes.rank, sizes.nope * sizes.rank));
    weights.push_back(keys);
    weights.push_back(rows_of(values, (first + head) * sizes.value, sizes.value));
  }
  std::vector<LinearProduct> products;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::span<float> y(to.numbers + static_cast<int64_t>(i) * to.run(),
                             static_cast<std::size_t>(to.run()));
    products.push_back({.y = y, .x = latents, .m = to.positions, .weights = &weights[i]});
    products.back().y_stride = to.head_dim;
  }
  return linear_group(execution, products);
}

}  // namespace

bool LatentExpansion::fits(const LatentSizes& sizes, int64_t positions) {
  return heads_that_fit(sizes, positions) > 0;
}

Status LatentExpansion::attend(Execution& execution, const AttentionPart& part, int64_t q_stride,
                               const KvLayer& layer, const AttentionShape& shape,
                               const LatentSizes& sizes, const LatentMatrixViews& matrices,
                               std::span<const float> sinks) {
  Executor& pool = execution.pool();
  const int64_t positions = part.first_position + part.tokens;
  const int64_t most = heads_that_fit(sizes, positions);
  const std::span<float> latents = latents_.take(positions * sizes.rank);
  const std::span<float> turned = turned_.take(positions * sizes.turning);
  read_latents(pool, layer, part.pages, sizes, latents, turned);
  std::vector<int32_t> pages(static_cast<std::size_t>(paged(positions) / kPagePositions));
  std::iota(pages.begin(), pages.end(), 0);
  const AttentionStrides strides = {.q = q_stride,
                                    .q_kv_head = sizes.rank + sizes.turning,
                                    .out = shape.result_size(),
                                    .out_head = sizes.rank,
                                    .value_dim = sizes.value};
  for (int64_t first = 0; first < sizes.heads; first += most) {
    const int64_t heads = std::min(most, sizes.heads - first);
    const std::span<float> turned_round = matrices_.take(heads * sizes.nope * sizes.rank);
    turn_matrices(pool, matrices.keys, sizes, first, heads, turned_round);
    const Expanded expanded = {expanded_.take(heads * floats_of_head(sizes, positions)).data(),
                               heads, positions, sizes.head_dim()};
    SUBBYTE_CHECK(
        expand(execution, expanded, sizes, latents, turned_round, matrices.values, first));
    complete(pool, expanded, sizes, turned);
    AttentionShape of_heads = shape;
    of_heads.heads = of_heads.kv_heads = heads;
    of_heads.head_dim = sizes.head_dim();
    of_heads.values_in_keys = of_heads.first_turning = of_heads.top = 0;
    const AttentionPart one = {part.q + first * strides.q_kv_head + sizes.rank - sizes.nope,
                               part.out + first * strides.out_head, part.tokens,
                               part.first_position, pages};
    attention(execution, {&one, 1}, strides, expanded.layer(), of_heads,
              sinks.empty() ? sinks : sinks.subspan(first, heads));
  }
  return {};
}

}  // namespace subbyte
