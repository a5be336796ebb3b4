#pragma once
// The clock and the medians of all benchmarks.

#include <algorithm>
#include <chrono>
#include <vector>

namespace subbyte::bench {

/// Seconds.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace subbyte::bench
