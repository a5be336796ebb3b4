#pragma once
// The memories of machines that are the members of a group, as one: sizes are those of all
// together. Some members may compute in the memory of the host, of which nothing is counted.

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "parallel/group_cut.h"

namespace subbyte {

/// The need of a member that has a part of a plan, of which the whole needs `need`.
MemoryNeed need_of(const StepPlan& own, const StepPlan& plan, const MemoryNeed& need,
                   const StepSize& size, const MachineMemory& memory);

class GroupMachines : public MachineMemory {
 public:
  /// Both must outlive this. Some member has a memory where this is used. `size` is that of the
  /// group in all processes.
  GroupMachines(const std::vector<std::unique_ptr<Backend>>& members, GroupCut& cut, int size)
      : members_(members), cut_(cut), size_(size) {}

  /// Says whether some member has a memory of its own.
  bool is_there() const;

  /// "GPU 0, GPU 1"
  std::string name() const override;
  /// As many times what the fullest here has free as there are members. Code usage.cache_memory
  /// where some have none.
  Result<int64_t> free_bytes() const override;
  Result<int64_t> matrix_bytes(const MatrixShape& shape) const override {
    return first().matrix_bytes(shape);
  }
  int64_t vector_bytes(int64_t size) const override { return first().vector_bytes(size); }
  /// An upper bound: every member as if it had all of the plan.
  int64_t workspace_bytes(const StepPlan& plan, const StepSize& size) const override {
    return first().workspace_bytes(plan, size);
  }
  /// Reserves on every member what it will have, or less where the cut shrinks and there is no room
  /// for it. The handles of the plan have the bytes of weights.
  Status reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) override;
  /// Nothing yet: until the plan is compiled the weights wait in the memory of the host.
  Status finish_loading() override { return {}; }
  MemoryNeed held() const override;

  /// Ends the loading of one member, if it has a memory.
  Status finish_member(std::size_t i);

 private:
  MachineMemory& first() const;
  Status reserve_parts(const MemoryNeed& need, const StepPlan& plan, const StepSize& size);

  const std::vector<std::unique_ptr<Backend>>& members_;
  GroupCut& cut_;
  int size_;
};

}  // namespace subbyte
