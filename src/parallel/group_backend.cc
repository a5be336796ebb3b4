#include "parallel/group_backend.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "parallel/group_weights.h"
#include "parallel/rank_plan.h"
#include "parallel/rank_threads.h"

namespace subbyte {
namespace {

/// One group of the cache in the memories of all ranks.
class GroupMemory : public KvMemory {
 public:
  GroupMemory(std::shared_ptr<std::vector<KvPool>> pools, std::size_t group, int first)
      : pools_(std::move(pools)), group_(group), first_(first) {}

  KvMemory& of_rank(int rank) override {
    return (*pools_)[static_cast<std::size_t>(rank - first_)].groups()[group_].memory();
  }
  void copy_page(int32_t from, int32_t to, int64_t positions) override {
    for (KvPool& pool : *pools_) pool.groups()[group_].memory().copy_page(from, to, positions);
  }

 private:
  std::shared_ptr<std::vector<KvPool>> pools_;  // by rank, of those that are here
  std::size_t group_;
  int first_;
};

class GroupCompiledStep : public CompiledStep {
 public:
  GroupCompiledStep(StepPlan step_plan, std::vector<std::unique_ptr<CompiledStep>> ranks)
      : CompiledStep(std::move(step_plan)), ranks_(std::move(ranks)) {}

  const CompiledStep& of_rank(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<CompiledStep>> ranks_;
};

class GroupBackend : public Backend {
 public:
  GroupBackend(std::vector<std::unique_ptr<Backend>> ranks, const GroupPlace& place,
               std::shared_ptr<Executor> host)
      : ranks_(std::move(ranks)),
        place_(place),
        host_(std::move(host)),
        threads_(static_cast<int>(ranks_.size())),
        largest_(ranks_.size()) {}

  // --- the machine

  std::string description() const override {
    return std::to_string(place_.size) + " ranks of " + first().description();
  }
  std::string last_step() const override { return first().last_step(); }
  int64_t prompt_chunk() const override { return first().prompt_chunk(); }
  /// All ranks read at once what is largest of their own.
  double measure_read_bandwidth(const Weight&) override {
    std::vector<double> found(ranks_.size());
    threads_.run([&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      if (largest_[i].storage != nullptr) found[i] = ranks_[i]->measure_read_bandwidth(largest_[i]);
    });
    double sum = 0;
    for (const double one : found) sum += one;
    return sum;
  }
  Executor& host() override { return *host_; }

  // --- loading

  using Backend::upload;

  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    SUBBYTE_TRY(Weight weight, joined_sizes(matrices, bias));
    for (const Matrix& matrix : matrices) weight.bytes += matrix.view.bytes();
    weight.storage = kept({std::move(matrices), std::move(bias)});
    return weight;
  }

  Result<Weight> upload_far(Matrix table) override {
    std::vector<Matrix> one;
    one.push_back(std::move(table));
    SUBBYTE_TRY(Weight weight, joined_sizes(one, {}));
    weight.bytes = one.front().view.bytes();
    weight.storage = kept({std::move(one), {}, true});
    return weight;
  }

  Result<Experts> upload(ExpertMatrices experts) override {
    SUBBYTE_CHECK(check_shapes(experts));
    const MatrixView& down = experts.down.front().view;
    Experts uploaded = {std::ssize(experts.down), experts.top_k, down.rows, down.cols, nullptr};
    experts_.push_back(std::make_shared<ExpertMatrices>(std::move(experts)));
    uploaded.storage = experts_.back();
    return uploaded;
  }

  Result<Vector> upload(std::vector<float> numbers) override {
    const auto size = std::ssize(numbers);
    return Vector{size, std::make_shared<const std::vector<float>>(std::move(numbers))};
  }

  Status check_operations(const StepPlan& plan) const override {
    return first().check_operations(plan);
  }
  Status check_cache(const CacheLayout& layout, Element type) const override {
    return first().check_cache(layout, type);
  }

  /// Of the plan that was compiled last.
  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override {
    if (layout != layout_) return Error{"kv.unsupported", "a cache of another plan"};
    const auto pools = std::make_shared<std::vector<KvPool>>();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      SUBBYTE_TRY(KvPool pool, ranks_[rank]->make_kv_pool(rank_layouts_[rank], type, size));
      pools->push_back(std::move(pool));
    }
    std::vector<KvGroup> groups;
    for (std::size_t i = 0; i < layout.groups.size(); ++i) {
      groups.emplace_back(layout.groups[i], cache_units(layout.groups[i], size),
                          std::make_unique<GroupMemory>(pools, i, place_.first));
    }
    return KvPool(layout, type, size, std::move(groups));
  }

  /// Once for the weights of a plan, of which nothing is kept.
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    const Division division = divide(plan, place_.size, GroupBorders());
    std::vector<std::unique_ptr<CompiledStep>> steps(ranks_.size());
    std::vector<Status> results(ranks_.size());
    threads_.run([&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      try {
        results[i] = compile(plan, division, rank, steps[i]);
      } catch (const std::bad_alloc&) {
        results[i] = Error{"memory", "not enough memory for the weights of a rank"};
      }
    });
    for (const Status& result : results) SUBBYTE_CHECK(result);
    layout_ = plan.cache;
    rank_layouts_.clear();
    for (const auto& step : steps) rank_layouts_.push_back(step->plan().cache);
    let_go();
    return std::unique_ptr<CompiledStep>(
        std::make_unique<GroupCompiledStep>(std::move(plan), std::move(steps)));
  }

  // --- a step

  int64_t steps_in_flight() const override { return first().steps_in_flight(); }

  void submit(const CompiledStep& step, const Batch& batch) override {
    const auto& steps = static_cast<const GroupCompiledStep&>(step);
    threads_.run([&](int rank) {
      Batch own = batch;
      if (rank > 0) own.observer = nullptr;
      ranks_[static_cast<std::size_t>(rank)]->submit(steps.of_rank(rank), own);
    });
  }

  Status wait(Logits& logits) override {
    Status result = ranks_.front()->wait(logits);
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      Status other = ranks_[rank]->wait(others_);
      if (!other.ok() && (result.ok() || result.error().code == "exchange.lost")) result = other;
    }
    return result;
  }

 private:
  const Backend& first() const { return *ranks_.front(); }

  std::shared_ptr<const void> kept(GroupWeight weight) {
    weights_.push_back(std::make_shared<GroupWeight>(std::move(weight)));
    return weights_.back();
  }

  Status compile(const StepPlan& plan, const Division& division, int rank,
                 std::unique_ptr<CompiledStep>& step) {
    Backend& backend = *ranks_[static_cast<std::size_t>(rank)];
    RankCutter cutter(&backend, place_.first + rank, place_.size);
    auto own = plan_of_rank(plan, division, place_.first + rank, cutter);
    SUBBYTE_CHECK(cutter.status());
    if (!own.ok()) return own.error();
    SUBBYTE_TRY(step, backend.compile(std::move(own).value()));
    largest_[static_cast<std::size_t>(rank)] = cutter.largest();
    return {};
  }

  /// Handles of the whole plan refer to nothing from now on.
  void let_go() {
    for (const auto& weight : weights_) *weight = {};
    for (const auto& experts : experts_) *experts = {};
    weights_.clear();
    experts_.clear();
  }

  std::vector<std::unique_ptr<Backend>> ranks_;
  GroupPlace place_;
  std::shared_ptr<Executor> host_;
  RankThreads threads_;
  // Of plans that were not compiled so far.
  std::vector<std::shared_ptr<GroupWeight>> weights_;
  std::vector<std::shared_ptr<ExpertMatrices>> experts_;
  // Of the last plan that was.
  CacheLayout layout_;
  std::vector<CacheLayout> rank_layouts_;
  std::vector<Weight> largest_;  // by rank
  Logits others_;                // of all ranks but the first
};

}  // namespace

std::unique_ptr<Backend> make_group_backend(std::vector<std::unique_ptr<Backend>> ranks,
                                            const GroupPlace& place,
                                            std::shared_ptr<Executor> host) {
  return std::make_unique<GroupBackend>(std::move(ranks), place, std::move(host));
}

}  // namespace subbyte
