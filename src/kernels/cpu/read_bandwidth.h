#pragma once
// How fast this machine reads memory: the limit that a decode step is measured against.

#include <cstddef>
#include <span>

#include "subbyte/executor.h"

namespace subbyte::cpu {

struct ReadBandwidth {
  double bytes_per_second = 0;  // median of the best pattern
  int streams = 0;              // interleaved streams per thread of the best pattern
};

/// Reads `memory` (well beyond the caches, else this measures them) with all threads of the pool:
/// 1, 2, 4 and 8 interleaved streams per thread in 512-byte steps: without software prefetch, some
/// 2 KB early into the first-level cache, and some 8 KB early into the second. A part of the memory
/// says which of them is best, and `repeats` passes how fast that is. Nothing is written.
ReadBandwidth measure_read_bandwidth(std::span<const std::byte> memory, Executor& pool,
                                     int repeats = 3);

}  // namespace subbyte::cpu
