#pragma once
// What one step knows of its batch, on the host and on the GPU, and the memory of its tensors.

#include <deque>
#include <span>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "cuda_backend/step_tasks.h"
#include "kernels/cuda/common/elements.h"
#include "ops/batch.h"

namespace subbyte {

/// Memory that later steps use again, in the same order: what was reserved, and where that is too
/// little buffers that grow, so that in the steady state nothing is allocated.
class StepBuffers {
 public:
  explicit StepBuffers(device::Memory& memory) : memory_(&memory), reserve_(memory) {}

  Status reserve(int64_t bytes) { return reserve_.grow(bytes); }
  void clear() { reserve_used_ = used_ = 0; }
  Result<std::byte*> take(int64_t bytes);
  int64_t size() const;

 private:
  device::Memory* memory_;
  CudaBuffer reserve_;
  int64_t reserve_used_ = 0;
  std::deque<CudaBuffer> buffers_;
  std::size_t used_ = 0;
};

/// Prompts of a step whose latents are expanded.
struct StepExpansion {
  const cuda::AttentionTask* tasks = nullptr;
  const cuda::ExpandedPage* pages = nullptr;
  int64_t num_tasks = 0;
  int64_t num_pages = 0;
  std::vector<cuda::ExpandedRows> rows;  // of all parts
};

/// Where attention of one kind reads what its kernels do.
struct StepTasks {
  AttentionKind kind;
  const cuda::AttentionTask* prompt = nullptr;
  const cuda::AttentionTask* split = nullptr;
  const cuda::MergeTask* merge = nullptr;
  int64_t num_prompt = 0;
  bool has_wgmma = false;  // DividedAttention::has_wgmma
  std::vector<cuda::AttentionSlice> slices;
  int64_t num_partials = 0;
  StepExpansion expansion = {};
};

/// Numbers that the launches of a step follow from, besides the operations: in steps with equal
/// shapes the launches are the same, and so are their arguments, places in memory among them.
using StepShapeKey = std::vector<int64_t>;

/// Says whether every part of a batch is one token.
bool has_single_tokens(const Batch& batch);

class CudaStep {
 public:
  /// `element`: of activations. `split_ctas`: see attention_tasks(). `rank` of a group, or 0.
  CudaStep(cuda::Stream stream, Element element, bool batch_invariant, int64_t split_ctas,
           const cuda::ExpansionGpu& gpu, int rank = 0)
      : stream_(stream),
        element_(element),
        batch_invariant_(batch_invariant),
        split_ctas_(split_ctas),
        gpu_(gpu),
        rank_(rank) {}

  /// Copies tokens, places, page tables, states and the rows of the head to the GPU, `choices`
  /// after them, and what attention of each kind does: all in one copy. Of steps before this one
  /// only the last may still run. Codes: cuda.memory, cuda.copy.
  Status begin(const Batch& batch, std::span<const std::byte> choices,
               std::span<const AttentionKind> kinds);

  /// Device memory for what steps take; between steps. Code cuda.memory.
  Status reserve(int64_t bytes) { return device_.reserve(bytes); }
  int64_t device_bytes() const { return device_.size(); }
  bool batch_invariant() const { return batch_invariant_; }
  const cuda::ExpansionGpu& gpu() const { return gpu_; }

  /// Device memory until the next begin(), in the order of the stream.
  Result<std::byte*> take(int64_t bytes) { return device_.take(bytes); }

  int64_t num_parts() const { return num_parts_; }
  int64_t num_tokens() const { return num_tokens_; }
  /// Rows whose logits are computed.
  int64_t num_head_rows() const { return num_head_rows_; }
  KvPool& pool() const { return *pool_; }
  /// The memory of this GPU for a group of the cache.
  KvMemory& memory(int32_t group) const { return pool_->groups()[group].memory().of_rank(rank_); }
  const StepShapeKey& shape_key() const { return shape_key_; }

  // All in device memory.
  const int32_t* tokens() const { return tokens_; }
  int64_t num_groups() const { return std::ssize(groups_); }
  const cuda::RowPlace* places(int32_t group) const { return groups_[group].places; }
  const int32_t* pages(int32_t group) const { return groups_[group].pages; }
  /// Pages that no sequence has more of.
  int64_t longest_table(int32_t group) const { return groups_[group].longest_table; }
  const cuda::StatePart* states(int32_t group) const { return groups_[group].states; }
  /// Places of any group: their positions are the same.
  const cuda::RowPlace* positions() const;
  const int32_t* head_rows() const { return head_rows_; }
  /// For each token whether its text is a long one, where that decides (CacheLayout::long_after).
  const uint8_t* are_long() const { return are_long_; }
  const std::byte* choices() const { return choices_; }
  /// The tasks of a kind that begin() was given.
  const StepTasks& tasks(const AttentionKind& kind) const;
  /// All tokens, by whether latents of such sizes are expanded for them.
  std::vector<cuda::ExpandedRows> expanded_rows(const cuda::ExpandedSizes& latents) const;
  /// A copy that stays for all steps.
  Result<const double*> frequencies(std::span<const double> inv_freq);

 private:
  struct Frequencies {
    std::vector<double> on_host;
    CudaBuffer on_device;
  };

  /// The places of each token, or of each part, in a group of the cache.
  struct Group {
    const cuda::RowPlace* places = nullptr;
    const int32_t* pages = nullptr;
    const cuda::StatePart* states = nullptr;
    int64_t longest_table = 0;
  };

  Result<const std::byte*> upload(std::span<const std::byte> bytes);

  cuda::Stream stream_;
  Element element_;
  bool batch_invariant_;
  int64_t split_ctas_;
  cuda::ExpansionGpu gpu_;
  int rank_;
  StepBuffers device_{step_memory()};
  // Of this step, and of the one before, which the GPU may not have copied yet.
  StepBuffers pinned_{pinned_step_memory()};
  StepBuffers pinned_before_{pinned_step_memory()};
  KvPool* pool_ = nullptr;
  int64_t num_parts_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_head_rows_ = 0;
  const int32_t* tokens_ = nullptr;
  const int32_t* head_rows_ = nullptr;
  const uint8_t* are_long_ = nullptr;
  const std::byte* choices_ = nullptr;
  StepShapeKey shape_key_;
  std::vector<Group> groups_;
  std::vector<StepTasks> tasks_;
  std::deque<Frequencies> frequencies_;
};

}  // namespace subbyte
