#include "parallel/rank_plan.h"

#include <string>
#include <type_traits>
#include <utility>

#include "ops/recorder.h"

namespace subbyte {
namespace {

/// What a rank has of a value of the whole plan.
struct Form {
  ValueId id = kNoValue;
  bool is_partial = false;  // a part of each sum
  Parts parts = {};         // columns by rank; empty: all
};

class RankRecorder {
 public:
  RankRecorder(const StepPlan& plan, const Division& division, int rank, WeightCutter& cutter)
      : plan_(plan),
        division_(division),
        rank_(rank),
        cutter_(cutter),
        forms_(plan.values.size()),
        makers_(plan.values.size()) {}

  Result<StepPlan> record() && {
    record_.set_cache(cache_of(plan_, division_, rank_));
    for (op_ = 0; op_ < plan_.ops.size(); ++op_) {
      const Op& op = plan_.ops[op_];
      for (const ValueId id : op.outputs) makers_[id] = &op.name;
      std::visit([this](const auto& kind) { put(kind); }, op.what);
    }
    if (error_) return *error_;
    return std::move(record_).finish();
  }

 private:
  bool is_divided() const { return division_.is_divided[op_]; }
  const Parts& made(ValueId id) const { return division_.made[id]; }

  // --- values

  /// Appends an operation whose results are values of the plan, and says what they are.
  template <class Kind>
  void add(Kind op, ValueId Kind::*result, Form form = {}) {
    const ValueId whole = op.*result;
    form.id = op.*result = record_.next_value();
    if constexpr (requires { op.scratch; }) op.scratch = form.id + 1;
    record_.append(plan_.ops[op_].name, std::move(op));
    forms_[whole] = std::move(form);
  }

  /// The same of a sum in the memory of x, if there is one, and its y.
  template <class Kind>
  void add_sum(Kind op) {
    const ValueId sum = op.sum;
    const ValueId y = op.y;
    op.x = whole(op.x);
    op.delta = whole(op.delta);
    op.y = record_.next_value();
    if (sum != kNoValue) {
      op.sum = op.y++;
      forms_[sum] = {op.sum};
    }
    forms_[y] = {op.y};
    record_.append(plan_.ops[op_].name, std::move(op));
  }

  std::string name_of(ValueId id, const char* ending) const { return *makers_[id] + ending; }

  /// All of a value: what of it the ranks have is put together where that was not done so far.
  ValueId whole(ValueId id) {
    if (id == kNoValue) return id;
    Form& form = forms_[id];
    const StepValue& value = plan_.value(id);
    const ValueId y = record_.next_value();
    if (form.is_partial) {
      record_.append(name_of(id, ".sum"), AllReduceOp{y, form.id});
      form = {y};
    } else if (!form.parts.empty()) {
      Columns all;
      int64_t size = 0;
      for (const Columns& part : form.parts) {
        all = merged(all, part);
        size += size_of(part);
      }
      if (size_of(all) != value.cols || size != value.cols) refuse(id);
      record_.append(name_of(id, ".all"),
                     AllGatherOp{y, form.id, value.cols, form.parts, value.type});
      form = {y};
    }
    return form.id;
  }

  /// The columns of this rank, if each rank has them all.
  ValueId part(ValueId id, const Parts& parts) {
    if (forms_[id].parts == parts) return forms_[id].id;
    return columns(id, parts);
  }

  /// A copy of these.
  ValueId columns(ValueId id, const Parts& parts) {
    if (!has(id, parts)) whole(id);
    const Form& form = forms_[id];
    const Columns& mine = parts[rank_];
    const Columns ranges = form.parts.empty() ? mine : *places_of(mine, form.parts[rank_]);
    const ValueId y = record_.next_value();
    record_.append(name_of(id, ".part"), ColumnsOp{y, form.id, ranges});
    return y;
  }

  bool has(ValueId id, const Parts& parts) const {
    const Form& form = forms_[id];
    if (form.is_partial) return false;
    for (std::size_t rank = 0; rank < form.parts.size(); ++rank) {
      if (!places_of(parts[rank], form.parts[rank])) return false;
    }
    return true;
  }

  void refuse(ValueId id) {
    if (error_) return;
    error_ = Error{"plan.shape", name_of(id, ": columns that no rank or several have are read")};
  }

  // --- operations, whole where nothing else is said

  void put(EmbedOp op) {
    op.table = cutter_.whole(op.table);
    add(op, &EmbedOp::y);
  }

  Norm whole(Norm norm) {
    norm.weight = cutter_.whole(norm.weight);
    norm.bias = cutter_.whole(norm.bias);
    return norm;
  }

  void put(AddNormOp op) {
    op.norm = whole(op.norm);
    op.scale = cutter_.whole(op.scale);
    add_sum(op);
  }

  void put(AddOp op) { add_sum(op); }

  void put(NormOp op) {
    op.norm = whole(op.norm);
    const Parts& parts = made(op.y);
    if (parts.empty()) {
      op.x = whole(op.x);
      return add(op, &NormOp::y);
    }
    op.x = part(op.x, parts);
    op.runs = size_of(parts[rank_]) / op.norm.weight.size;
    add(op, &NormOp::y, {.parts = parts});
  }

  void put(LinearOp op) {
    if (is_divided()) {
      const Parts& inputs = division_.inputs[op_];
      op.x = part(op.x, inputs);
      op.weight = cutter_.inputs(op.weight, inputs[rank_]);
      return add(op, &LinearOp::y, {.is_partial = true});
    }
    op.x = whole(op.x);
    op.weight = outputs(op.weight, made(op.y));
    add(op, &LinearOp::y, {.parts = made(op.y)});
  }

  Weight outputs(const Weight& weight, const Parts& parts) {
    return parts.empty() ? cutter_.whole(weight) : cutter_.outputs(weight, parts[rank_]);
  }

  void put(GatedLinearOp op) {
    const Parts& inner = made(op.y);
    op.x = whole(op.x);
    op.gate_up = inner.empty()
                     ? cutter_.whole(op.gate_up)
                     : cutter_.outputs(op.gate_up, repeated(inner[rank_], 2, op.gate_up.rows / 2));
    add(op, &GatedLinearOp::y, {.parts = inner});
  }

  void put(AnglesOp op) {
    const ValueId cos = op.cos;
    const ValueId sin = op.sin;
    op.cos = record_.next_value();
    op.sin = op.cos + 1;
    forms_[cos] = {op.cos};
    forms_[sin] = {op.sin};
    record_.append(plan_.ops[op_].name, op);
  }

  void put(RotateOp op) {
    op.cos = whole(op.cos);
    op.sin = whole(op.sin);
    op.norms.q = cutter_.whole(op.norms.q);
    op.norms.k = cutter_.whole(op.norms.k);
    if (!is_divided()) {
      op.qkv = whole(op.qkv);
      return add(op, &RotateOp::y);
    }
    Parts parts;
    const auto shares = head_shares(op.shape, division_.ranks);
    for (const HeadShare& share : shares) parts.push_back(columns_of(op.shape, share));
    op.qkv = part(op.qkv, parts);
    op.shape = shape_of(op.shape, shares[rank_]);
    add(op, &RotateOp::y, {.parts = parts});
  }

  void put(SelectOp op) {
    op.q = whole(op.q);
    op.weights = whole(op.weights);
    add(op, &SelectOp::y);
  }

  void put(AttendOp op) {
    op.selected = whole(op.selected);
    op.qkv = forms_[op.qkv].id;
    if (!is_divided()) {
      op.sinks = cutter_.whole(op.sinks);
      op.latent_keys = cutter_.whole(op.latent_keys);
      op.latent_values = cutter_.whole(op.latent_values);
      return add(op, &AttendOp::y);
    }
    const HeadShare mine = head_shares(op.shape, division_.ranks)[rank_];
    op.shape = shape_of(op.shape, mine);
    op.sinks = cutter_.part(op.sinks, {mine.q});
    op.latent_keys = cutter_.outputs(op.latent_keys, {columns_of(mine.q, op.latent.rank)});
    op.latent_values = cutter_.outputs(op.latent_values, {columns_of(mine.q, op.latent.value)});
    if (op.latent.heads > 0) op.latent.heads = mine.q.count;
    add(op, &AttendOp::y, {.parts = made(op.y)});
  }

  void put(HeadsLinearOp op) {
    op.rest = whole(op.rest);
    if (!is_divided()) {
      op.x = whole(op.x);
      op.weight = cutter_.whole(op.weight);
      return add(op, &HeadsLinearOp::y);
    }
    const int64_t outputs = op.outputs();
    const int64_t size = op.weight.cols + op.kept;
    Parts inputs;
    for (const Columns& columns : made(op.y)) {
      const int64_t first = columns.front().first / (outputs + op.kept);
      const int64_t heads = (size_of(columns) - op.rest_cols) / (outputs + op.kept);
      inputs.push_back({{first * size, heads * size}});
    }
    const ColumnRange mine = inputs[rank_].front();
    op.x = part(op.x, inputs);
    op.heads = mine.count / size;
    op.weight = cutter_.outputs(op.weight, {{mine.first / size * outputs, op.heads * outputs}});
    if (op.latent.heads > 0) op.latent.heads = op.heads;
    add(op, &HeadsLinearOp::y, {.parts = made(op.y)});
  }

  void put(ExpertsOp op) {
    op.x = whole(op.x);
    op.router_logits = whole(op.router_logits);
    op.router.biases = cutter_.whole(op.router.biases);
    op.router.factors = cutter_.whole(op.router.factors);
    op.experts = is_divided() ? cutter_.part(op.experts) : cutter_.whole(op.experts);
    add(op, &ExpertsOp::y, {.is_partial = is_divided()});
  }

  void put(ColumnsOp op) {
    const Parts& parts = made(op.y);
    if (parts.empty()) {
      op.x = whole(op.x);
      return add(op, &ColumnsOp::y);
    }
    Parts sources;
    for (const Columns& columns : parts) sources.push_back(mapped(columns, op.ranges));
    forms_[op.y] = {columns(op.x, sources), false, parts};
  }

  /// Sums of which each rank has a part stay so where the gate is one number.
  void put(SigmoidGateOp op) {
    const bool is_one = op.gate == kNoValue || plan_.value(op.gate).cols == 1;
    const bool fits = op.base == kNoValue || forms_[op.base].is_partial;
    if (forms_[op.x].is_partial && is_one && fits) {
      op.x = forms_[op.x].id;
      op.gate = whole(op.gate);
      if (op.base != kNoValue) op.base = forms_[op.base].id;
      return add(op, &SigmoidGateOp::y, {.is_partial = true});
    }
    const Parts parts = made(op.y);
    const auto like_x = [&](ValueId id) {
      return id == kNoValue || parts.empty() ? whole(id) : part(id, parts);
    };
    op.x = like_x(op.x);
    op.gate = is_one ? whole(op.gate) : like_x(op.gate);
    op.base = like_x(op.base);
    add(op, &SigmoidGateOp::y, {.parts = parts});
  }

  void put(GateOp op) {
    op.x = whole(op.x);
    op.up = whole(op.up);
    add(op, &GateOp::y);
  }

  void put(LogitsOp op) {
    op.logits = whole(op.logits);
    record_.append(plan_.ops[op_].name, op);
  }

  // --- mixers that keep a state

  void put(DeltaNetOp op) {
    if (is_divided()) op.shape = mine().delta_net;
    put_mixer(op);
  }
  void put(MambaOp op) {
    if (is_divided()) op.shape = mine().mamba;
    put_mixer(op);
  }
  void put(ShortConvOp op) {
    if (is_divided()) op.channels = mine().channels;
    put_mixer(op);
  }

  const MixerPart& mine() const { return division_.mixers[op_][rank_]; }

  template <class Mixer>
  void put_mixer(Mixer op) {
    std::size_t i = 0;
    for (const MixerInput& input : op.inputs()) {
      *input.value = is_divided() ? part(*input.value, inputs_of_ranks(i)) : whole(*input.value);
      ++i;
    }
    i = 0;
    for (const auto& row : Mixer::numbers(op)) {
      *row.numbers = is_divided() ? cutter_.part(*row.numbers, mine().numbers[i])
                                  : cutter_.whole(*row.numbers);
      ++i;
    }
    add(op, &Mixer::y, {.parts = made(op.y)});
  }

  Parts inputs_of_ranks(std::size_t i) const {
    Parts parts;
    for (const MixerPart& part : division_.mixers[op_]) parts.push_back(part.inputs[i]);
    return parts;
  }

  // --- stages

  void put(ReceiveOp op) { add(op, &ReceiveOp::y); }
  void put(SendOp op) {
    op.x = whole(op.x);
    record_.append(plan_.ops[op_].name, op);
  }

  /// A whole plan has none.
  void put(const AllReduceOp&) {}
  void put(const AllGatherOp&) {}

  const StepPlan& plan_;
  const Division& division_;
  const int rank_;
  WeightCutter& cutter_;
  Recorder record_;
  std::vector<Form> forms_;                 // by value of the whole plan
  std::vector<const std::string*> makers_;  // names of the operations that make them
  std::optional<Error> error_;
  std::size_t op_ = 0;
};

}  // namespace

CacheLayout cache_of(const StepPlan& plan, const Division& division, int rank) {
  CacheLayout layout = plan.cache;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto reduce = [&](const auto& op) {
      using Kind = std::remove_cvref_t<decltype(op)>;
      if constexpr (std::is_same_v<Kind, AttendOp>) {
        const HeadShare mine = head_shares(op.shape, division.ranks)[rank];
        layout.groups[op.cache.group].kv_heads = mine.kv.count;
      } else if constexpr (requires { op.kept(); }) {
        layout.groups[op.cache.group].state_size = division.mixers[i][rank].state_size;
      }
    };
    if (division.is_divided[i]) std::visit(reduce, plan.ops[i].what);
  }
  return layout;
}

Result<StepPlan> plan_of_rank(const StepPlan& plan, const Division& division, int rank,
                              WeightCutter& cutter) {
  return RankRecorder(plan, division, rank, cutter).record();
}

}  // namespace subbyte
