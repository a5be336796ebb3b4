#pragma once
// How CTAs of few tokens divide the experts' strips among them. Host and device compute the same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

/// How many tiles have routes is known on the device alone, and there are far fewer than there
/// might be. So each of them is cut into as many parts as keep the multiprocessors busy:
///
///   rounds * (strips of a part + start)   is smallest, where rounds = tiles * parts / CTAs at once
///
/// Where all tiles are used, and in batch-invariant mode, in which the order of additions must not
/// depend on the number of tiles, there are always `least` parts.
struct ExpertParts {
  static constexpr int kMaxRounds = 4;  // what more would even out, their starts take
  static constexpr int kFewTiles = 64;  // for which the host computes each grid exactly

  int32_t strips;        // of an expert
  int32_t least;         // parts of a tile
  int32_t ctas_at_once;  // 0: the parts are fixed
  int32_t start;         // what a CTA takes to begin, in strips that it could read meanwhile

  SUBBYTE_DEVICE constexpr bool are_fixed() const { return ctas_at_once == 0; }

  /// Parts of each of `tiles` >= 1 tiles, `least` to `strips`.
  SUBBYTE_DEVICE constexpr int of_tile(int tiles) const {
    int best = least;
    if (are_fixed()) return best;
    uint32_t best_time = time(tiles, best);
    for (int rounds = 1; rounds <= kMaxRounds; ++rounds) {
      const int most = rounds * ctas_at_once / tiles;
      const int parts = most < strips ? most : strips;
      if (parts <= least || time(tiles, parts) >= best_time) continue;
      best = parts;
      best_time = time(tiles, parts);
    }
    return best;
  }

  /// CTAs of a grid for up to `tiles` tiles. Idle ones take their time, too, so for few tiles it is
  /// what some number of them needs.
  constexpr int64_t max_ctas(int64_t tiles) const {
    int64_t most = tiles * least;
    if (tiles > kFewTiles) {
      const int64_t busy = int64_t{kMaxRounds} * ctas_at_once;
      return most > busy ? most : busy;
    }
    for (int used = 1; used <= tiles; ++used) {
      const int64_t needed = int64_t{used} * of_tile(used);
      most = most > needed ? most : needed;
    }
    return most;
  }

 private:
  /// In 32 bits, as every thread of a kernel divides here before anything else can begin.
  SUBBYTE_DEVICE constexpr uint32_t time(uint32_t tiles, uint32_t parts) const {
    const auto at_once = static_cast<uint32_t>(ctas_at_once);
    const uint32_t rounds = (tiles * parts + at_once - 1) / at_once;
    return rounds * ((static_cast<uint32_t>(strips) + parts - 1) / parts + start);
  }
};

}  // namespace subbyte::cuda
