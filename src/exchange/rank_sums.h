#pragma once
// Sums over ranks in the order of ranks, as every exchange makes them.

#include <algorithm>
#include <cstddef>
#include <span>

namespace subbyte {

/// The numbers of `count` that one rank sums where each sums a part.
struct RankPart {
  RankPart(std::size_t count, std::size_t rank, std::size_t ranks)
      : begin(count * rank / ranks), size(count * (rank + 1) / ranks - begin) {}

  std::size_t begin;
  std::size_t size;
};

/// Adds the numbers of a rank to `sums`, which begin with those of rank 0.
inline void add_rank(std::span<float> sums, const float* numbers, int rank) {
  if (rank == 0) {
    std::copy_n(numbers, sums.size(), sums.begin());
    return;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i];
}

}  // namespace subbyte
