#include "parallel/group_machines.h"

#include <algorithm>
#include <limits>

#include "parallel/plan_sizes.h"

namespace subbyte {
namespace {

int64_t scaled(int64_t bytes, double part, double whole) {
  return whole > 0 ? static_cast<int64_t>(static_cast<double>(bytes) * part / whole) : bytes;
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
  return least * std::ssize(members_);
}

Status GroupMachines::reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) {
  SUBBYTE_CHECK(cut_.cut(plan));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    MachineMemory* const memory = members_[i]->memory();
    if (memory == nullptr) continue;
    RankCutter outlines = cut_.cutter(nullptr, i);
    SUBBYTE_TRY(const StepPlan own, cut_.plan_of(plan, i, outlines));
    MemoryNeed part = need;
    part.weights = scaled(need.weights, weight_numbers(own), weight_numbers(plan));
    part.cache = scaled(need.cache, kept_bytes(own.cache), kept_bytes(plan.cache));
    part.workspace = memory->workspace_bytes(own, size);
    SUBBYTE_CHECK(memory->reserve(part, own, size));
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
