#pragma once
// Writes the plan of a model's step: each function appends an operation and returns its result.
//
//   Recorder record;
//   ValueId x = record.embed("embed_tokens", table);
//   const ValueId h = record.add_norm("norm", x, kNoValue, norm);
//   ...
//   SUBBYTE_TRY(StepPlan plan, std::move(record).finish());
//
// Results follow from the operands that an operation lists. Where a value does not have the columns
// or the type that it expects, or another has its memory by now, finish() has the first error.

#include <map>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "ops/step_plan.h"

namespace subbyte {

class Recorder {
 public:
  /// Operations have names that begin so from now on: "layers.3.".
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  /// Columns of a value, or 0.
  int64_t cols(ValueId id) const { return id < 0 ? 0 : plan_.value(id).cols; }

  /// An operation with its operands, whose result is its `y`. One that keeps something of a
  /// sequence has a place in the cache of its own.
  template <class Kind>
  ValueId add(std::string_view name, Kind op) {
    if constexpr (requires { op.kept(); }) op.cache = add_to_cache(op.kept());
    const ValueId y = op.y = next_value();
    if constexpr (requires { op.scratch; }) op.scratch = y + 1;
    append(name, std::move(op));
    return y;
  }

  ValueId embed(std::string_view name, const Weight& table, float factor = 1) {
    return add(name, EmbedOp{.table = table, .factor = factor});
  }
  /// `x` becomes the sum with `factor` times the delta, if there is one, times `scale`.
  ValueId add_norm(std::string_view name, ValueId& x, ValueId delta, const Norm& norm,
                   float factor = 1, const Vector& scale = {}) {
    return add_sum(
        name, x, AddNormOp{.x = x, .delta = delta, .norm = norm, .factor = factor, .scale = scale});
  }
  /// The same without a norm.
  ValueId activations(std::string_view name, ValueId& x, ValueId delta, float factor = 1) {
    return add_sum(name, x, AddOp{.x = x, .delta = delta, .factor = factor});
  }
  /// The same for the rows whose logits are computed, after which x is not used any more.
  ValueId head_norm(std::string_view name, ValueId x, ValueId delta, const Norm& norm,
                    float factor = 1, const Vector& scale = {});
  /// `x` is an activation of `runs` times as many columns as the norm has numbers.
  ValueId norm(std::string_view name, ValueId x, const Norm& norm, int64_t runs = 1) {
    return add(name, NormOp{.x = x, .norm = norm, .runs = runs});
  }
  /// The same of columns from `first` on alone; `x` is not used any more.
  ValueId norm_columns(std::string_view name, ValueId x, int64_t first, const Norm& norm);
  ValueId linear(std::string_view name, ValueId x, const Weight& weight,
                 bool squares_relu = false) {
    return add(name, LinearOp{.x = x, .weight = weight, .squares_relu = squares_relu});
  }
  /// LinearOp::exact; the results are floats.
  ValueId exact_linear(std::string_view name, ValueId x, const Weight& weight) {
    return add(name, LinearOp{.x = x, .weight = weight, .exact = true, .type = ValueType::kFloat});
  }
  ValueId gated_linear(std::string_view name, ValueId x, const Weight& gate_up,
                       Gate gate = Gate::kSilu) {
    return add(name, GatedLinearOp{.x = x, .gate_up = gate_up, .gate = gate});
  }

  /// Rotary positions and attention over a cache of its own, or where the shape has no keys over
  /// that of `source`. `qkv` [AttentionShape::qkv_size()]. `rope` turns all of a head, or a part of
  /// it; nullptr: nothing turns.
  struct Attention {
    AttentionShape shape;
    std::shared_ptr<const Rope> rope;
    HeadNorms norms;
    Vector sinks;
    CacheSlot source = {};
    RopePairs pairs = RopePairs::kHalves;
    QueryScale query_scale = {};
    ValueId selected = kNoValue;  // positions, as selection() gives them
    LatentSizes latent = {};      // of latent_attention()
    Weight latent_keys = {}, latent_values = {};
  };
  ValueId attention(std::string_view name, ValueId qkv, const Attention& attention);
  /// Attention over latents: of queries [heads][nope + turning] and a latent of each token
  /// [rank + turning], results [heads][value]. `matrices`: what stands before ".keys" and ".values"
  /// in the names of both products. The shape follows from `attention.latent`, but for its scale.
  ValueId latent_attention(std::string_view name, std::string_view matrices, ValueId q,
                           ValueId latent, Attention attention);
  /// SelectOp over a cache of keys of its own: queries [shape.q_size()] and keys [head_dim] turn
  /// first.
  ValueId selection(std::string_view name, ValueId q, ValueId k, ValueId weights,
                    const AttentionShape& shape, const std::shared_ptr<const Rope>& rope,
                    RopePairs pairs);
  /// Where the last attention finds keys and values.
  CacheSlot last_cache() const { return last_cache_; }

  ValueId experts(std::string_view name, ValueId x, ValueId router_logits, const Experts& experts,
                  const Router& router = {}) {
    return add(
        name,
        ExpertsOp{.x = x, .router_logits = router_logits, .experts = experts, .router = router});
  }
  /// Columns of `x`, range after range.
  ValueId columns(std::string_view name, ValueId x, std::vector<ColumnsOp::Range> ranges);
  ValueId gate(std::string_view name, ValueId x, ValueId up, int64_t first, Gate gate);
  /// SigmoidGateOp; `x` is not used any more. Without a gate there is a base.
  ValueId sigmoid_gate(std::string_view name, ValueId x, ValueId gate, ValueId base = kNoValue);
  /// `x` has the head rows, as head_norm() leaves them; `factor` and `cap` are those of LogitsOp.
  void logits(std::string_view name, ValueId x, const Weight& head, float factor = 1,
              float cap = 0);

  /// An operation of a plan that is recorded again in another form: its results are next_value()
  /// and those after it, and its place in the cache is of the layout that the plan is given.
  void append(std::string_view name, Operation operation);
  /// The one that the next result is.
  ValueId next_value() const { return static_cast<ValueId>(plan_.values.size()); }
  void set_cache(CacheLayout layout) { plan_.cache = std::move(layout); }

  /// Code plan.shape where operands do not fit, or neither logits nor what is sent end the plan.
  Result<StepPlan> finish() &&;

 private:
  struct Angles {
    const Rope* rope;
    ValueId cos, sin;
  };

  /// An operation that may write a sum in the memory of `x` before its result.
  template <class Kind>
  ValueId add_sum(std::string_view name, ValueId& x, Kind op) {
    if (op.delta == kNoValue) return add(name, op);
    x = op.sum = next_value();
    op.y = op.sum + 1;
    append(name, op);
    return op.y;
  }
  /// One more layer that keeps what `group` says, among those that keep the same.
  CacheSlot add_to_cache(CacheGroup group);
  /// Counts a reader of keys and values; refuses those that no layer before has stored, or of
  /// another form.
  void read_source(std::string_view name, const CacheSlot& source, CacheGroup kept);
  Angles angles_of(const std::shared_ptr<const Rope>& rope);
  /// With what it reads and writes, and values for its results.
  Op op_of(std::string name, Operation operation);
  void read(Op& op, const Operand& operand);
  void write(Op& op, const Operand& result, const Operands& all);
  /// Keeps the first error.
  void refuse(std::string_view name, const std::string& message);
  void expect(std::string_view name, std::string_view what, int64_t expected, int64_t found);

  std::string prefix_;
  StepPlan plan_;
  std::vector<Op> first_ops_;  // that read nothing
  std::vector<Angles> angles_;
  std::map<ValueId, std::string> taken_over_;  // values whose memory an operation has written over
  std::optional<Error> error_;
  CacheSlot last_cache_;
  bool has_end_ = false;
};

}  // namespace subbyte
