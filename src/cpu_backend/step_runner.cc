#include "cpu_backend/step_runner.h"

#include <algorithm>
#include <string>

#include "cpu_backend/attention.h"
#include "cpu_backend/delta_net.h"
#include "cpu_backend/experts.h"
#include "cpu_backend/gates.h"
#include "cpu_backend/norm.h"
#include "cpu_backend/selection.h"
#include "matrix/float_rows.h"

namespace subbyte {
namespace {

constexpr int64_t kAngleGrain = 8;  // rows of angles that are worth a thread
constexpr int64_t kRouteGrain = 8;  // the same of logits of a router
// With more of them threads wait for a small part of the time that they multiply.
constexpr int64_t kMostTokensOfNext = 16;

void scale(std::span<float> numbers, float factor) {
  for (float& number : numbers) number *= factor;
}

NormNumbers norm_of(const Norm& norm) {
  return {open(norm.weight), open(norm.bias), norm.eps, norm.is_centred};
}

Status expect_one_matrix(const Op& op, const Weight& weight) {
  if (open(weight).parts.size() == 1) return {};
  return Error{"linear.unsupported",
               op.name + ": expected one matrix, found several that are joined"};
}

Status expect_gate_and_up(const Op& op, const Weight& weight) {
  const std::vector<Matrix>& parts = open(weight).parts;
  if (parts.size() == 2 && parts[0].view.rows == parts[1].view.rows) return {};
  return Error{"linear.unsupported",
               op.name + ": expected gate and up as two matrices of equal rows"};
}

}  // namespace

Status check_plan(const StepPlan& plan, const Exchange* exchange) {
  for (const Op& op : plan.ops) {
    const bool exchanges = std::holds_alternative<AllReduceOp>(op.what) ||
                           std::holds_alternative<AllGatherOp>(op.what);
    if (exchanges && exchange == nullptr) {
      return Error{"linear.unsupported", op.name + ": there are no other ranks"};
    }
    if (const auto* embed = std::get_if<EmbedOp>(&op.what)) {
      SUBBYTE_CHECK(expect_one_matrix(op, embed->table));
    }
    if (const auto* heads = std::get_if<HeadsLinearOp>(&op.what)) {
      SUBBYTE_CHECK(expect_one_matrix(op, heads->weight));
    }
    if (const auto* linear = std::get_if<LinearOp>(&op.what); linear && linear->exact) {
      SUBBYTE_CHECK(expect_one_matrix(op, linear->weight));
    }
    if (const auto* gated = std::get_if<GatedLinearOp>(&op.what)) {
      SUBBYTE_CHECK(expect_gate_and_up(op, gated->gate_up));
    }
  }
  return {};
}

Status StepRunner::run(const CpuCompiledStep& step, const Batch& batch) {
  begin(step, batch);
  sent_.clear();
  for (std::size_t i = 0; i < plan_->ops.size(); ++i) {
    const Op& op = plan_->ops[i];
    if (!op.outputs.empty() && rows_of(op.outputs.front()) == 0) continue;
    next_ = std::ssize(tokens_) <= kMostTokensOfNext ? step.follows(i) : nullptr;
    kept_ = step.kept(i);
    if (is_left(step, i)) continue;
    SUBBYTE_CHECK(std::visit([this](const auto& what) { return run(what); }, op.what));
    if (batch.observer != nullptr) show(op);
  }
  return {};
}

void StepRunner::begin(const CpuCompiledStep& step, const Batch& batch) {
  plan_ = &step.plan();
  slots_of_values_ = &step.slots();
  batch_ = &batch;
  left_norm_ = nullptr;
  left_rotation_ = nullptr;
  pool_ = &batch.parts.front().sequence->pool();
  head_parts_ = nullptr;
  slots_.resize(std::max(slots_.size(), step.slots().slots.size()));
  tokens_.clear();
  positions_.clear();
  are_long_.clear();
  for (const Part& part : batch.parts) {
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
    for (int64_t t = 0; t < std::ssize(part.tokens); ++t) {
      positions_.push_back(part.sequence->length() + t);
    }
    are_long_.resize(positions_.size(), part.sequence->is_long());
  }
  places_.resize(pool_->groups().size());
  for (std::size_t group = 0; group < places_.size(); ++group) {
    places_[group].clear();
    if (pool_->groups()[group].layout().is_state()) continue;
    auto position = positions_.begin();
    for (const Part& part : batch.parts) {
      const std::span<const int32_t> pages = part.sequence->pages(static_cast<int32_t>(group));
      for (std::size_t t = 0; t < part.tokens.size(); ++t, ++position) {
        places_[group].push_back({*position, pages[*position / kPagePositions]});
      }
    }
  }
}

int64_t StepRunner::rows(ValueRows rows) const {
  return rows == ValueRows::kTokens ? std::ssize(tokens_) : batch_->num_head_rows();
}

std::span<float> StepRunner::numbers(ValueId id) {
  const int64_t count = rows_of(id) * plan_->value(id).cols;
  const auto* const last = std::get_if<LogitsOp>(&plan_->ops.back().what);
  if (last != nullptr && plan_->memory_of(last->logits) == plan_->memory_of(id)) {
    logits_.resize(static_cast<std::size_t>(count));
    return logits_;
  }
  return slots_[slots_of_values_->slot_of[id]].take(count);
}

std::vector<StatePart> StepRunner::states(const CacheSlot& slot) const {
  const auto& states = static_cast<const CpuStateMemory&>(memory(slot));
  std::vector<StatePart> parts;
  for (const Part& part : batch_->parts) {
    const int32_t from = part.sequence->state(slot.group);
    const int32_t to = part.sequence->next_state(slot.group);
    parts.push_back({std::ssize(part.tokens),
                     from == kNoPage ? nullptr : states.state(from, slot.layer).data(),
                     states.state(to, slot.layer).data()});
  }
  return parts;
}

void StepRunner::show(const Op& op) {
  const auto* const gather = std::get_if<AllGatherOp>(&op.what);
  if (gather != nullptr && gather == head_parts_) return;
  for (const ValueId id : op.outputs) batch_->observer->observe(op, id, numbers(id));
}

Status StepRunner::run(const EmbedOp& op) {
  const FloatRows table(open(op.table).parts.front().view);
  float* const y = numbers(op.y).data();
  execution_.pool().parallel_for(rows_of(op.y), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* const row = y + i * op.table.cols;
      table.row(tokens_[i], row);
      if (op.factor != 1) scale({row, static_cast<std::size_t>(op.table.cols)}, op.factor);
    }
  });
  return {};
}

Status StepRunner::run(const AddNormOp& op) {
  const bool of_head = op.rows == ValueRows::kHeadRows;
  const std::span<float> y = numbers(op.y);
  const std::span<float> x = of_head ? head_rows(op.x, head_x_) : numbers(op.x);
  const std::span<const float> weight = open(op.norm.weight);
  std::span<float> delta;
  if (op.delta != kNoValue) {
    delta = of_head ? head_rows(op.delta, head_delta_) : numbers(op.delta);
  }
  const float factor = op.scale.size > 0 ? open(op.scale).front() : 1;
  if (!op.norm.is_rms()) {
    if (!delta.empty()) add(execution_, y, x, delta, op.factor);
    if (!delta.empty() && factor != 1) scale(x, factor);
    any_norm(execution_, y, x, norm_of(op.norm));
  } else if (delta.empty()) {
    rms_norm(execution_, y, x, weight, op.norm.eps);
  } else {
    add_rms_norm(execution_, y, x, delta, weight, op.norm.eps, op.factor, factor);
  }
  return {};
}

Status StepRunner::run(const AddOp& op) {
  const std::span<float> y = numbers(op.y);
  const std::span<float> x = numbers(op.x);
  if (op.delta == kNoValue) {
    std::ranges::copy(x, y.begin());
  } else {
    add(execution_, y, x, numbers(op.delta), op.factor);
  }
  return {};
}

Status StepRunner::run(const NormOp& op) {
  if (op.first) {
    rms_norm_columns(execution_, numbers(op.x), plan_->value(op.x).cols, *op.first,
                     open(op.norm.weight), op.norm.eps);
    return {};
  }
  rms_norm(execution_, numbers(op.y), numbers(op.x), open(op.norm.weight), op.norm.eps);
  return {};
}

Status StepRunner::run(const AnglesOp& op) {
  const int64_t half = plan_->value(op.cos).cols;
  const std::span<float> cos = numbers(op.cos);
  const std::span<float> sin = numbers(op.sin);
  const auto compute = [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      op.rope->angles(cos.subspan(row * half, half), sin.subspan(row * half, half), positions_[row],
                      are_long_[row]);
    }
  };
  execution_.pool().parallel_for(rows_of(op.cos), kAngleGrain, compute);
  return {};
}

Status StepRunner::run(const SelectOp& op) {
  SelectionPart part;
  part.q = numbers(op.q).data();
  part.weights = numbers(op.weights).data();
  part.out = numbers(op.y).data();
  for (const Part& one : batch_->parts) {
    part.tokens = std::ssize(one.tokens);
    part.first_position = one.sequence->length();
    part.pages = one.sequence->pages(op.cache.group);
    SUBBYTE_CHECK(
        select_positions(execution_, part, cache(op.cache).layer(op.cache.layer), op.shape));
    part.q += part.tokens * op.shape.q_size();
    part.weights += part.tokens * op.shape.heads;
    part.out += part.tokens * op.shape.top;
  }
  return {};
}

Status StepRunner::run(const ExpertsOp& op) {
  const ExpertMatrices& experts = open(op.experts);
  std::vector<Route> routes(rows_of(op.x) * experts.top_k);
  const std::span<const float> logits = numbers(op.router_logits);
  const RouterNumbers router = {op.router.rule, open(op.router.biases), open(op.router.factors)};
  const int64_t count = op.experts.count;
  execution_.pool().parallel_for(rows_of(op.x), kRouteGrain, [&](int64_t begin, int64_t end, int) {
    route_top_k(std::span(routes).subspan(begin * experts.top_k, (end - begin) * experts.top_k),
                logits.subspan(begin * count, (end - begin) * count), count, experts.top_k, router);
  });
  return moe(execution_, numbers(op.y), numbers(op.x), routes, experts,
             op.router.rule.weights_inputs);
}

Status StepRunner::run(const ColumnsOp& op) {
  const int64_t from_cols = plan_->value(op.x).cols;
  const int64_t cols = plan_->value(op.y).cols;
  const float* const x = numbers(op.x).data();
  float* const y = numbers(op.y).data();
  execution_.pool().parallel_for(rows_of(op.y), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = y + row * cols;
      for (const ColumnsOp::Range& range : op.ranges) {
        to = std::copy_n(x + row * from_cols + range.first, range.count, to);
      }
    }
  });
  return {};
}

Status StepRunner::run(const SigmoidGateOp& op) {
  const auto numbers_or_none = [this](ValueId id) {
    return id == kNoValue ? std::span<const float>() : numbers(id);
  };
  sigmoid_gate(execution_, numbers(op.y), numbers(op.x), numbers_or_none(op.gate),
               numbers_or_none(op.base), plan_->value(op.y).cols);
  return {};
}

Status StepRunner::run(const GateOp& op) {
  gate_columns(execution_, op.gate, numbers(op.y), numbers(op.x), plan_->value(op.x).cols,
               {numbers(op.up), plan_->value(op.up).cols, op.first});
  return {};
}

Status StepRunner::run(const DeltaNetOp& op) {
  const DeltaNetWeights& weights = op.weights;
  gated_delta_net(
      execution_, numbers(op.y), numbers(op.qkvz), numbers(op.ba), states(op.cache), op.shape,
      {open(weights.filters), open(weights.rates), open(weights.dt_bias), open(weights.norm)});
  return {};
}

Status StepRunner::run(const LogitsOp& op) {
  const ValueId id = head_parts_ == nullptr ? op.logits : head_parts_->x;
  const std::span<float> logits = numbers(id);  // none, where no part asks for any
  if (op.cap > 0) {
    const int64_t cols = plan_->value(id).cols;
    execution_.pool().parallel_for(rows_of(id), 1, [&](int64_t begin, int64_t end, int) {
      execution_.kernels().vectors->soft_cap(logits.data() + begin * cols, (end - begin) * cols,
                                             op.factor, op.cap);
    });
  } else if (op.factor != 1) {
    scale(logits, op.factor);
  }
  return {};
}

std::span<float> StepRunner::head_rows(ValueId id, FloatBuffer& copies) {
  const int64_t rows = batch_->num_head_rows();
  const std::span<float> all = numbers(id);
  if (rows == rows_of(id)) return all;
  const int64_t cols = plan_->value(id).cols;
  const std::span<float> chosen = copies.take(rows * cols);
  float* to = chosen.data();
  const float* end = all.data();  // of the part
  for (const Part& part : batch_->parts) {
    end += std::ssize(part.tokens) * cols;
    to = std::copy(end - part.num_head_rows() * cols, end, to);
  }
  return chosen;
}

}  // namespace subbyte
