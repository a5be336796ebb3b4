#pragma once
// How fast this machine reads memory: the limit that a decode step is measured against.

#include <cstddef>
#include <span>

#include "subbyte/executor.h"

namespace subbyte::cpu {

struct ReadBandwidth {
  double bytes_per_second = 0;  // best median over the patterns
  int streams = 0;              // interleaved streams per thread of the best pattern
};

/// Reads `memory` (well beyond the caches, else this measures them) with all threads of the pool:
/// 1, 2, 4 and 8 interleaved streams per thread in 512-byte steps, `repeats` passes each: without
/// software prefetch, some 2 KB early into the first-level cache, and some 8 KB early
/// into the second. The best median counts. Nothing is written.
ReadBandwidth measure_read_bandwidth(std::span<const std::byte> memory, Executor& pool,
                                     int repeats = 3);

}  // namespace subbyte::cpu
