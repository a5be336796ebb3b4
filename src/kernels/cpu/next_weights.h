#pragma once
// The weights of the product that follows: threads that wait for others bring what they will read
// of it into their caches.

#include <cstdint>
#include <vector>

#include "matrix/matrix.h"

namespace subbyte {

/// Products as linear_group() has them: sets of `set_size` neighbours.
struct NextWeights {
  std::vector<const MatrixView*> matrices;
  int64_t set_size = 1;
};

/// Says what the calling thread, which is number `thread` of `threads`, will read first of `next`:
/// the beginning of the part that parallel_for() lets it begin with.
void expect_reads(const NextWeights& next, int64_t thread, int64_t threads);

}  // namespace subbyte
