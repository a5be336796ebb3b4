#include "kernels/cpu/read_bandwidth.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "matrix/matrix.h"
#include "support/guarded_bytes.h"

namespace subbyte::cpu {
namespace {

TEST(ReadBandwidth, stays_inside_the_memory_and_names_its_best_pattern) {
  // Prefetches run past the end, which must not fault, and reads must not.
  testing::GuardedBytes memory(std::size_t{3} << 20);
  std::memset(memory.data(), 1, memory.span().size());
  ThreadPool pool(2);
  const ReadBandwidth result = measure_read_bandwidth(memory.span(), pool, 2);
  EXPECT_GT(result.bytes_per_second, 0);
  EXPECT_TRUE(result.streams == 1 || result.streams == 2 || result.streams == 4 ||
              result.streams == 8);
}

TEST(ReadBandwidth, memory_too_small_to_measure_gives_zero) {
  ThreadPool pool(1);
  const std::vector<std::byte> little(100);
  EXPECT_EQ(measure_read_bandwidth(little, pool, 1).bytes_per_second, 0);
  EXPECT_EQ(measure_read_bandwidth({}, pool, 1).bytes_per_second, 0);
}

}  // namespace
}  // namespace subbyte::cpu
