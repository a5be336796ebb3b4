#include "cuda_backend/schedule.h"

#include <algorithm>

#include "cuda_backend/lowering.h"
#include "cuda_backend/program_cutter.h"

namespace subbyte {
bool Schedule::has_programs() const {
  return std::ranges::any_of(
      items, [](const auto& item) { return std::holds_alternative<ScheduledProgram>(item); });
}

int64_t Schedule::exchanges() const {
  int64_t exchanges = has_programs() ? 0 : -1;
  for (const MachineOp& item : items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program != nullptr) exchanges += program->exchanges;
  }
  return exchanges;
}

namespace {

/// Says whether an operation of these kinds is launched by itself.
template <class... Kinds>
bool launches_any(const Schedule& schedule, const StepPlan& plan) {
  return std::ranges::any_of(schedule.items, [&](const auto& item) {
    const auto* const launch = std::get_if<PlanLaunch>(&item);
    return launch != nullptr && ((plan.as<Kinds>(launch->op) != nullptr) || ...);
  });
}

}  // namespace

bool Schedule::launches_attention(const StepPlan& plan) const {
  return launches_any<AttendOp>(*this, plan);
}

Schedule schedule_launches(const StepPlan& plan, bool joins, int64_t tokens) {
  return lower(plan, tokens, joins ? lowering_rules() : std::span<const LoweringRule>());
}

int64_t program_bytes(const ScheduledProgram& program) {
  return std::ssize(program.ops) * int64_t{sizeof(cuda::StepOperation)} +
         program.num_products * int64_t{sizeof(cuda::StepWeights)};
}

namespace {

int64_t longest_row(const StepPlan& plan) {
  int64_t longest = 0;
  const auto look_at = [&](const Weight& weight) {
    for (const CudaMatrix& part : cuda_weight(weight).parts) {
      if (!part.is_dense()) longest = std::max(longest, part.cols());
    }
  };
  for (const Op& op : plan.ops) {
    if (const auto* linear = std::get_if<LinearOp>(&op.what)) look_at(linear->weight);
    if (const auto* gated = std::get_if<GatedLinearOp>(&op.what)) look_at(gated->gate_up);
  }
  return longest;
}

/// Says whether ranks exchange something by a launch before the last program.
bool exchanges_between_programs(const Schedule& schedule, const StepPlan& plan) {
  bool exchanges = false;
  bool is_between = false;
  for (const MachineOp& item : schedule.items) {
    const auto* const launch = std::get_if<PlanLaunch>(&item);
    if (launch != nullptr) {
      exchanges = exchanges || plan.as<AllReduceOp>(launch->op) != nullptr ||
                  plan.as<AllGatherOp>(launch->op) != nullptr;
    }
    is_between = is_between || (exchanges && std::holds_alternative<ScheduledProgram>(item));
  }
  return is_between;
}

}  // namespace

Schedule schedule_programs(const StepPlan& plan, const ValueSlots& slots, int64_t tokens,
                           bool attends, const cuda::Device& device, const ProgramLimits& limits) {
  const int64_t inputs = longest_row(plan);
  const bool has_states = std::ranges::any_of(plan.cache.groups, &CacheGroup::is_state);
  const bool serves = cuda::StepLayout::supports(device, tokens) && inputs > 0 &&
                      (tokens == 1 || (tokens * inputs <= limits.max_inputs && !has_states));
  if (!serves) return schedule_launches(plan, true, tokens);
  Schedule programs = cut_into_programs(plan, slots, tokens, attends, device, limits);
  const bool has_experts = !ops_of<ExpertsOp>(plan).empty();
  // Three of four layers with both stay together.
  const bool is_cut_by_attention =
      has_experts != has_states && launches_any<AttendOp>(programs, plan);
  const bool is_cut_short =
      launches_any<ExpertsOp, DeltaNetOp, MambaOp, ShortConvOp>(programs, plan) ||
      is_cut_by_attention || exchanges_between_programs(programs, plan);
  return is_cut_short ? schedule_launches(plan, true, tokens) : std::move(programs);
}

}  // namespace subbyte
