#include "parallel/group.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace subbyte {

Group::Group(Members members, const GroupPlace& place, std::unique_ptr<GroupCut> cut,
             std::shared_ptr<Executor> host)
    : members_(std::move(members)),
      first_(place.first),
      cut_(std::move(cut)),
      host_(std::move(host)),
      threads_(static_cast<int>(members_.size())),
      memory_(members_, *cut_, place.size),
      largest_(members_.size()) {}

// --- loading

std::shared_ptr<const void> Group::kept(GroupWeight weight) {
  weights_.push_back(std::make_shared<GroupWeight>(std::move(weight)));
  return weights_.back();
}

Result<Weight> Group::upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) {
  SUBBYTE_TRY(Weight weight, joined_sizes(matrices, bias));
  for (const Matrix& matrix : matrices) weight.bytes += matrix.view.bytes();
  weight.storage = kept({std::move(matrices), std::move(bias)});
  return weight;
}

Result<Weight> Group::upload_far(Matrix table) {
  std::vector<Matrix> one;
  one.push_back(std::move(table));
  SUBBYTE_TRY(Weight weight, joined_sizes(one, {}));
  weight.bytes = one.front().view.bytes();
  weight.storage = kept({std::move(one), {}, true});
  return weight;
}

Result<Experts> Group::upload(ExpertMatrices experts) {
  SUBBYTE_CHECK(check_shapes(experts));
  const MatrixView& down = experts.down.front().view;
  Experts uploaded = {std::ssize(experts.down), experts.top_k, down.rows, down.cols, nullptr};
  uploaded.bytes = bytes_of(experts);
  experts_.push_back(std::make_shared<ExpertMatrices>(std::move(experts)));
  uploaded.storage = experts_.back();
  return uploaded;
}

Result<Vector> Group::upload(std::vector<float> numbers) {
  const auto size = std::ssize(numbers);
  return Vector{size, std::make_shared<const std::vector<float>>(std::move(numbers))};
}

Status Group::check_operations(const StepPlan& plan) const {
  for (const auto& member : members_) SUBBYTE_CHECK(member->check_operations(plan));
  return {};
}

Status Group::check_cache(const CacheLayout& layout, Element type) const {
  for (const auto& member : members_) SUBBYTE_CHECK(member->check_cache(layout, type));
  return {};
}

Result<KvPool> Group::make_kv_pool(const CacheLayout& layout, Element type, const CacheSize& size) {
  if (layout != layout_) return Error{"kv.unsupported", "a cache of another plan"};
  const Pools pools = std::make_shared<std::vector<KvPool>>();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    SUBBYTE_TRY(KvPool pool, members_[i]->make_kv_pool(own_layouts_[i], type, size));
    pools->push_back(std::move(pool));
  }
  std::vector<KvGroup> groups;
  for (std::size_t i = 0; i < layout.groups.size(); ++i) {
    groups.emplace_back(layout.groups[i], cache_units(layout.groups[i], size),
                        std::make_unique<GroupMemory>(pools, first_, i, notes_));
  }
  return KvPool(layout, type, size, std::move(groups));
}

Result<std::unique_ptr<CompiledStep>> Group::compile(StepPlan plan) {
  if (weights_.empty()) {
    return Error{"linear.unsupported", "weights that the members have been given before"};
  }
  SUBBYTE_CHECK(cut_->cut(plan));
  std::vector<std::unique_ptr<CompiledStep>> steps(members_.size());
  std::vector<Status> results(members_.size());
  on_all([&](std::size_t i) {
    try {
      results[i] = compile(plan, i, steps[i]);
    } catch (const std::bad_alloc&) {
      results[i] = Error{"memory", "not enough memory for the weights of a part of the model"};
    } catch (const std::exception& error) {  // a thread has nobody who would catch it
      results[i] =
          Error{"device.ranks", std::string("the weights of a part of the model: ") + error.what()};
    }
  });
  for (const Status& result : results) SUBBYTE_CHECK(result);
  layout_ = plan.cache;
  own_layouts_.clear();
  for (const auto& step : steps) own_layouts_.push_back(step->plan().cache);
  let_go();
  return std::unique_ptr<CompiledStep>(
      std::make_unique<GroupCompiledStep>(std::move(plan), std::move(steps)));
}

Status Group::compile(const StepPlan& plan, std::size_t i, std::unique_ptr<CompiledStep>& step) {
  RankCutter cutter = cut_->cutter(members_[i].get(), i);
  auto own = cut_->plan_of(plan, i, cutter);
  SUBBYTE_CHECK(cutter.status());
  if (!own.ok()) return own.error();
  SUBBYTE_CHECK(memory_.finish_member(i));
  SUBBYTE_TRY(step, members_[i]->compile(std::move(own).value()));
  largest_[i] = cutter.largest();
  return {};
}

/// Handles of the whole plan refer to nothing from now on.
void Group::let_go() {
  for (const auto& weight : weights_) *weight = {};
  for (const auto& experts : experts_) *experts = {};
  weights_.clear();
  experts_.clear();
}

}  // namespace subbyte
