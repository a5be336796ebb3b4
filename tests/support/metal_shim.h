#pragma once
// Enough of the Metal Shading Language for src/kernels/metal to compile as C++: its types, its
// address spaces as macros, and one std::thread for each GPU thread, so that shuffles and barriers
// are real and the thread sanitizer finds a barrier that is missing.
//
// The specification lets a GPU flush subnormals. Here it always happens: halves flush operands and
// results, and threads run with the processor's flags for float set.
//
// Include everything of the host's before this: the macros below are words that
// others use too.

#include <array>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "formats/format.h"

namespace metal_shim {

/// What the threads of a SIMD-group show each other.
struct SimdGroup {
  std::barrier<> barrier{32};
  std::array<float, 32> values{};
};

struct Thread {
  SimdGroup* simdgroup;
  std::barrier<>* threadgroup;
  uint32_t lane;
};

inline thread_local Thread* current = nullptr;

inline void flush_subnormal_floats() {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // FTZ and DAZ
#endif
}

/// Where a thread is: threadgroup, SIMD-group, lane.
struct Position {
  uint32_t group;
  uint32_t simdgroup;
  uint32_t lane;
};

/// Runs body(position) in simdgroups * 32 threads for each threadgroup, one threadgroup after the
/// other. before(threadgroup) is called by one thread while the others wait.
inline void run_grid(int threadgroups, int simdgroups,
                     const std::function<void()>& before_threadgroup,
                     const std::function<void(const Position&)>& body) {
  std::barrier<> barrier(simdgroups * 32);
  std::vector<SimdGroup> groups(simdgroups);
  std::vector<std::thread> threads;
  for (int i = 0; i < simdgroups * 32; ++i) {
    threads.emplace_back([&, i] {
      flush_subnormal_floats();
      Thread self = {&groups[i / 32], &barrier, static_cast<uint32_t>(i % 32)};
      current = &self;
      for (int group = 0; group < threadgroups; ++group) {
        if (i == 0) before_threadgroup();
        barrier.arrive_and_wait();
        body({static_cast<uint32_t>(group), static_cast<uint32_t>(i / 32), self.lane});
        barrier.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace metal_shim

/// A half of Metal: each operation rounded to nearest even, subnormals flushed.
class half {
 public:
  half() = default;
  explicit half(double value) : bits_(flush(encode(value))) {}
  explicit half(float value) : half(static_cast<double>(value)) {}
  explicit half(int value) : half(static_cast<double>(value)) {}

  double value() const { return subbyte::info(subbyte::Format::kF16).decode(flush(bits_)); }
  explicit operator float() const { return static_cast<float>(value()); }

 private:
  static uint16_t encode(double value) {
    return static_cast<uint16_t>(
        subbyte::info(subbyte::Format::kF16).encode(value, subbyte::Rounding::kNearestEven));
  }
  static uint16_t flush(uint16_t bits) { return (bits & 0x7c00) == 0 ? bits & 0x8000 : bits; }

  uint16_t bits_;
};

struct half2 {
  half x;
  half y;

  half2() = default;
  explicit half2(half both) : x(both), y(both) {}
  half2(half low, half high) : x(low), y(high) {}

  friend half2 operator-(half2 a, half2 b) {
    return {half(a.x.value() - b.x.value()), half(a.y.value() - b.y.value())};
  }
};

template <class To, class From>
To as_type(From from) {
  return std::bit_cast<To>(from);
}

namespace metal {

inline half2 fma(half2 a, half2 b, half2 c) {
  return {half(std::fma(a.x.value(), b.x.value(), c.x.value())),
          half(std::fma(a.y.value(), b.y.value(), c.y.value()))};
}
inline float fma(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline half2 min(half2 a, half2 b) {
  return {half(std::fmin(a.x.value(), b.x.value())), half(std::fmin(a.y.value(), b.y.value()))};
}
inline float min(float a, float b) {
  return std::fmin(a, b);
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

inline void threadgroup_barrier(mem_flags /*flags*/) {
  metal_shim::current->threadgroup->arrive_and_wait();
}

inline float simd_shuffle_xor(float value, uint16_t mask) {
  metal_shim::SimdGroup& group = *metal_shim::current->simdgroup;
  const uint32_t lane = metal_shim::current->lane;
  group.values[lane] = value;
  group.barrier.arrive_and_wait();
  const float other = group.values[lane ^ mask];
  group.barrier.arrive_and_wait();
  return other;
}

}  // namespace metal

#define __METAL_VERSION__ 400
#define kernel
#define device
#define constant const
#define thread
// Not nothing: it is an attribute too, [[threadgroup(0)]], where a keyword counts as a name.
#define threadgroup volatile
