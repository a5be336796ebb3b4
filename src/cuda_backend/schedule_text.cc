// Schedules for people.

#include <string>

#include "cuda_backend/schedule.h"

namespace subbyte {
namespace {

using Order = cuda::StackedExperts::Order;

/// ", multiplies " and the name of an operation; nothing where there is none.
std::string with(const char* before, int64_t op, const StepPlan& plan) {
  return op < 0 ? "" : before + plan.ops[static_cast<std::size_t>(op)].name;
}

std::string line(const PlanLaunch& launch, const StepPlan& plan) {
  return with("launch ", launch.op, plan) + "\n";
}

std::string line(const SummedNorm& norm, const StepPlan& plan) {
  return with("launch ", norm.op, plan) + ", of the sum that is there\n";
}

std::string line(const RoutedNorm& norm, const StepPlan& plan) {
  return with("launch ", norm.op, plan) + ", adds the routes" + with(" and ", norm.gated, plan) +
         "\n";
}

std::string line(const ReducedNorm& norm, const StepPlan& plan) {
  return with("launch ", norm.op, plan) + with(", sums ", norm.reduce, plan) + "\n";
}

std::string line(const JoinedNorms& norms, const StepPlan& plan) {
  std::string text = with("launch ", norms.op, plan);
  for (const int64_t op : norms.terms) text += with(", with ", op, plan);
  text += with(", with ", norms.added, plan) + with(", with ", norms.of_sum, plan);
  for (const int64_t op : norms.more) text += with(", with ", op, plan);
  return text + with(", adds the routes of ", norms.experts, plan) + "\n";
}

std::string line(const JoinedExperts& experts, const StepPlan& plan) {
  return with("launch ", experts.op, plan) + with(", normalises ", experts.router.norm, plan) +
         with(", multiplies ", experts.router.gate, plan) +
         with(", multiplies ", experts.router.router, plan) +
         with(", with ", experts.shared.gated, plan) +
         (experts.leaves_sum ? ", the sum left to a norm\n" : "\n");
}

std::string line(const DeltaNetWithGates& net, const StepPlan& plan) {
  return with("launch ", net.op, plan) + with(", multiplies ", net.gates, plan) + "\n";
}

std::string line(const TokenAttention& attention, const StepPlan& plan) {
  return with("launch ", attention.op, plan) + with(", with ", attention.rotate, plan) + "\n";
}

std::string line(const ProgramRouter& router, const StepPlan& plan) {
  return "  " + plan.ops[router.op].name + (router.gate != nullptr ? " and a gate" : "") +
         ", normalises %" + std::to_string(router.x.value) + "\n";
}

std::string line(const ProgramDeltaNet& net, const StepPlan& plan) {
  return "  " + plan.ops[net.op].name + (net.result ? "\n" : ", the last of its program\n");
}

std::string line(const ProgramProduct& product, const StepPlan& plan) {
  std::string text = "  " + plan.ops[product.op].name;
  if (product.experts)
    text += product.experts->stacked.order == Order::kRows ? ", gate and up" : ", down";
  if (product.experts && product.experts->stacked.has_shared) text += " with a shared one";
  if (product.first > 0) text += " from column " + std::to_string(product.first);
  if (product.norm != nullptr) text += ", normalises %" + std::to_string(product.x.value);
  if (product.exchange > 0) text += ", sums over the ranks";
  if (product.residual != kNoValue) text += ", adds to %" + std::to_string(product.residual);
  return text + (product.result ? "\n" : ", the last of its program\n");
}

std::string line(const ProgramAttention& attention, const StepPlan& plan) {
  return "  " + plan.ops[attention.attend].name + (attention.is_gated ? ", gated\n" : "\n");
}

std::string line(const ScheduledProgram& program, const StepPlan& plan) {
  std::string text = "program\n";
  for (const auto& op : program.ops) {
    text += std::visit([&](const auto& one) { return line(one, plan); }, op);
  }
  return text;
}

}  // namespace

std::string to_string(const Schedule& schedule, const StepPlan& plan) {
  std::string text;
  for (const MachineOp& item : schedule.items) {
    text += std::visit([&](const auto& one) { return line(one, plan); }, item);
  }
  return text;
}

}  // namespace subbyte
