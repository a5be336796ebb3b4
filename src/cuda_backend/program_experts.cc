#include "cuda_backend/program_experts.h"

#include "cuda_backend/experts.h"

namespace subbyte {
namespace {

using Order = cuda::StackedExperts::Order;

bool is_router(const LinearOp& linear, const ExpertsOp& experts) {
  return linear.x == experts.x && linear.y == experts.router_logits &&
         linear.type == ValueType::kFloat && is_one_dense(linear.weight);
}

bool is_served(const CudaExpertMatrices& matrices) {
  const gpu::PackedFormat& format = matrices.weights->format();
  // The kernel takes the table of a codebook from the first operation, which can be a router.
  return matrices.bias.size() == 0 && format.decoder != gpu::DecoderKind::kFloats &&
         format.decoder != gpu::DecoderKind::kCodebook && !gpu::prepares_inputs(format) &&
         matrices.weights->arguments().gather == nullptr;
}

bool is_served(const CudaExperts& experts, const Router& router, int multiprocessors) {
  if (experts.is_apart() || !is_gated(experts.gate) || router.rule.weights_inputs) return false;
  if (!is_served(experts.gate_up) || !is_served(experts.down)) return false;
  return experts.top_k * experts.gate_up.weights->format().strips >= multiprocessors;
}

/// Says whether a norm alone reads a result, or its sum over ranks.
bool goes_to_norm(const StepPlan& plan, const std::vector<std::vector<int64_t>>& readers,
                  ValueId y) {
  if (readers[y].size() != 1) return false;
  const int64_t reader = readers[y].front();
  const auto* const sum = plan.as<AllReduceOp>(reader);
  return sum != nullptr ? goes_to_norm(plan, readers, sum->y)
                        : plan.as<AddNormOp>(reader) != nullptr;
}

ProgramExperts stack(const CudaExpertMatrices& matrices, int64_t op, Order order, int64_t chosen) {
  cuda::ExpertsCall call;
  matrices.weights->set(call);
  return {.op = op,
          .matrices = matrices.weights.get(),
          .stacked = {order, matrices.weights->count(), chosen, call.expert_bytes},
          .logits = {}};
}

}  // namespace

std::optional<ProgramMixture> program_mixture(const StepPlan& plan,
                                              const std::vector<std::vector<int64_t>>& readers,
                                              int64_t op, int multiprocessors) {
  const auto* const linear = plan.as<LinearOp>(op);
  const auto* const experts = plan.as<ExpertsOp>(op + 1);
  if (linear == nullptr || experts == nullptr || readers[linear->y].size() != 1) return {};
  if (!is_router(*linear, *experts) || experts->experts.storage == nullptr) return {};
  // A shared expert's products would end the program and be launched.
  if (!goes_to_norm(plan, readers, experts->y)) return {};
  const auto& packed = *static_cast<const CudaExperts*>(experts->experts.storage.get());
  if (!is_served(packed, experts->router, multiprocessors)) return {};
  ProgramMixture mixture;
  mixture.router = &cuda_weight(linear->weight).parts.front();
  mixture.gate_up = stack(packed.gate_up, op + 1, Order::kRows, packed.top_k);
  mixture.down = stack(packed.down, op + 1, Order::kColumns, packed.top_k);
  mixture.activation = activation_of(packed);
  mixture.swiglu = packed.swiglu;
  return mixture;
}

}  // namespace subbyte
