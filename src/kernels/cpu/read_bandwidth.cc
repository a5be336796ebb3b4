#include "kernels/cpu/read_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace subbyte::cpu {
namespace {

// Four of the 16-byte vectors that every x86-64 machine has: loads enough in flight to saturate
// memory, and the compiler spells it with whatever it may use.
using Words [[gnu::vector_size(64)]] = uint64_t;

constexpr std::size_t kStep = 512;  // bytes of one stream before the next has its turn
constexpr std::size_t kMostWindow = std::size_t{32} << 20;
constexpr std::size_t kTriedWindows = 8;  // by which a pattern is compared with the others

/// What prefetches lines before they are read.
enum class Prefetch : uint8_t {
  kHardware,
  kNear,  // 2 KB before the read, into the first-level cache
  kFar,   // 8 KB before it, into the second
};
constexpr std::size_t kNearBytes = 2048;
constexpr std::size_t kFarBytes = 8192;

template <Prefetch kPrefetch>
[[gnu::always_inline]] inline void prefetch_line(const std::byte* p) {
  if constexpr (kPrefetch == Prefetch::kNear) __builtin_prefetch(p + kNearBytes, 0, 3);
  if constexpr (kPrefetch == Prefetch::kFar) __builtin_prefetch(p + kFarBytes, 0, 2);
}

/// Sums `streams` equal runs of [begin, begin + size), a step of each in turn. `size` is a multiple
/// of streams * kStep.
template <Prefetch kPrefetch>
uint64_t read_streams(const std::byte* begin, std::size_t size, std::size_t streams) {
  const std::size_t run = size / streams;
  Words sums[2] = {};
  for (std::size_t at = 0; at < run; at += kStep) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::byte* p = begin + stream * run + at;
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kStep; i += 128) {
        prefetch_line<kPrefetch>(p + i);
        prefetch_line<kPrefetch>(p + i + 64);
        Words first;
        Words second;
        __builtin_memcpy(&first, p + i, 64);
        __builtin_memcpy(&second, p + i + 64, 64);
        sums[0] += first;
        sums[1] += second;
      }
    }
  }
  sums[0] += sums[1];
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum += sums[0][i];
  return sum;
}

uint64_t read_streams(const std::byte* begin, std::size_t size, std::size_t streams,
                      Prefetch prefetch) {
  switch (prefetch) {
    case Prefetch::kNear:
      return read_streams<Prefetch::kNear>(begin, size, streams);
    case Prefetch::kFar:
      return read_streams<Prefetch::kFar>(begin, size, streams);
    default:
      return read_streams<Prefetch::kHardware>(begin, size, streams);
  }
}

struct Pattern {
  std::size_t streams = 1;
  Prefetch prefetch = Prefetch::kHardware;
};

/// One reading of `memory` by all threads; seconds.
double time_reading(std::span<const std::byte> memory, Executor& pool, const Pattern& pattern) {
  std::vector<uint64_t> sums(pool.size());
  const std::size_t share = memory.size() / static_cast<std::size_t>(pool.size());
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(pool.size(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const std::byte* p = memory.data() + static_cast<std::size_t>(i) * share;
      sums[i] = read_streams(p, share, pattern.streams, pattern.prefetch);
    }
  });
  const auto stop = std::chrono::steady_clock::now();
  for (const uint64_t sum : sums) asm volatile("" : : "r"(sum));  // the reads count as used
  return std::chrono::duration<double>(stop - start).count();
}

/// Reads memory window by window, round and round: on a machine that others use too, most windows
/// are undisturbed while hardly any pass is, and none is in a cache when its turn comes again.
class WindowReader {
 public:
  WindowReader(std::span<const std::byte> memory, Executor& pool) : memory_(memory), pool_(pool) {}

  std::size_t windows() const { return (memory_.size() + kMostWindow - 1) / kMostWindow; }

  /// Median bytes per second of the next `count` windows.
  double median_rate(const Pattern& pattern, std::size_t count) {
    // Equal shares of whole steps for every stream of every thread, so that all bytes count.
    const std::size_t chunk = kStep * pattern.streams * static_cast<std::size_t>(pool_.size());
    const std::size_t window = memory_.size() / windows() / chunk * chunk;
    std::vector<double> seconds;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = next_++ % windows() * window;
      seconds.push_back(time_reading(memory_.subspan(at, window), pool_, pattern));
    }
    std::sort(seconds.begin(), seconds.end());
    return static_cast<double>(window) / seconds[seconds.size() / 2];
  }

 private:
  std::span<const std::byte> memory_;
  Executor& pool_;
  std::size_t next_ = 0;
};

}  // namespace

ReadBandwidth measure_read_bandwidth(std::span<const std::byte> memory, Executor& pool,
                                     int repeats) {
  if (memory.size() < 8 * kStep * static_cast<std::size_t>(pool.size())) return {};
  WindowReader reader(memory, pool);
  Pattern best;
  double best_rate = 0;
  for (const std::size_t streams : {1, 2, 4, 8}) {
    for (const Prefetch prefetch : {Prefetch::kHardware, Prefetch::kNear, Prefetch::kFar}) {
      const Pattern pattern = {streams, prefetch};
      const double rate = reader.median_rate(pattern, kTriedWindows);
      if (rate > best_rate) best = pattern;
      best_rate = std::max(best_rate, rate);
    }
  }
  const auto passes = static_cast<std::size_t>(std::max(repeats, 1));
  return {reader.median_rate(best, passes * reader.windows()), static_cast<int>(best.streams)};
}

}  // namespace subbyte::cpu
