#pragma once
// How many tokens a CTA of dense_16bit has. Arithmetic on the host.

#include <algorithm>
#include <cstdint>

namespace subbyte::cuda {

inline constexpr int kDenseRows = 128;  // outputs of a CTA

/// A number of tokens, and the time that 64 inputs take, in hundredths of that of 128 tokens in a
/// multiprocessor full of CTAs, where both operands have one type.
struct DenseTokenTile {
  int64_t tokens;
  int64_t products;  // of each CTA on a multiprocessor; of two types twice as long
  int64_t alone;     // of a CTA that has none beside it, at least
  int64_t read;      // from the L2 cache, where every multiprocessor reads for one CTA
};

inline constexpr DenseTokenTile kDenseTokenTiles[] = {
    {128, 100, 140, 155}, {64, 53, 80, 115}, {16, 14, 65, 85}};

/// CTAs of a cluster that share the inputs of each of so many tiles of outputs, `most` of them at
/// most, so that few tiles keep all multiprocessors reading.
constexpr int dense_splits(int64_t tiles, int64_t most, int64_t multiprocessors) {
  return static_cast<int>(std::clamp<int64_t>(multiprocessors / tiles, 1, most));
}

/// 16, 64 or 128 tokens, whichever end first: large tiles read less for a token, small ones leave
/// no multiprocessor without work, or with one CTA more than the others.
constexpr int dense_token_tile(int64_t rows, int64_t tokens, int64_t heads, bool has_two_types,
                               int64_t multiprocessors, int64_t most_splits = 1) {
  const int64_t row_tiles = (rows + kDenseRows - 1) / kDenseRows * heads;
  int64_t best = 0;
  int64_t best_time = 0;
  for (const DenseTokenTile& tile : kDenseTokenTiles) {
    const int64_t ctas = row_tiles * ((tokens + tile.tokens - 1) / tile.tokens);
    const int64_t of_one = (ctas + multiprocessors - 1) / multiprocessors;
    const int64_t types = has_two_types ? 2 : 1;
    const int64_t splits = dense_splits(ctas, most_splits, multiprocessors);
    const int64_t products = types * (of_one == 1 ? tile.alone : of_one * tile.products);
    const int64_t time =
        std::max(std::max(products, tile.alone) / splits, ctas * tile.read / multiprocessors);
    if (best != 0 && time >= best_time) continue;
    best = tile.tokens;
    best_time = time;
  }
  return static_cast<int>(best);
}

}  // namespace subbyte::cuda
