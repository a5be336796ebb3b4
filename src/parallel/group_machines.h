#pragma once
// The memories of machines that are the ranks of a group, as one: sizes are those of all together.

#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "parallel/group_place.h"

namespace subbyte {

class GroupMachines : public MachineMemory {
 public:
  /// `ranks`, which must outlive this, have memories if this is used.
  GroupMachines(const std::vector<std::unique_ptr<Backend>>& ranks, const GroupPlace& place)
      : ranks_(ranks), place_(place) {}

  /// "GPU 0 to GPU 3"
  std::string name() const override;
  /// As many times what the fullest has free as there are ranks.
  Result<int64_t> free_bytes() const override;
  Result<int64_t> matrix_bytes(const MatrixShape& shape) const override {
    return of_rank(0).matrix_bytes(shape);
  }
  int64_t vector_bytes(int64_t size) const override { return of_rank(0).vector_bytes(size); }
  /// An upper bound: every rank as if it had all heads.
  int64_t workspace_bytes(const StepPlan& plan, const StepSize& size) const override {
    return of_rank(0).workspace_bytes(plan, size);
  }
  /// Reserves on every rank what it will have: of the weights as much as of the numbers of their
  /// matrices.
  Status reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) override;
  /// Nothing yet: until the plan is compiled the weights wait in the memory of the host.
  Status finish_loading() override { return {}; }
  MemoryNeed held() const override;

  /// Ends the loading of one rank, if it has a memory.
  Status finish_rank(std::size_t rank);

 private:
  MachineMemory& of_rank(std::size_t rank) const { return *ranks_[rank]->memory(); }

  const std::vector<std::unique_ptr<Backend>>& ranks_;
  GroupPlace place_;
};

}  // namespace subbyte
