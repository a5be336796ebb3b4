#include "parallel/plan_sizes.h"

namespace subbyte {
namespace {

int64_t bytes_of(const EmbedOp& op) {
  return op.table.bytes;
}
int64_t bytes_of(const LinearOp& op) {
  return op.weight.bytes;
}
int64_t bytes_of(const GatedLinearOp& op) {
  return op.gate_up.bytes;
}
int64_t bytes_of(const HeadsLinearOp& op) {
  return op.weight.bytes;
}
int64_t bytes_of(const ExpertsOp& op) {
  return op.experts.bytes;
}
template <class Other>
int64_t bytes_of(const Other&) {
  return 0;
}

}  // namespace

int64_t weight_bytes(const Op& op) {
  return std::visit([](const auto& what) { return bytes_of(what); }, op.what);
}

int64_t weight_bytes(const StepPlan& plan) {
  int64_t sum = 0;
  for (const Op& op : plan.ops) sum += weight_bytes(op);
  return sum;
}

double kept_bytes(const CacheLayout& layout) {
  double sum = 0;
  for (const CacheGroup& group : layout.groups) {
    sum += static_cast<double>(cache_unit_bytes(group, Element::kF16));
  }
  return sum;
}

}  // namespace subbyte
