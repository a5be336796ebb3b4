#pragma once
// Host time of products through the C interface.

#include <cstdint>
#include <vector>

namespace subbyte::bench {

struct CallsSuite {
  std::vector<int64_t> m = {1, 8, 16, 64, 256};
  int64_t rows = 1024;
  int64_t cols = 1024;
};

/// Prints a line for each number of tokens and each kind of call: microseconds of the host from
/// call to return, less those of a bare launch on the same stream. The first line that fails ends
/// the program.
void run_calls_suite(const CallsSuite& suite);

}  // namespace subbyte::bench
