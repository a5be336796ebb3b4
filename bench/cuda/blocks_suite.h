#pragma once
// Quantizing to blocks and dequantizing beside the speed of a copy.

#include <cstdint>

namespace subbyte::bench {

struct BlocksSuite {
  int64_t rows = 8192;
  int64_t cols = 8192;
  int replays = 20;
};

/// Prints a line for each operation: microseconds, bytes read and written a second, and their share
/// of what a copy in device memory reaches. The first line that fails ends the program.
void run_blocks_suite(const BlocksSuite& suite);

}  // namespace subbyte::bench
