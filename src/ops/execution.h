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

  /// What products round their activations to.
  cpu::Precision precision() const { return precision_; }
  void set_precision(cpu::Precision precision) { precision_ = precision; }
  /// Whether a token's results are the same bits however many tokens are computed with it.
  bool batch_invariant() const { return batch_invariant_; }
  void set_batch_invariant(bool invariant) { batch_invariant_ = invariant; }

  /// A 64-byte aligned buffer of at least `bytes`, valid until the next call with the same slot.
  enum class Slot : uint8_t { kActivations, kScratch };
  uint8_t* buffer(Slot slot, int64_t bytes);

 private:
  Execution(int num_threads, const cpu::Kernels* kernels) : pool_(num_threads), kernels_(kernels) {}

  ThreadPool pool_;
  const cpu::Kernels* kernels_;
  cpu::Precision precision_ = cpu::Precision::kAuto;
  bool batch_invariant_ = false;
  std::shared_ptr<std::byte[]> buffers_[2];
  int64_t sizes_[2] = {0, 0};
};

}  // namespace subbyte
