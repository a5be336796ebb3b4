#pragma once
// Where operations run: the threads, the kernels of this machine, and buffers that are reused.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu_kernels.h"

namespace subbyte {

class Execution {
 public:
  /// `num_threads` 0: all processors. `isa` empty: the best. Codes: isa.unknown, isa.unsupported.
  static Result<std::unique_ptr<Execution>> create(int num_threads = 0, std::string_view isa = {});

  ThreadPool& pool() { return pool_; }
  const cpu::Kernels& kernels() const { return *kernels_; }

  /// A 64-byte aligned buffer of at least `floats`, valid until the next call with the same slot.
  /// linear() and attention() use the first two; kModel is for what lives through a layer.
  enum class Slot : uint8_t { kActivations, kScratch, kExperts, kModel };
  float* buffer(Slot slot, int64_t floats);

 private:
  Execution(int num_threads, const cpu::Kernels* kernels) : pool_(num_threads), kernels_(kernels) {}

  ThreadPool pool_;
  const cpu::Kernels* kernels_;
  std::shared_ptr<std::byte[]> buffers_[4];
  int64_t sizes_[4] = {0, 0, 0, 0};
};

}  // namespace subbyte
