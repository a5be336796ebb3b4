#pragma once
// Where operations run: the threads, the kernels of this machine, and buffers that are reused.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/cpu/cpu_kernels.h"
#include "subbyte/executor.h"

namespace subbyte {

struct ExecutionOptions {
  int num_threads = 0;        // 0: all processors
  std::string_view isa = {};  // empty: the best that this machine has
  bool pin_threads = false;   // as ThreadPoolOptions has it
  /// The threads of the calling program instead of own ones; must outlive the Execution. Then
  /// num_threads stays 0 and pin_threads false. Results are the same.
  Executor* executor = nullptr;
  /// Precision to which products round their activations.
  cpu::Precision precision = cpu::Precision::kF32;
  /// Inputs of experts are rounded to MXFP8 (round_to_mxfp8()) before that.
  bool mxfp8_experts = false;
  /// A token's results are the same bits however many tokens are computed with it. The products of
  /// a prompt cost up to 1.5 times as much for it. On AMX they cost no more, but those of a single
  /// token 1.4 to 2.6 times; with weights that bf16 does not hold a single token costs no more, but
  /// a prompt many times (docs/kernels/accuracy.md). See cpu::choose_variant().
  bool batch_invariant = false;
  /// Floats that latents may be expanded in (cpu_backend/latent_expansion.h).
  int64_t expansion_floats = int64_t{32} << 20;
};

class Execution {
 public:
  /// Codes: isa.unknown, isa.unsupported; execution.options when an executor is given and threads
  /// are asked for as well.
  static Result<std::unique_ptr<Execution>> create(const ExecutionOptions& options = {});

  Executor& pool() { return *pool_; }
  const cpu::Kernels& kernels() const { return *kernels_; }

  cpu::Precision precision() const { return precision_; }
  bool mxfp8_experts() const { return mxfp8_experts_; }
  bool batch_invariant() const { return batch_invariant_; }
  int64_t expansion_floats() const { return expansion_floats_; }

  /// A 64-byte aligned buffer of at least `bytes`, valid until the next call with the same slot.
  /// One of which 4,096 calls in turn needed less than a quarter becomes smaller.
  /// linear() and attention() use the first two, experts the third, gates of dense layers the
  /// fourth, expanded latents the last.
  enum class Slot : uint8_t { kActivations, kScratch, kExperts, kGate, kLatents };
  uint8_t* buffer(Slot slot, int64_t bytes);
  float* floats(Slot slot, int64_t count);
  int64_t buffer_bytes(Slot slot) const { return buffers_[static_cast<std::size_t>(slot)].size; }

 private:
  Execution(const ExecutionOptions& options, const cpu::Kernels* kernels);

  std::unique_ptr<Executor> own_pool_;
  Executor* pool_;
  const cpu::Kernels* kernels_;
  cpu::Precision precision_;
  bool mxfp8_experts_;
  bool batch_invariant_;
  int64_t expansion_floats_;
  struct Buffer {
    std::shared_ptr<std::byte[]> bytes;
    int64_t size = 0;
    int64_t needed = 0;     // at most, by the last calls that needed little
    int64_t num_small = 0;  // of them
  };
  Buffer buffers_[5];
};

}  // namespace subbyte
