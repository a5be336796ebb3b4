#pragma once
// What it costs to divide a loop among the threads and to wait for all of them.

#include "subbyte/executor.h"

namespace subbyte::bench {

struct BarrierFigures {
  double median_seconds = 0;  // of an empty parallel_for that every thread takes part in
  double percentile_90_seconds = 0;
};

/// Times `rounds` batches of loops that follow each other at once, as the operations of a token do;
/// in batches, so that the clock does not count.
BarrierFigures measure_barrier(Executor& executor, int rounds = 2000);

}  // namespace subbyte::bench
