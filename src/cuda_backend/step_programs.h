#pragma once
// Programs of a schedule on the GPU: their tables, bound to where values, weights and cache lie,
// and their launches.

#include <span>
#include <vector>

#include "cuda_backend/attention.h"
#include "cuda_backend/delta_net.h"
#include "cuda_backend/device_memory.h"
#include "cuda_backend/schedule.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/exchange/step_rounds.h"

namespace subbyte {

/// Where the values of a step lie, by slot.
using SlotPointers = std::vector<std::byte*>;

class StepPrograms {
 public:
  /// Bytes on the GPU for counters, all programs of a step, and tensors as tagged floats.
  static constexpr int64_t kMemoryBytes = int64_t{3} << 20;
  static ProgramLimits limits();

  /// `partials` is memory that attention of any kind works in; both must outlive this. `peers`: of
  /// this GPU, all of which run the same programs.
  StepPrograms(const cuda::Device& device, cuda::Number number, const cuda::PeerGroup& peers,
               CudaBuffer& partials, cuda::Stream stream)
      : device_(device), number_(number), peers_(peers), partials_(partials), stream_(stream) {}

  /// Bytes that the partials of a step take at most.
  static int64_t partial_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim);

  /// So that steps allocate nothing. Codes: cuda.memory, cuda.copy.
  Status reserve();
  int64_t device_bytes() const { return memory_.size(); }

  /// Before the programs of a step are run: writes their tables to the GPU, unless the same lie
  /// there, and brings their kernels there, which may wait for what other ranks run then. Codes: as
  /// reserve(), cuda.kernel.
  Status bind(const Schedule& schedule, const StepPlan& plan, const ValueSlots& slots,
              const SlotPointers& pointers, const CudaAttention& attention,
              const CudaDeltaNets& delta_nets);

  /// The `index`-th program of the schedule. Codes: cuda.memory, cuda.copy, cuda.launch.
  Status run(const ScheduledProgram& program, std::size_t index, const CudaStep& step);

  /// Attention by itself, over group `group` of the cache. Errors of launches are left to
  /// cudaGetLastError(). Codes: as reserve().
  Status attend(const cuda::StepAttention& attention, int32_t group, const CudaStep& step);

 private:
  /// Numbers of the rounds that a program takes, once the words have room for them.
  Result<uint32_t> begin_rounds(uint32_t rounds);

  struct Table {
    std::size_t operations, weights;  // bytes from the begin of all tables
  };

  cuda::Device device_;
  cuda::Number number_;
  cuda::PeerGroup peers_;
  CudaBuffer& partials_;
  cuda::Stream stream_;
  std::vector<Table> tables_;  // of the schedule that is bound
  cuda::StepTags tags_;
  cuda::StepRounds rounds_;  // of what ranks have exchanged in programs
  // On the GPU: counters of splits, tagged floats, then the tables, as far as they were written.
  CudaBuffer memory_;
  std::vector<std::byte> written_;
};

}  // namespace subbyte
