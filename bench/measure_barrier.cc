#include "bench/measure_barrier.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace subbyte::bench {
namespace {

constexpr int kBatch = 16;

}  // namespace

BarrierFigures measure_barrier(Executor& executor, int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds(std::max(rounds, 1));
  for (double& batch : seconds) {
    const auto start = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      executor.parallel_for(executor.size(), 1, [](int64_t begin, int64_t, int) {
        asm volatile("" : : "r"(begin));  // the loop counts as used
      });
    }
    batch = std::chrono::duration<double>(Clock::now() - start).count() / kBatch;
  }
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 2], seconds[seconds.size() * 9 / 10]};
}

}  // namespace subbyte::bench
