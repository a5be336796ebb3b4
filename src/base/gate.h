#pragma once
// A number that one thread moves on and others wait for: they spin for a moment and then sleep, as
// waking a thread takes tens of microseconds.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/coming_reads.h"

namespace subbyte {

/// Tells the processor that a thread spins.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Gate {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  /// A thread that goes to sleep first counts itself and then looks at the value, one that moves
  /// the value on then looks at the count; both in the one order of all such operations, so that
  /// one of the two sees the other.
  void set(uint32_t next) {
    value.store(next);
    if (sleepers.load() != 0) value.notify_all();
  }

  /// Returns the value as soon as it is no longer `old`; brings coming_reads along until then.
  /// Sleeps once `spin` has gone by since `awake` was last seen true, or at once where
  /// `spin` is 0.
  uint32_t wait(uint32_t old, std::chrono::microseconds spin, const std::atomic<bool>& awake) {
    uint32_t found = value.load(std::memory_order_acquire);
    if (found != old) return found;
    if (spin.count() > 0) {
      ComingReads& reads = coming_reads;
      auto now = std::chrono::steady_clock::now();
      const auto started = now;
      auto deadline = now + spin;
      while (now < deadline) {
        for (int i = 0; i < 32; ++i) {
          reads.bring_some();
          relax();
          found = value.load(std::memory_order_acquire);
          if (found != old) return found;
        }
        now = std::chrono::steady_clock::now();
        if (awake.load(std::memory_order_relaxed)) deadline = now + spin;
        // The thread that is waited for may be one that has no processor.
        if (now > started + spin) sched_yield();
      }
    }
    sleepers.fetch_add(1);
    value.wait(old);
    sleepers.fetch_sub(1);
    return value.load(std::memory_order_acquire);
  }
};

}  // namespace subbyte
