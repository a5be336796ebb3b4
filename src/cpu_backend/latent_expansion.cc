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

constexpr int64_t kGrain = 16;  // positions that are worth a thread

int64_t positions_of(const AttentionPart& part) {
  return part.first_position + part.tokens;
}

/// Positions of whole pages.
int64_t paged(int64_t positions) {
  return static_cast<int64_t>(round_up(positions, kPagePositions));
}

int64_t floats_of_latents(const LatentSizes& sizes, int64_t positions) {
  return positions * (sizes.rank + sizes.turning);
}

int64_t floats_of_matrix(const LatentSizes& sizes) {
  return sizes.nope * sizes.rank;
}

int64_t floats_of_head(const LatentSizes& sizes, int64_t positions) {
  return floats_of_matrix(sizes) + 2 * sizes.head_dim() * paged(positions);
}

/// Some heads that are expanded at a time, of one part after the other.
struct Round {
  const LatentSizes& sizes;
  int64_t first;
  int64_t heads;
  std::span<float> keys;      // matrices of keys the other way round: [heads][nope][rank]
  const MatrixView& values;   // of all heads
  std::span<float> expanded;  // memory of a part
};

/// Latents of a part, and keys and values of some heads.
struct Expanded {
  std::span<float> latents;  // [positions][rank]
  std::span<float> turned;   // [positions][turning]
  float* numbers;            // [heads][keys, values][positions of whole pages][head_dim]
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

Expanded cut(const Round& round, int64_t positions) {
  const LatentSizes& sizes = round.sizes;
  const std::span<float> all = round.expanded;
  const int64_t latents = positions * sizes.rank;
  const int64_t turned = positions * sizes.turning;
  return {all.first(latents),
          all.subspan(latents, turned),
          all.data() + latents + turned,
          round.heads,
          positions,
          sizes.head_dim()};
}

void read_latents(Executor& pool, const KvLayer& layer, std::span<const int32_t> pages,
                  const LatentSizes& sizes, const Expanded& to) {
  const int64_t dim = sizes.rank + sizes.turning;
  pool.parallel_for(to.positions, kGrain, [&](int64_t begin, int64_t end, int) {
    std::vector<float> key(static_cast<std::size_t>(dim));
    for (int64_t i = begin; i < end; ++i) {
      read_key(layer, place_of(layer, pages, i, dim), key.data(), dim);
      std::copy_n(key.data(), sizes.rank, to.latents.data() + i * sizes.rank);
      std::copy_n(key.data() + sizes.rank, sizes.turning, to.turned.data() + i * sizes.turning);
    }
  });
}

/// Of `keys` [heads * rank][nope], a matrix of each head.
void turn_matrices(Executor& pool, const MatrixView& keys, const Round& round) {
  constexpr int64_t kBlock = 16;  // rows at a time, as many as a line of the cache has floats
  const LatentSizes& sizes = round.sizes;
  const FloatRows rows(keys);
  pool.parallel_for(round.heads, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> block(static_cast<std::size_t>(kBlock * sizes.nope));
    for (int64_t head = begin; head < end; ++head) {
      float* const matrix = round.keys.data() + head * floats_of_matrix(sizes);
      for (int64_t k = 0; k < sizes.rank; k += kBlock) {
        const int64_t count = std::min(kBlock, sizes.rank - k);
        for (int64_t j = 0; j < count; ++j) {
          rows.row((round.first + head) * sizes.rank + k + j, block.data() + j * sizes.nope);
        }
        for (int64_t i = 0; i < sizes.nope; ++i) {
          float* const to = matrix + i * sizes.rank + k;
          for (int64_t j = 0; j < count; ++j) to[j] = block[j * sizes.nope + i];
        }
      }
    }
  });
}

/// Writes what products do not: numbers that turn, and zeros to the end of each key and value.
void complete(Executor& pool, const Expanded& to, const LatentSizes& sizes) {
  pool.parallel_for(to.positions, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t head = 0; head < to.heads; ++head) {
      for (int64_t i = begin; i < end; ++i) {
        float* const key = to.keys(head) + i * to.head_dim;
        float* const value = to.values(head) + i * to.head_dim;
        std::copy_n(to.turned.data() + i * sizes.turning, sizes.turning, key + sizes.nope);
        std::fill(key + sizes.nope + sizes.turning, key + to.head_dim, 0.0f);
        std::fill(value + sizes.value, value + to.head_dim, 0.0f);
      }
    }
  });
}

Status multiply(Execution& execution, const Round& round, const Expanded& to) {
  const LatentSizes& sizes = round.sizes;
  const int64_t of_head = floats_of_matrix(sizes);
  std::vector<MatrixView> weights;
  for (int64_t head = 0; head < to.heads; ++head) {
    MatrixView keys;
    keys.format = {Format::kF32};
    keys.rows = sizes.nope;
    keys.cols = sizes.rank;
    keys.codes = std::as_bytes(round.keys.subspan(head * of_head, of_head));
    weights.push_back(keys);
    weights.push_back(rows_of(round.values, (round.first + head) * sizes.value, sizes.value));
  }
  std::vector<LinearProduct> products;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::span<float> y(to.numbers + static_cast<int64_t>(i) * to.run(),
                             static_cast<std::size_t>(to.run()));
    products.push_back({.y = y, .x = to.latents, .m = to.positions, .weights = &weights[i]});
    products.back().y_stride = to.head_dim;
  }
  return linear_group(execution, products);
}

void attend(Execution& execution, const AttentionPart& part, int64_t q_stride, AttentionShape shape,
            const Round& round, const Expanded& expanded, std::span<const float> sinks) {
  const LatentSizes& sizes = round.sizes;
  const AttentionStrides strides = {.q = q_stride,
                                    .q_kv_head = sizes.rank + sizes.turning,
                                    .out = shape.result_size(),
                                    .out_head = sizes.rank,
                                    .value_dim = sizes.value};
  std::vector<int32_t> pages(static_cast<std::size_t>(paged(expanded.positions) / kPagePositions));
  std::iota(pages.begin(), pages.end(), 0);
  const AttentionPart some = {part.q + round.first * strides.q_kv_head + sizes.rank - sizes.nope,
                              part.out + round.first * strides.out_head, part.tokens,
                              part.first_position, pages};
  shape.heads = shape.kv_heads = round.heads;
  shape.head_dim = sizes.head_dim();
  shape.values_in_keys = shape.first_turning = shape.top = 0;
  attention(execution, {&some, 1}, strides, expanded.layer(), shape,
            sinks.empty() ? sinks : sinks.subspan(round.first, round.heads));
}

}  // namespace

int64_t heads_that_fit(const Execution& execution, const LatentSizes& sizes, int64_t positions) {
  const int64_t left = execution.expansion_floats() - floats_of_latents(sizes, positions);
  return std::clamp<int64_t>(left / floats_of_head(sizes, positions), 0, sizes.heads);
}

Status attention_of_expanded(Execution& execution, std::span<const AttentionPart> parts,
                             int64_t q_stride, const KvLayer& layer, const AttentionShape& shape,
                             const LatentSizes& sizes, const LatentMatrixViews& matrices,
                             std::span<const float> sinks) {
  int64_t longest = 0;
  for (const AttentionPart& part : parts) longest = std::max(longest, positions_of(part));
  const int64_t most = heads_that_fit(execution, sizes, longest);
  const int64_t count = floats_of_latents(sizes, longest) + most * floats_of_head(sizes, longest);
  const std::span<float> memory(execution.floats(Execution::Slot::kLatents, count),
                                static_cast<std::size_t>(count));
  const int64_t of_matrices = most * floats_of_matrix(sizes);
  for (int64_t first = 0; first < sizes.heads; first += most) {
    const Round round = {sizes,
                         first,
                         std::min(most, sizes.heads - first),
                         memory.first(of_matrices),
                         matrices.values,
                         memory.subspan(of_matrices)};
    turn_matrices(execution.pool(), matrices.keys, round);
    for (const AttentionPart& part : parts) {
      const Expanded expanded = cut(round, positions_of(part));
      read_latents(execution.pool(), layer, part.pages, sizes, expanded);
      SUBBYTE_CHECK(multiply(execution, round, expanded));
      complete(execution.pool(), expanded, sizes);
      attend(execution, part, q_stride, shape, round, expanded, sinks);
    }
  }
  return {};
}

}  // namespace subbyte
