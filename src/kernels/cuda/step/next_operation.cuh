#pragma once
// Tables of a program on their way to shared memory.

#include <cstddef>

#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Copies structures by all threads of a CTA, a word each.
template <class T>
__device__ __forceinline__ void copy_words(void* to, const T* from, int count) {
  static_assert(sizeof(T) % 4 == 0);
  const int words = count * static_cast<int>(sizeof(T) / 4);
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    static_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

/// The operation after this one, on its way to shared memory while this one is at work.
class NextOperation {
 public:
  __device__ NextOperation(const StepProgram& p, int index, uint8_t* shared)
      : there_(index < p.num_operations && static_cast<int>(threadIdx.x) < kWords),
        base_tag_(p.base_tag),
        to_(shared + p.shared.operations + index % 2 * sizeof(StepOperation)) {
    if (!there_) return;
    word_ = reinterpret_cast<const uint32_t*>(p.operations + index)[threadIdx.x];
  }
  /// All threads must have left the operation before this one, which lies there. The word is looked
  /// at here first: whoever does so earlier waits for it.
  __device__ void store() const {
    if (!there_) return;
    reinterpret_cast<uint32_t*>(to_)[threadIdx.x] =
        word_ + (is_tag(threadIdx.x * 4) ? base_tag_ : 0);
  }

 private:
  /// Of the word `byte` bytes after the begin.
  static __device__ constexpr bool is_tag(std::size_t byte) {
    constexpr std::size_t kAttention = offsetof(StepOperation, attention);
    constexpr std::size_t kRouter = offsetof(StepOperation, router);
    constexpr std::size_t kDeltaNet = offsetof(StepOperation, delta_net);
    constexpr std::size_t kProduct = offsetof(StepOperation, product);
    constexpr std::size_t kExperts = kProduct + offsetof(StepProduct, experts);
    return byte == kAttention + offsetof(StepAttention, qkv) + offsetof(StepInput, tag) ||
           byte == kAttention + offsetof(StepAttention, result) + offsetof(StepResult, tag) ||
           byte == kRouter + offsetof(StepRouter, x) + offsetof(StepInput, tag) ||
           byte == kRouter + offsetof(StepRouter, result) + offsetof(StepResult, tag) ||
           byte == kDeltaNet + offsetof(StepDeltaNet, qkvz) + offsetof(StepInput, tag) ||
           byte == kDeltaNet + offsetof(StepDeltaNet, ba) + offsetof(StepInput, tag) ||
           byte == kDeltaNet + offsetof(StepDeltaNet, result) + offsetof(StepResult, tag) ||
           byte == kExperts + offsetof(StepExperts, logits) + offsetof(StepInput, tag) ||
           byte == kProduct + offsetof(StepProduct, x) + offsetof(StepInput, tag) ||
           byte == kProduct + offsetof(StepProduct, result) + offsetof(StepResult, tag);
  }

  static constexpr int kWords = sizeof(StepOperation) / 4;
  static_assert(kWords <= kStepThreads);
  const bool there_;
  const uint32_t base_tag_;
  uint8_t* const to_;
  uint32_t word_ = 0;
};

}  // namespace subbyte::cuda
