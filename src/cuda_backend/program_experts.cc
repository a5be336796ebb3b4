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
bool goes_to_norm(const Lowering& l, ValueId y) {
  const int64_t reader = l.reader_of(y);
  const auto* const sum = l.plan.as<AllReduceOp>(reader);
  return sum != nullptr ? goes_to_norm(l, sum->y) : l.plan.as<AddNormOp>(reader) != nullptr;
}

/// The dense matrix of the gate, where it can be the row after those of the router, or nullptr.
const CudaMatrix* last_row(const Lowering& l, const LinearOp& router, ValueId gate, int64_t gated) {
  const int64_t op = dense_product(l, gate, router.x, gated);
  if (op < 0) return nullptr;
  const CudaMatrix& rows = cuda_weight(router.weight).parts.front();
  const CudaMatrix& last = cuda_weight(l.plan.as<LinearOp>(op)->weight).parts.front();
  const bool is_alike = rows.weights->element() == last.weights->element() &&
                        rows.bias.size() == 0 && last.bias.size() == 0;
  return is_alike ? &last : nullptr;
}

/// Nothing: there is one that has no form in programs.
std::optional<ProgramSharedExpert> shared_beside(const Lowering& l, const LinearOp& router,
                                                 int64_t op, const ExpertsOp& experts) {
  ProgramSharedExpert shared;
  if (l.plan.as<SigmoidGateOp>(l.reader_of(experts.y)) == nullptr) return shared;
  shared.ops = joined_expert(l, op, experts);
  if (!shared.ops.is_there()) return {};
  const ValueId gate = l.plan.as<SigmoidGateOp>(shared.ops.gated)->gate;
  if (gate != kNoValue) {
    shared.gate = last_row(l, router, gate, shared.ops.gated);
    if (shared.gate == nullptr) return {};
  }
  const auto* const gate_up = l.plan.as<GatedLinearOp>(shared.ops.gate_up);
  shared.gate_up = &cuda_weight(gate_up->gate_up).parts.front();
  shared.down = &cuda_weight(l.plan.as<LinearOp>(shared.ops.down)->weight).parts.front();
  return shared;
}

ProgramExperts stack(const CudaExpertMatrices& matrices, int64_t op, Order order, int64_t chosen,
                     const CudaMatrix* shared) {
  cuda::ExpertsCall call;
  matrices.weights->set(call);
  ProgramExperts made;
  made.op = op;
  made.matrices = matrices.weights.get();
  made.stacked = {order, matrices.weights->count(), chosen, call.expert_bytes};
  if (shared != nullptr) {
    ++made.stacked.chosen;
    made.stacked.has_shared = true;
    made.stacked.shared_at = shared->arguments().codes - made.matrices->arguments().codes;
  }
  return made;
}

}  // namespace

std::optional<ProgramMixture> program_mixture(const Lowering& l, int64_t op, int multiprocessors) {
  const auto* const linear = l.plan.as<LinearOp>(op);
  const auto* const experts = l.plan.as<ExpertsOp>(op + 1);
  if (linear == nullptr || experts == nullptr || l.reader_of(linear->y) < 0) return {};
  if (!is_router(*linear, *experts) || experts->experts.storage == nullptr) return {};
  const auto& packed = *static_cast<const CudaExperts*>(experts->experts.storage.get());
  if (!is_served(packed, experts->router, multiprocessors)) return {};
  const auto shared = shared_beside(l, *linear, op + 1, *experts);
  if (!shared) return {};
  ProgramMixture mixture;
  mixture.shared = *shared;
  mixture.y = shared->ops.is_there() ? l.plan.as<SigmoidGateOp>(shared->ops.gated)->y : experts->y;
  if (!goes_to_norm(l, mixture.y)) return {};
  mixture.router = &cuda_weight(linear->weight).parts.front();
  mixture.gate_up = stack(packed.gate_up, op + 1, Order::kRows, packed.top_k, shared->gate_up);
  mixture.gate_up.shared = *shared;
  mixture.down = stack(packed.down, op + 1, Order::kColumns, packed.top_k, shared->down);
  mixture.activation = activation_of(packed);
  mixture.swiglu = packed.swiglu;
  return mixture;
}

}  // namespace subbyte
