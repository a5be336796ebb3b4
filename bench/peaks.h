#pragma once
// What the arithmetic units of this machine reach: the limits of prefill.

#include <string>
#include <vector>

#include "subbyte/executor.h"

namespace subbyte::bench {

struct Peak {
  std::string name;
  double rate = 0;  // operations per second, a multiplication and an addition being two
};

/// One for each kind of instruction that this machine has, of all threads together, the slowest
/// kind first. Random operands, because tiles of zeros run faster than any real ones.
std::vector<Peak> measure_peaks(Executor& executor);

}  // namespace subbyte::bench
