#pragma once
// Products at shapes that a seed draws, so that nobody has tuned for them.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace subbyte::bench {

struct ShapesSuite {
  uint64_t seed = 0;
  int64_t count = 48;
  std::vector<int64_t> m = {1,  2,  4,   8,   12,  16,  24,   32,   48,
                            64, 96, 128, 192, 256, 512, 1024, 2048, 4096};
  std::vector<std::string> formats;  // empty: all of them
  std::string marlin;                // its library
  int replays = 5;
  bool sweep = false;  // all plans, too
  bool no_cublas = false;
};

/// Shape i of a seed: K and N are log-uniform in 512 to 32768 with N K of at most 2^28, in 128s, or
/// for every third shape N in 8s and K in 32s, not both in 128s.
struct DrawnShape {
  int64_t cols;
  int64_t rows;
};
std::vector<DrawnShape> draw_shapes(uint64_t seed, int64_t count);

/// Prints tables in Markdown: each shape, then median, 5 % and worst for each number of tokens of
/// the ratios to cuBLAS, Marlin, the limit (bytes / B), and one token's time.
Status run_shapes_suite(const ShapesSuite& suite);

}  // namespace subbyte::bench
