#include "ops/recorder.h"

#include <algorithm>
#include <utility>

namespace subbyte {

void Recorder::refuse(std::string_view name, const std::string& message) {
  if (!error_) error_ = Error{"plan.shape", std::string(name) + ": " + message};
}

void Recorder::expect(std::string_view name, std::string_view what, int64_t expected,
                      int64_t found) {
  if (expected == found) return;
  refuse(name, std::string(what) + ": expected " + std::to_string(expected) + ", found " +
                   std::to_string(found));
}

Op Recorder::op_of(std::string name, Operation operation) {
  Op op = {std::move(name), {}, {}, std::move(operation)};
  const Operands all = std::visit([](const auto& kind) { return kind.operands(); }, op.what);
  for (const Operand& operand : all) {
    if (operand.use == Operand::Use::kWeight) {
      expect(op.name, operand.what, operand.cols, operand.found);
    } else if (operand.is_read()) {
      read(op, operand);
    } else {
      write(op, operand, all);
    }
  }
  for (const Operand& operand : all) {
    if (operand.use == Operand::Use::kTakenOver) taken_over_[operand.value] = op.name;
  }
  return op;
}

void Recorder::append(std::string_view name, Operation operation) {
  has_end_ =
      std::holds_alternative<LogitsOp>(operation) || std::holds_alternative<SendOp>(operation);
  plan_.ops.push_back(op_of(prefix_ + std::string(name), std::move(operation)));
}

void Recorder::read(Op& op, const Operand& operand) {
  const ValueId id = operand.value;
  if (operand.cols != Operand::kAnyCols) expect(op.name, operand.what, operand.cols, cols(id));
  if (id == kNoValue) return;
  const std::string name = "%" + std::to_string(id);
  if (operand.type && *operand.type != plan_.value(id).type) {
    const bool wants_floats = *operand.type == ValueType::kFloat;
    refuse(op.name,
           std::string(operand.what) + ": expected " +
               (wants_floats ? "floats, found activations " : "activations, found floats ") + name);
  }
  const auto taken = taken_over_.find(id);
  if (taken != taken_over_.end()) {
    refuse(op.name, "reads " + name + ", which " + taken->second + " has written over");
  }
  op.inputs.push_back(id);
}

void Recorder::write(Op& op, const Operand& result, const Operands& all) {
  StepValue value = {result.cols, *result.type};
  if (result.cols == Operand::kAnyCols) value.cols = cols(all.front().value);
  for (const ValueId id : op.inputs) {
    if (plan_.value(id).rows == ValueRows::kHeadRows) value.rows = ValueRows::kHeadRows;
  }
  value.rows = result.rows.value_or(value.rows);
  if (result.use == Operand::Use::kWrittenInPlace) {
    value.in_place_of = std::ranges::find(all, Operand::Use::kTakenOver, &Operand::use)->value;
  }
  plan_.values.push_back(value);
  op.outputs.push_back(result.value);
}

ValueId Recorder::head_norm(std::string_view name, ValueId x, ValueId delta, const Norm& norm,
                            float factor, const Vector& scale) {
  return add(name, AddNormOp{.x = x,
                             .delta = delta,
                             .norm = norm,
                             .factor = factor,
                             .scale = scale,
                             .rows = ValueRows::kHeadRows});
}

ValueId Recorder::norm_columns(std::string_view name, ValueId x, int64_t first, const Norm& norm) {
  const int64_t beyond = std::max<int64_t>(first + norm.weight.size - cols(x), 0);
  expect(prefix_ + std::string(name), "columns of the norm beyond the last", 0,
         first < 0 ? -first : beyond);
  return add(name, NormOp{.x = x, .norm = norm, .first = first});
}

Recorder::Angles Recorder::angles_of(const std::shared_ptr<const Rope>& rope) {
  const auto known = std::ranges::find(angles_, rope.get(), &Angles::rope);
  if (known != angles_.end()) return *known;
  const Angles made = {rope.get(), next_value(), next_value() + 1};
  first_ops_.push_back(op_of("rotary_emb", AnglesOp{made.cos, made.sin, rope}));
  angles_.push_back(made);
  if (rope->long_after() > 0) plan_.cache.long_after = rope->long_after();
  return made;
}

ValueId Recorder::attention(std::string_view name, ValueId qkv, const Attention& attention) {
  const AttentionShape& shape = attention.shape;
  Angles angles = {nullptr, kNoValue, kNoValue};
  if (attention.rope != nullptr) {
    const int64_t last = shape.first_turning + attention.rope->dim();
    expect(prefix_ + std::string(name), "numbers that turn beyond those of a head", 0,
           std::max<int64_t>(last - shape.head_dim, 0));
    angles = angles_of(attention.rope);
  }
  expect(prefix_ + std::string(name), "numbers of a head before those that turn", 0,
         shape.values_in_keys > 0 ? 0 : shape.first_turning);
  const CacheGroup kept = {.kv_heads = shape.kv_heads,
                           .head_dim = shape.head_dim,
                           .keys_alone = shape.values_in_keys > 0,
                           .window = shape.window};
  const CacheSlot cache = shape.has_keys ? add_to_cache(kept) : attention.source;
  if (!shape.has_keys) read_source(prefix_ + std::string(name), cache, kept);
  last_cache_ = cache;
  const ValueId rotated =
      add(std::string(name) + ".rotary_emb", RotateOp{.qkv = qkv,
                                                      .cos = angles.cos,
                                                      .sin = angles.sin,
                                                      .norms = attention.norms,
                                                      .shape = shape,
                                                      .cache = cache,
                                                      .pairs = attention.pairs,
                                                      .query_scale = attention.query_scale});
  return add(name, AttendOp{.qkv = rotated,
                            .selected = attention.selected,
                            .shape = shape,
                            .cache = cache,
                            .sinks = attention.sinks,
                            .latent = attention.latent,
                            .latent_keys = attention.latent_keys,
                            .latent_values = attention.latent_values});
}

ValueId Recorder::latent_attention(std::string_view name, std::string_view matrices, ValueId q,
                                   ValueId latent, Attention attention) {
  const LatentSizes& sizes = attention.latent;
  AttentionShape& shape = attention.shape;
  shape.heads = sizes.heads;
  shape.kv_heads = 1;
  shape.head_dim = sizes.rank + sizes.turning;
  shape.values_in_keys = shape.first_turning = sizes.rank;
  shape.top = sizes.top;
  const ValueId absorbed =
      add(std::string(matrices) + ".keys", HeadsLinearOp{.x = q,
                                                         .rest = latent,
                                                         .weight = attention.latent_keys,
                                                         .heads = sizes.heads,
                                                         .kept = sizes.turning,
                                                         .rest_cols = cols(latent),
                                                         .latent = sizes});
  const ValueId heads = this->attention(name, absorbed, attention);
  return add(
      std::string(matrices) + ".values",
      HeadsLinearOp{
          .x = heads, .weight = attention.latent_values, .heads = sizes.heads, .latent = sizes});
}

ValueId Recorder::selection(std::string_view name, ValueId q, ValueId k, ValueId weights,
                            const AttentionShape& shape, const std::shared_ptr<const Rope>& rope,
                            RopePairs pairs) {
  const Angles angles = angles_of(rope);
  expect(prefix_ + std::string(name), "numbers that turn beyond those of a head", 0,
         std::max<int64_t>(rope->dim() - shape.head_dim, 0));
  const CacheSlot cache =
      add_to_cache({.kv_heads = 1, .head_dim = shape.head_dim, .keys_alone = true});
  RotateOp keys = {.qkv = k, .cos = angles.cos, .sin = angles.sin, .cache = cache, .pairs = pairs};
  RotateOp queries = keys;
  keys.shape = {.kv_heads = 1, .head_dim = shape.head_dim, .values_in_keys = shape.head_dim};
  queries.qkv = q;
  queries.shape = shape;
  queries.shape.has_keys = false;
  add(std::string(name) + ".keys", keys);
  q = add(std::string(name) + ".queries", queries);
  return add(name, SelectOp{.q = q, .weights = weights, .shape = shape, .cache = cache});
}

ValueId Recorder::columns(std::string_view name, ValueId x, std::vector<ColumnsOp::Range> ranges) {
  for (const ColumnsOp::Range& range : ranges) {
    const bool fits = range.first >= 0 && range.count >= 0 && range.first + range.count <= cols(x);
    expect(prefix_ + std::string(name), "ranges beyond the columns", 0, fits ? 0 : 1);
  }
  return add(name, ColumnsOp{.x = x, .ranges = std::move(ranges)});
}

ValueId Recorder::gate(std::string_view name, ValueId x, ValueId up, int64_t first, Gate gate) {
  expect(prefix_ + std::string(name), "columns beyond the last", 0,
         first < 0 ? -first : std::max<int64_t>(first + cols(x) - cols(up), 0));
  return add(name, GateOp{.x = x, .up = up, .first = first, .gate = gate});
}

ValueId Recorder::sigmoid_gate(std::string_view name, ValueId x, ValueId gate, ValueId base) {
  const std::string full = prefix_ + std::string(name);
  if (gate != kNoValue && cols(gate) != 1) {
    expect(full, "columns of the gate", cols(x), cols(gate));
  }
  if (base != kNoValue) expect(full, "columns of what is added", cols(x), cols(base));
  return add(name, SigmoidGateOp{.x = x, .gate = gate, .base = base});
}

void Recorder::read_source(std::string_view name, const CacheSlot& source, CacheGroup kept) {
  std::vector<CacheGroup>& groups = plan_.cache.groups;
  const bool is_there = source.group >= 0 && source.group < std::ssize(groups) &&
                        source.layer < groups[source.group].layers;
  if (is_there) {
    kept.layers = groups[source.group].layers;
    kept.readers = groups[source.group].readers;
  }
  const bool fits = is_there && groups[source.group] == kept;
  expect(name, "layers whose keys and values it reads", 1, fits ? 1 : 0);
  if (fits) ++groups[source.group].readers;
}

CacheSlot Recorder::add_to_cache(CacheGroup group) {
  std::vector<CacheGroup>& groups = plan_.cache.groups;
  const auto keeps_the_same = [&](const CacheGroup& other) {
    group.layers = other.layers;
    group.readers = other.readers;
    return group == other;
  };
  auto found = std::ranges::find_if(groups, keeps_the_same);
  if (found == groups.end()) {
    group.layers = group.readers = 0;
    found = groups.insert(groups.end(), group);
  }
  return {static_cast<int32_t>(found - groups.begin()), found->layers++};
}

void Recorder::logits(std::string_view name, ValueId x, const Weight& head, float factor,
                      float cap) {
  const bool is_of_head = x < 0 || plan_.value(x).rows == ValueRows::kHeadRows;
  expect(prefix_ + std::string(name), "rows of tokens whose logits nobody asks for", 0,
         is_of_head ? 0 : 1);
  const ValueId logits = add(name, LinearOp{.x = x, .weight = head, .type = ValueType::kFloat});
  append(std::string(name) + ".logits", LogitsOp{logits, factor, cap});
}

Result<StepPlan> Recorder::finish() && {
  if (error_) return std::move(*error_);
  if (!has_end_) return Error{"plan.shape", "a plan whose last operation is not its logits"};
  plan_.ops.insert(plan_.ops.begin(), first_ops_.begin(), first_ops_.end());
  return std::move(plan_);
}

}  // namespace subbyte
