#include "cuda_backend/joined_operations.h"

#include <algorithm>
#include <cmath>

#include "cuda_backend/experts.h"

namespace subbyte {
namespace {

using Readers = std::vector<std::vector<int64_t>>;

template <class T>
const T* as(const StepPlan& plan, int64_t op) {
  return op < 0 ? nullptr : std::get_if<T>(&plan.ops[static_cast<std::size_t>(op)].what);
}

/// The norm that adds the sum of experts, and nothing else reads it; -1: none. The routes must stay
/// where they are until then.
int64_t norm_of_sum(const StepPlan& plan, int64_t experts, const std::vector<int64_t>& readers) {
  if (readers.size() != 1 || as<AddNormOp>(plan, readers.front()) == nullptr) return -1;
  for (int64_t op = experts + 1; op < readers.front(); ++op) {
    if (as<ExpertsOp>(plan, op) != nullptr) return -1;
  }
  return readers.front();
}

/// The operation that a value is the result of; -1: none.
int64_t producer_of(const StepPlan& plan, ValueId id) {
  for (int64_t op = 0; op < std::ssize(plan.ops); ++op) {
    const std::vector<ValueId>& results = plan.ops[static_cast<std::size_t>(op)].outputs;
    if (std::ranges::find(results, id) != results.end()) return op;
  }
  return -1;
}

/// Says whether an expert with these matrices, of which gate and up give SiLU(gate) * up, may be
/// one of `experts`: whether it is packed as they are.
bool joins(const CudaExperts& experts, const CudaWeight& gate_up, const CudaWeight& down) {
  const auto is_alike = [](const CudaWeight& weight, const CudaExpertMatrices& matrices) {
    if (weight.parts.size() != 1) return false;
    const CudaMatrix& matrix = weight.parts.front();
    cuda::PackedFormat format = matrix.format();
    format.largest_scale =
        matrices.weights->format().largest_scale;  // few tokens are not scaled by it
    return !matrix.is_dense() && matrix.bias.size() == 0 && matrices.bias.size() == 0 &&
           format == matrices.weights->format();
  };
  const SwiGLU& gate = experts.swiglu;
  const bool is_usual = gate.alpha == 1 && std::isinf(gate.limit) && gate.up_offset == 0;
  return experts.joins_shared && is_usual && experts.top_k < cuda::kMaxTopK &&
         is_alike(gate_up, experts.gate_up) && is_alike(down, experts.down);
}

/// The expert beside a mixture that these experts can take in: nothing else reads what it computes
/// on its way, its gate is there before them, and only a norm reads the sum.
JoinedExpert joined_expert(const StepPlan& plan, int64_t op, const ExpertsOp& experts,
                           const std::vector<std::vector<int64_t>>& readers) {
  if (readers[experts.y].size() != 1 || experts.experts.storage == nullptr) return {};
  JoinedExpert joined = {.gated = readers[experts.y].front()};
  const auto* const gated = as<SigmoidGateOp>(plan, joined.gated);
  if (gated == nullptr || gated->base != experts.y) return {};
  const StepValue& gate = plan.value(gated->gate);
  const int64_t of_gate = producer_of(plan, gated->gate);
  if (gate.cols != 1 || gate.type != ValueType::kFloat || of_gate < 0 || of_gate > op) return {};
  joined.down = producer_of(plan, gated->x);
  const auto* const down = joined.down < 0 ? nullptr : as<LinearOp>(plan, joined.down);
  if (down == nullptr || readers[down->y].size() != 1) return {};
  joined.gate_up = producer_of(plan, down->x);
  const auto* const gate_up =
      joined.gate_up < 0 ? nullptr : as<GatedLinearOp>(plan, joined.gate_up);
  if (gate_up == nullptr || readers[gate_up->y].size() != 1 || gate_up->x != experts.x ||
      gate_up->gate != Gate::kSilu) {
    return {};
  }
  const auto& mixture = *static_cast<const CudaExperts*>(experts.experts.storage.get());
  if (!joins(mixture, cuda_weight(gate_up->gate_up), cuda_weight(down->weight)) ||
      norm_of_sum(plan, op, readers[gated->y]) < 0) {
    return {};
  }
  return joined;
}

/// The product of one dense matrix that gives `y` of `x`, and that `reader` alone reads; -1: none.
int64_t dense_product(const StepPlan& plan, ValueId y, ValueId x, int64_t reader,
                      const Readers& readers) {
  const int64_t op = producer_of(plan, y);
  const auto* const linear = as<LinearOp>(plan, op);
  if (linear == nullptr || op > reader || readers[y] != std::vector<int64_t>{reader}) return -1;
  if (x != kNoValue && linear->x != x) return -1;
  if (plan.value(y).rows != ValueRows::kTokens) return -1;
  const std::vector<CudaMatrix>& parts = cuda_weight(linear->weight).parts;
  return parts.size() == 1 && parts.front().is_dense() ? op : -1;
}

/// What the kernel that chooses can do before it. A norm is left to it only where nothing but the
/// two products is between them, so that what it reads is still there.
JoinedRouter joined_router(const StepPlan& plan, int64_t op, const ScheduledLaunch& launch,
                           const std::vector<ScheduledLaunch>& launches, const Readers& readers) {
  const auto& experts = *as<ExpertsOp>(plan, op);
  JoinedRouter joined;
  joined.router = dense_product(plan, experts.router_logits, experts.x, op, readers);
  if (!joined.is_there()) return {};
  if (const auto* const gated = as<SigmoidGateOp>(plan, launch.joined.gated)) {
    joined.gate = dense_product(plan, gated->gate, experts.x, launch.joined.gated, readers);
    if (joined.gate < 0 || joined.gate > op) return {};
  }
  const int64_t of_input = producer_of(plan, experts.x);
  const auto* const norm = as<AddNormOp>(plan, of_input);
  if (norm == nullptr || norm->y != experts.x || launches[of_input].adds_routes) return joined;
  for (int64_t between = of_input + 1; between < op; ++between) {
    if (between != joined.router && between != joined.gate) return joined;
  }
  joined.norm = of_input;
  return joined;
}

/// The sigmoid gate that adds the sum of experts to that of every token, just before the norm that
/// reads its result and nothing else does; -1: none.
int64_t gate_before_norm(const StepPlan& plan, int64_t experts, const Readers& readers) {
  const ValueId sum = as<ExpertsOp>(plan, experts)->y;
  if (readers[sum].size() != 1) return -1;
  const int64_t op = readers[sum].front();
  const auto* const gated = as<SigmoidGateOp>(plan, op);
  if (gated == nullptr || gated->base != sum || plan.value(gated->gate).cols != 1 ||
      plan.value(gated->gate).type != ValueType::kFloat) {
    return -1;
  }
  return norm_of_sum(plan, experts, readers[gated->y]) == op + 1 ? op : -1;
}

}  // namespace

std::vector<bool> join_operations(const StepPlan& plan, int64_t tokens,
                                  std::vector<ScheduledLaunch>& launches) {
  std::vector<bool> is_joined(plan.ops.size());
  const auto join = [&](std::initializer_list<int64_t> ops) {
    for (const int64_t op : ops) {
      if (op >= 0) is_joined[op] = true;
    }
  };
  const Readers readers = readers_of(plan);
  for (int64_t op = 0; op < std::ssize(plan.ops); ++op) {
    ScheduledLaunch& launch = launches[op];
    const auto* const net = as<DeltaNetOp>(plan, op);
    if (net != nullptr && tokens > 0 && tokens <= kMaxGateTokens) {
      launch.gates = dense_product(plan, net->ba, kNoValue, op, readers);
      join({launch.gates});
    }
    const auto* const experts = as<ExpertsOp>(plan, op);
    if (experts == nullptr) continue;
    if (tokens > 0 && tokens <= kMaxJoinedTokens) {
      launch.joined = joined_expert(plan, op, *experts, readers);
    }
    const JoinedExpert& joined = launch.joined;
    ValueId sum = experts->y;
    if (joined.is_there()) {
      join({joined.gate_up, joined.down, joined.gated});
      sum = as<SigmoidGateOp>(plan, joined.gated)->y;
    }
    const int64_t gated = joined.is_there() ? -1 : gate_before_norm(plan, op, readers);
    const int64_t norm = gated >= 0 ? gated + 1 : norm_of_sum(plan, op, readers[sum]);
    if (gated >= 0) launches[norm].gated = gated;
    join({gated});
    launch.leaves_sum = norm >= 0;
    if (norm >= 0) launches[norm].adds_routes = true;
    if (tokens != 1) continue;
    launch.router = joined_router(plan, op, launch, launches, readers);
    join({launch.router.norm, launch.router.gate, launch.router.router});
  }
  return is_joined;
}

}  // namespace subbyte
