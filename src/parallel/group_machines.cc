#include "parallel/group_machines.h"

#include <algorithm>
#include <limits>

#include "parallel/plan_sizes.h"

namespace subbyte {
namespace {

int64_t scaled(int64_t bytes, double part, double whole) {
  return whole > 0 ? static_cast<int64_t>(static_cast<double>(bytes) * part / whole) : bytes;
}

/// Bytes of weights beside the matrices of a plan. A table that is the head, too, is there twice.
int64_t bytes_beside(const StepPlan& plan, int64_t all) {
  int64_t beside = all - weight_bytes(plan);
  for (const EmbedOp* const embed : ops_of<EmbedOp>(plan)) {
    if (beside < 0) beside += embed->table.bytes;
  }
  return std::max<int64_t>(beside, 0);
}

}  // namespace

bool GroupMachines::is_there() const {
  return std::ranges::any_of(members_, [](const auto& one) { return one->memory() != nullptr; });
}

MachineMemory& GroupMachines::first() const {
  return *(*std::ranges::find_if(members_, [](const auto& one) {
            return one->memory() != nullptr;
          }))->memory();
}

std::string GroupMachines::name() const {
  std::string names;
  for (const auto& member : members_) {
    if (member->memory() == nullptr) continue;
    names += (names.empty() ? "" : ", ") + member->memory()->name();
  }
  return names;
}

Result<int64_t> GroupMachines::free_bytes() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& member : members_) {
    if (member->memory() == nullptr) {
      return Error{"usage.cache_memory",
                   "a share of a GPU's memory (--gpu-memory-utilization) says how large the cache "
                   "is of a model that is on GPUs as a whole; --cache-positions says it of others"};
    }
    SUBBYTE_TRY(const int64_t free, member->memory()->free_bytes());
    least = std::min(least, free);
  }
  return least * size_;
}

MemoryNeed need_of(const StepPlan& own, const StepPlan& plan, const MemoryNeed& need,
                   const StepSize& size, const MachineMemory& memory) {
  MemoryNeed part = need;
  part.weights = weight_bytes(own) + bytes_beside(plan, need.weights);
  part.cache = scaled(need.cache, kept_bytes(own.cache), kept_bytes(plan.cache));
  part.workspace = memory.workspace_bytes(own, size);
  return part;
}

Status GroupMachines::reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) {
  for (;;) {
    SUBBYTE_CHECK(cut_.cut(plan));
    Status reserved = reserve_parts(need, plan, size);
    const bool is_too_much = !reserved.ok() && reserved.error().code == "memory.device";
    if (!is_too_much || !cut_.shrinks()) return reserved;
  }
}

Status GroupMachines::reserve_parts(const MemoryNeed& need, const StepPlan& plan,
                                    const StepSize& size) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    MachineMemory* const memory = members_[i]->memory();
    if (memory == nullptr) continue;
    RankCutter outlines = cut_.cutter(nullptr, i);
    SUBBYTE_TRY(const StepPlan own, cut_.plan_of(plan, i, outlines));
    SUBBYTE_CHECK(memory->reserve(need_of(own, plan, need, size, *memory), own, size));
  }
  return {};
}

MemoryNeed GroupMachines::held() const {
  MemoryNeed all;
  for (const auto& member : members_) {
    if (member->memory() == nullptr) continue;
    const MemoryNeed one = member->memory()->held();
    all.weights += one.weights;
    all.cache += one.cache;
    all.workspace += one.workspace;
    all.staging += one.staging;
  }
  return all;
}

Status GroupMachines::finish_member(std::size_t i) {
  MachineMemory* const memory = members_[i]->memory();
  return memory == nullptr ? Status() : memory->finish_loading();
}

}  // namespace subbyte
