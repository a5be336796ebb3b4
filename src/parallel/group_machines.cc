#include "parallel/group_machines.h"

#include <algorithm>
#include <limits>

#include "parallel/group_weights.h"
#include "parallel/rank_plan.h"

namespace subbyte {
namespace {

/// The numbers of all matrices that the operations of a plan read.
double weights_of(const StepPlan& plan) {
  const auto numbers = [](const Weight& weight) {
    return static_cast<double>(weight.rows) * static_cast<double>(weight.cols);
  };
  double sum = 0;
  for (const EmbedOp* op : ops_of<EmbedOp>(plan)) sum += numbers(op->table);
  for (const LinearOp* op : ops_of<LinearOp>(plan)) sum += numbers(op->weight);
  for (const GatedLinearOp* op : ops_of<GatedLinearOp>(plan)) sum += numbers(op->gate_up);
  for (const HeadsLinearOp* op : ops_of<HeadsLinearOp>(plan)) sum += numbers(op->weight);
  for (const ExpertsOp* op : ops_of<ExpertsOp>(plan)) {
    const Experts& experts = op->experts;
    constexpr double kMatrices = 3;  // gate, up and down
    sum += kMatrices * static_cast<double>(experts.count) * static_cast<double>(experts.hidden) *
           static_cast<double>(experts.inner);
  }
  return sum;
}

/// Bytes of one page or state of each group.
double kept_by(const CacheLayout& layout) {
  double sum = 0;
  for (const CacheGroup& group : layout.groups) {
    sum += static_cast<double>(cache_unit_bytes(group, Element::kF16));
  }
  return sum;
}

int64_t scaled(int64_t bytes, double part, double whole) {
  return whole > 0 ? static_cast<int64_t>(static_cast<double>(bytes) * part / whole) : bytes;
}

}  // namespace

std::string GroupMachines::name() const {
  return of_rank(0).name() + " to " + of_rank(ranks_.size() - 1).name();
}

Result<int64_t> GroupMachines::free_bytes() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    SUBBYTE_TRY(const int64_t free, of_rank(rank).free_bytes());
    least = std::min(least, free);
  }
  return least * std::ssize(ranks_);
}

Status GroupMachines::reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) {
  const Division division = divide(plan, place_.size, GroupBorders());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = place_.first + static_cast<int>(i);
    RankCutter outlines(nullptr, rank, place_.size);
    SUBBYTE_TRY(const StepPlan own, plan_of_rank(plan, division, rank, outlines));
    MemoryNeed part = need;
    part.weights = scaled(need.weights, weights_of(own), weights_of(plan));
    part.cache = scaled(need.cache, kept_by(own.cache), kept_by(plan.cache));
    part.workspace = of_rank(i).workspace_bytes(own, size);
    SUBBYTE_CHECK(of_rank(i).reserve(part, own, size));
  }
  return {};
}

MemoryNeed GroupMachines::held() const {
  MemoryNeed all;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const MemoryNeed one = of_rank(rank).held();
    all.weights += one.weights;
    all.cache += one.cache;
    all.workspace += one.workspace;
    all.staging += one.staging;
  }
  return all;
}

Status GroupMachines::finish_rank(std::size_t rank) {
  MachineMemory* const memory = ranks_[rank]->memory();
  return memory == nullptr ? Status() : memory->finish_loading();
}

}  // namespace subbyte
