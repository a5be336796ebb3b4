#include "parallel/plan_sizes.h"

namespace subbyte {
namespace {

double numbers_of(const Weight& weight) {
  return static_cast<double>(weight.rows) * static_cast<double>(weight.cols);
}

double numbers_of(const Experts& experts) {
  constexpr double kMatrices = 3;  // gate, up and down
  return kMatrices * static_cast<double>(experts.count) * static_cast<double>(experts.hidden) *
         static_cast<double>(experts.inner);
}

double numbers_of(const EmbedOp& op) {
  return numbers_of(op.table);
}
double numbers_of(const LinearOp& op) {
  return numbers_of(op.weight);
}
double numbers_of(const GatedLinearOp& op) {
  return numbers_of(op.gate_up);
}
double numbers_of(const HeadsLinearOp& op) {
  return numbers_of(op.weight);
}
double numbers_of(const ExpertsOp& op) {
  return numbers_of(op.experts);
}
template <class Other>
double numbers_of(const Other&) {
  return 0;
}

}  // namespace

double weight_numbers(const Op& op) {
  return std::visit([](const auto& what) { return numbers_of(what); }, op.what);
}

double weight_numbers(const StepPlan& plan) {
  double sum = 0;
  for (const Op& op : plan.ops) sum += weight_numbers(op);
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
