#include "ops/exchanges.h"

#include <utility>

namespace subbyte {
namespace {

/// Makes an operation read other values.
class Reader {
 public:
  explicit Reader(const std::vector<ValueId>& now) : now_(now) {}

  void operator()(EmbedOp&) const {}
  void operator()(AnglesOp&) const {}
  void operator()(AddNormOp& op) const {
    see(op.x);
    see(op.delta);
  }
  void operator()(RotateOp& op) const {
    see(op.qkv);
    see(op.cos);
    see(op.sin);
  }
  void operator()(AttendOp& op) const { see(op.qkv); }
  void operator()(ExpertsOp& op) const {
    see(op.x);
    see(op.router_logits);
  }
  void operator()(SigmoidGateOp& op) const {
    see(op.x);
    see(op.gate);
    see(op.base);
  }
  void operator()(DeltaNetOp& op) const {
    see(op.qkvz);
    see(op.ba);
  }
  void operator()(LogitsOp& op) const { see(op.logits); }
  template <class T>
  void operator()(T& op) const {
    see(op.x);
  }

 private:
  void see(ValueId& id) const {
    if (id != kNoValue) id = now_[static_cast<std::size_t>(id)];
  }

  const std::vector<ValueId>& now_;
};

}  // namespace

StepPlan with_exchanges(const StepPlan& plan, FunctionRef<bool(const Op&)> is_partial) {
  StepPlan result = {plan.values, {}, plan.cache};
  std::vector<ValueId> now(plan.values.size());  // by value: where its sum is
  for (std::size_t id = 0; id < now.size(); ++id) now[id] = static_cast<ValueId>(id);
  for (const Op& op : plan.ops) {
    result.ops.push_back(op);
    std::visit(Reader(now), result.ops.back().what);
    const ValueId y = op.results().front();
    if (y == kNoValue || !is_partial(op)) continue;
    StepValue sum = plan.value(y);
    sum.in_place_of = y;
    result.values.push_back(sum);
    now[static_cast<std::size_t>(y)] = static_cast<ValueId>(result.values.size() - 1);
    result.ops.push_back(
        {op.name + ".all_reduce", AllReduceOp{now[static_cast<std::size_t>(y)], y}});
  }
  return result;
}

}  // namespace subbyte
