#include "cuda_backend/lowering.h"

#include <algorithm>
#include <cmath>

#include "cuda_backend/experts.h"
#include "kernels/cuda/elementwise/norm.h"

namespace subbyte {
namespace {

/// The norm that adds the sum of experts, and nothing else reads it; -1: none. The routes must stay
/// where they are until then.
int64_t norm_of_sum(const Lowering& l, int64_t experts, ValueId sum) {
  const int64_t reader = l.reader_of(sum);
  const auto* const norm = l.plan.as<AddNormOp>(reader);
  if (norm == nullptr || !norm->norm.is_rms()) return -1;
  for (int64_t op = experts + 1; op < reader; ++op) {
    if (l.plan.as<ExpertsOp>(op) != nullptr) return -1;
  }
  return reader;
}

/// The sigmoid gate that adds `sum` to what it reads, with one number for a token or with none;
/// nullptr: `op` is no such gate.
const SigmoidGateOp* gate_of_sum(const Lowering& l, int64_t op, ValueId sum) {
  const auto* const gated = l.plan.as<SigmoidGateOp>(op);
  if (gated == nullptr || gated->base != sum) return nullptr;
  if (gated->gate == kNoValue) return gated;
  const StepValue& gate = l.plan.value(gated->gate);
  return gate.cols == 1 && gate.type == ValueType::kFloat ? gated : nullptr;
}

/// Says whether an expert with these matrices and the same gate may be one of `experts`: whether it
/// is packed as they are.
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

}  // namespace

JoinedExpert joined_expert(const Lowering& l, int64_t op, const ExpertsOp& experts) {
  JoinedExpert joined = {.gated = l.reader_of(experts.y)};
  const SigmoidGateOp* const gated = gate_of_sum(l, joined.gated, experts.y);
  if (gated == nullptr || (gated->gate != kNoValue && l.producers[gated->gate] > op)) return {};
  // Its gate weights what it gives, not its inputs.
  if (gated->gate != kNoValue && experts.router.rule.weights_inputs) return {};
  joined.down = l.producers[gated->x];
  const auto* const down = l.plan.as<LinearOp>(joined.down);
  if (down == nullptr || l.reader_of(down->y) < 0) return {};
  joined.gate_up = l.producers[down->x];
  const auto* const gate_up = l.plan.as<GatedLinearOp>(joined.gate_up);
  const bool is_beside =
      gate_up != nullptr && l.reader_of(gate_up->y) >= 0 && gate_up->x == experts.x;
  if (!is_beside || experts.experts.storage == nullptr) return {};
  const auto& mixture = *static_cast<const CudaExperts*>(experts.experts.storage.get());
  if (gate_up->gate != mixture.gate ||
      !joins(mixture, cuda_weight(gate_up->gate_up), cuda_weight(down->weight))) {
    return {};
  }
  return joined;
}

int64_t dense_product(const Lowering& l, ValueId y, ValueId x, int64_t reader) {
  const int64_t op = l.producers[y];
  const auto* const linear = l.plan.as<LinearOp>(op);
  if (linear == nullptr || op > reader || l.reader_of(y) != reader) return -1;
  if (x != kNoValue && linear->x != x) return -1;
  if (l.plan.value(y).rows != ValueRows::kTokens) return -1;
  return is_one_dense(linear->weight) ? op : -1;
}

namespace {

/// The same columns, as few ranges as they are.
std::vector<ColumnsOp::Range> merged(const std::vector<ColumnsOp::Range>& ranges) {
  std::vector<ColumnsOp::Range> all;
  for (const ColumnsOp::Range& range : ranges) {
    const bool continues = !all.empty() && all.back().first + all.back().count == range.first;
    if (continues) {
      all.back().count += range.count;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

bool are_equal(const ColumnsOp& columns, const std::vector<ColumnsOp::Range>& expected) {
  return std::ranges::equal(merged(columns.ranges), merged(expected),
                            [](const ColumnsOp::Range& a, const ColumnsOp::Range& b) {
                              return a.first == b.first && a.count == b.count;
                            });
}

}  // namespace

GatedHeads gated_heads(const Lowering& l, int64_t op) {
  const auto* const gates = l.plan.as<ColumnsOp>(op);
  const auto* const others = l.plan.as<ColumnsOp>(op + 1);
  const auto* const rotate = l.plan.as<RotateOp>(op + 2);
  const auto* const attend = l.plan.as<AttendOp>(op + 3);
  const auto* const gated = l.plan.as<SigmoidGateOp>(op + 4);
  if (!gates || !others || !rotate || !attend || !gated || gates->x != others->x) return {};
  const bool follow_each_other = rotate->qkv == others->y && attend->qkv == rotate->y &&
                                 gated->x == attend->y && gated->gate == gates->y &&
                                 gated->base == kNoValue;
  if (!follow_each_other || l.readers[gates->x].size() != 2) return {};
  for (const ValueId id : {gates->y, others->y, rotate->y, attend->y}) {
    if (l.reader_of(id) < 0) return {};
  }
  const int64_t size = rotate->shape.head_dim;
  std::vector<ColumnsOp::Range> of_gates, of_others;
  for (int64_t head = 0; head < rotate->shape.heads; ++head) {
    of_others.push_back({2 * head * size, size});
    of_gates.push_back({(2 * head + 1) * size, size});
  }
  of_others.push_back({2 * rotate->shape.q_size(), 2 * rotate->shape.kv_size()});
  if (!are_equal(*gates, of_gates) || !are_equal(*others, of_others)) return {};
  return {gates->x, gated->y};
}

namespace {

// ---- the rules

void gates_into_delta_net(Lowering& l, int64_t op) {
  const auto* const net = l.plan.as<DeltaNetOp>(op);
  if (net == nullptr || l.tokens == 0 || l.tokens > kMaxGateTokens) return;
  const int64_t gates = dense_product(l, net->ba, kNoValue, op);
  if (gates < 0) return;
  l.launches[op] = DeltaNetWithGates{op, gates};
  l.take_in({gates});
}

void shared_expert_into_mixture(Lowering& l, int64_t op) {
  const auto* const experts = l.plan.as<ExpertsOp>(op);
  if (experts == nullptr || l.tokens == 0 || l.tokens > kMaxJoinedTokens) return;
  const JoinedExpert shared = joined_expert(l, op, *experts);
  if (!shared.is_there()) return;
  const ValueId sum = l.plan.as<SigmoidGateOp>(shared.gated)->y;
  if (norm_of_sum(l, op, sum) < 0) return;
  l.experts_at(op).shared = shared;
  l.take_in({shared.gate_up, shared.down, shared.gated});
}

/// A sigmoid gate just before the norm, of an expert beside these, is left to it, too.
void sum_of_experts_into_norm(Lowering& l, int64_t op) {
  const auto* const experts = l.plan.as<ExpertsOp>(op);
  if (experts == nullptr) return;
  const JoinedExpert& shared = l.experts_at(op).shared;
  int64_t gated = l.reader_of(experts->y);
  const SigmoidGateOp* const gate = gate_of_sum(l, gated, experts->y);
  int64_t norm = norm_of_sum(l, op, gate == nullptr ? experts->y : gate->y);
  if (gate == nullptr || shared.is_there()) {
    gated = -1;
  } else if (norm != gated + 1) {
    norm = -1;
  }
  if (norm < 0) return;
  l.experts_at(op).leaves_sum = true;
  l.launches[norm] = RoutedNorm{norm, gated};
  l.take_in({gated});
}

/// A norm is left to the kernel that chooses only where nothing but the two products is between
/// them, so that what it reads is still there.
void router_into_experts(Lowering& l, int64_t op) {
  const auto* const experts = l.plan.as<ExpertsOp>(op);
  if (experts == nullptr || l.tokens != 1) return;
  JoinedRouter joined = {.router = dense_product(l, experts->router_logits, experts->x, op)};
  if (!joined.is_there()) return;
  JoinedExperts& launch = l.experts_at(op);
  const auto* const gated = l.plan.as<SigmoidGateOp>(launch.shared.gated);
  if (gated != nullptr && gated->gate != kNoValue) {
    joined.gate = dense_product(l, gated->gate, experts->x, launch.shared.gated);
    if (joined.gate < 0 || joined.gate > op) return;
  }
  const int64_t norm = l.producers[experts->x];
  const auto* const add = l.plan.as<AddNormOp>(norm);
  bool is_near = add != nullptr && add->scale.size == 0 && add->norm.is_rms() && l.launches[norm] &&
                 std::holds_alternative<PlanLaunch>(*l.launches[norm]);
  for (int64_t between = norm + 1; between < op; ++between) {
    is_near = is_near && (between == joined.router || between == joined.gate);
  }
  if (is_near) joined.norm = norm;
  launch.router = joined;
  l.take_in({joined.norm, joined.gate, joined.router});
}

/// Norms of a token that follow each other, as norm_of_terms() goes back from what is added.
class NormsBefore {
 public:
  NormsBefore(const Lowering& l, JoinedNorms& norms) : l_(l), norms_(norms), first_(norms.op) {}

  void find(ValueId delta) {
    norms_.of_sum = take_norm(delta);
    if (norms_.of_sum >= 0) delta = l_.plan.as<NormOp>(norms_.of_sum)->x;
    const auto* const sum = l_.plan.as<SigmoidGateOp>(before(delta));
    if (sum == nullptr || sum->gate != kNoValue || sum->base == kNoValue) {
      find_routes(delta);
      return;
    }
    norms_.added = --first_;
    // The one that was computed last is next to it.
    const bool x_is_last = l_.producers[sum->x] > l_.producers[sum->base];
    for (const bool is_x : {x_is_last, !x_is_last}) {
      const int64_t norm = take_norm(is_x ? sum->x : sum->base);
      norms_.terms[is_x ? 0 : 1] = norm;
      if (norm >= 0) find_routes(l_.plan.as<NormOp>(norm)->x);
    }
  }

 private:
  /// The operation that gives `id`, if it is just before those that were found, alone, and nothing
  /// else reads that; -1: it is not.
  int64_t before(ValueId id) const {
    const int64_t op = l_.producers[id];
    const bool is_near = op >= 0 && op == first_ - 1 && l_.reader_of(id) >= 0;
    return is_near && l_.launches[op] && std::holds_alternative<PlanLaunch>(*l_.launches[op]) ? op
                                                                                              : -1;
  }

  int64_t take_norm(ValueId id) {
    const int64_t op = before(id);
    const auto* const norm = l_.plan.as<NormOp>(op);
    if (norm == nullptr || norm->first || norm->runs != 1 || !norm->norm.is_rms()) return -1;
    first_ = op;
    return op;
  }

  /// Routes stay where they are until the next experts.
  void find_routes(ValueId id) {
    const int64_t op = l_.producers[id];
    if (norms_.experts >= 0 || l_.plan.as<ExpertsOp>(op) == nullptr || l_.reader_of(id) < 0) return;
    for (int64_t between = op + 1; between < norms_.op; ++between) {
      if (l_.plan.as<ExpertsOp>(between) != nullptr) return;
    }
    norms_.experts = op;
  }

  const Lowering& l_;
  JoinedNorms& norms_;
  int64_t first_;  // operation that was found
};

bool is_usual(const AddNormOp& norm) {
  return norm.norm.is_rms() && norm.rows == ValueRows::kTokens;
}

/// What is read must not be written over by another row, so it is of one token, and all operations
/// are neighbours.
void norms_into_one(Lowering& l, int64_t op) {
  const auto* const add = l.plan.as<AddNormOp>(op);
  if (add == nullptr || l.tokens != 1 || add->delta == kNoValue || !is_usual(*add)) return;
  if (!l.launches[op] || !std::holds_alternative<PlanLaunch>(*l.launches[op])) return;
  JoinedNorms norms;
  norms.op = op;
  NormsBefore(l, norms).find(add->delta);
  for (int64_t next = op + 1; std::ssize(norms.more) + 1 < cuda::JoinedNormsCall::kMaxResults;
       ++next) {
    const auto* const other = l.plan.as<AddNormOp>(next);
    if (other == nullptr || other->delta != kNoValue || other->x != add->sum) break;
    if (!is_usual(*other) || !l.launches[next]) break;
    if (!std::holds_alternative<PlanLaunch>(*l.launches[next])) break;
    norms.more.push_back(next);
  }
  if (norms.of_sum < 0 && norms.added < 0 && norms.more.empty()) return;
  if (norms.experts >= 0) l.experts_at(norms.experts).leaves_sum = true;
  l.take_in({norms.terms[0], norms.terms[1], norms.added, norms.of_sum});
  for (const int64_t other : norms.more) l.take_in({other});
  l.launches[op] = std::move(norms);
}

void sum_of_ranks_into_norm(Lowering& l, int64_t op) {
  const auto* const reduce = l.plan.as<AllReduceOp>(op);
  if (reduce == nullptr) return;
  const int64_t norm = l.reader_of(reduce->y);
  const auto* const add = l.plan.as<AddNormOp>(norm);
  if (norm != op + 1 || add == nullptr || add->delta != reduce->y || !is_usual(*add)) return;
  if (!l.launches[norm] || !std::holds_alternative<PlanLaunch>(*l.launches[norm])) return;
  l.launches[norm] = ReducedNorm{norm, op};
  l.take_in({op});
}

/// Heads of keys, at most, of which each token has counters (StepPrograms::limits).
constexpr int64_t kMaxTokenKvHeads = 128;

/// As programs have it, without their products. The step says whether its tokens are single ones.
void positions_into_attention(Lowering& l, int64_t op) {
  const auto* const attend = l.plan.as<AttendOp>(op);
  const auto* const rotate = l.plan.as<RotateOp>(op - 1);
  if (attend == nullptr || rotate == nullptr || attend->qkv != rotate->y) return;
  if (l.reader_of(rotate->y) != op) return;
  const AttentionShape& shape = rotate->shape;
  const bool is_usual = rotate->is_usual() && shape.has_keys && shape.values_in_keys == 0 &&
                        shape.cap == 0 && !shape.in_chunks && attend->selected == kNoValue;
  if (!is_usual || shape.kv_heads > kMaxTokenKvHeads ||
      !cuda::StepLayout::supports(shape.heads, shape.kv_heads, shape.head_dim)) {
    return;
  }
  l.launches[op] = TokenAttention{op, op - 1};
  l.take_in({op - 1});
}

constexpr LoweringRule kRules[] = {gates_into_delta_net,     shared_expert_into_mixture,
                                   sum_of_experts_into_norm, router_into_experts,
                                   sum_of_ranks_into_norm,   norms_into_one,
                                   positions_into_attention};

}  // namespace

Lowering::Lowering(const StepPlan& of_plan, int64_t of_tokens)
    : plan(of_plan),
      tokens(of_tokens),
      readers(readers_of(of_plan)),
      producers(of_plan.values.size(), -1) {
  for (int64_t op = 0; op < std::ssize(plan.ops); ++op) {
    launches.emplace_back(PlanLaunch{op});
    for (const ValueId id : plan.ops[op].outputs) producers[id] = op;
  }
}

JoinedExperts& Lowering::experts_at(int64_t op) {
  if (std::holds_alternative<PlanLaunch>(*launches[op])) launches[op] = JoinedExperts{.op = op};
  return std::get<JoinedExperts>(*launches[op]);
}

void Lowering::take_in(std::initializer_list<int64_t> ops) {
  for (const int64_t op : ops) {
    if (op >= 0) launches[op].reset();
  }
}

std::span<const LoweringRule> lowering_rules() {
  return kRules;
}

Schedule lower(const StepPlan& plan, int64_t tokens, std::span<const LoweringRule> rules) {
  Lowering lowering(plan, tokens);
  for (const LoweringRule rule : rules) {
    for (int64_t op = 0; op < std::ssize(plan.ops); ++op) rule(lowering, op);
  }
  Schedule schedule;
  for (const std::optional<MachineOp>& launch : lowering.launches) {
    if (launch) schedule.items.push_back(*launch);
  }
  return schedule;
}

}  // namespace subbyte
