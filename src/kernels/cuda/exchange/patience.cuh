#pragma once
// How long a thread waits for another rank, which may have ended.

#include <cstdint>

namespace subbyte::cuda {

__device__ __forceinline__ uint64_t global_nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// The patience of one wait. It ends for all threads of the rank when it does for one.
class PeerPatience {
 public:
  /// `lost`: a word in the memory of the rank, 1 once a rank is lost.
  __device__ explicit PeerPatience(volatile uint32_t* lost) : lost_(lost) {}

  /// After each look in vain.
  __device__ __forceinline__ bool ends() {
    if (++looks_ % kLooksPerTime != 0) return false;
    if (*lost_ != 0) return true;
    const uint64_t now = global_nanoseconds();
    if (end_ == 0) end_ = now + kNanoseconds;
    if (now < end_) return false;
    *lost_ = 1;
    return true;
  }

 private:
  static constexpr uint64_t kNanoseconds = 8'000'000'000;
  static constexpr uint32_t kLooksPerTime = 1024;

  volatile uint32_t* lost_;
  uint64_t end_ = 0;
  uint32_t looks_ = 0;
};

}  // namespace subbyte::cuda
