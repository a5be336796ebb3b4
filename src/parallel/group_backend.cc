#include "parallel/group_backend.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "base/thread_pool.h"
#include "parallel/group_machines.h"
#include "parallel/group_weights.h"
#include "parallel/rank_plan.h"

namespace subbyte {
namespace {

constexpr std::string_view kLost = "exchange.lost";

/// Observed steps run in another way, which is that of all ranks then.
class NoObserver : public StepObserver {
 public:
  void observe(const Op&, ValueId, std::span<const float>) override {}
};

/// One group of the cache in the memories of the ranks here.
class GroupMemory : public KvMemory {
 public:
  GroupMemory(std::shared_ptr<std::vector<KvPool>> pools, int first, std::size_t group)
      : pools_(std::move(pools)), first_(first), group_(group) {}

  KvMemory& of_rank(int rank) override {
    return (*pools_)[static_cast<std::size_t>(rank - first_)].groups()[group_].memory();
  }
  void copy_page(int32_t from, int32_t to, int64_t positions) override {
    for (KvPool& pool : *pools_) pool.groups()[group_].memory().copy_page(from, to, positions);
  }

 private:
  std::shared_ptr<std::vector<KvPool>> pools_;  // by rank, from first_ on
  int first_;
  std::size_t group_;
};

class GroupCompiledStep : public CompiledStep {
 public:
  GroupCompiledStep(StepPlan step_plan, std::vector<std::unique_ptr<CompiledStep>> ranks)
      : CompiledStep(std::move(step_plan)), ranks_(std::move(ranks)) {}

  const CompiledStep& at(std::size_t i) const { return *ranks_[i]; }

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
        memory_(ranks_, place_),
        largest_(ranks_.size()) {}

  /// Says whether the system gave a thread for each rank.
  bool has_threads() const { return threads_.size() == static_cast<int>(ranks_.size()); }

  // --- the machine

  std::string description() const override {
    return std::to_string(place_.size) + " ranks of " + first().description();
  }
  std::string last_step() const override { return first().last_step(); }
  int64_t prompt_chunk() const override { return first().prompt_chunk(); }
  /// All ranks read at once what is largest of their own.
  double measure_read_bandwidth(const Weight&) override {
    std::vector<double> found(ranks_.size());
    on_all([&](std::size_t i) {
      if (largest_[i].storage != nullptr) found[i] = ranks_[i]->measure_read_bandwidth(largest_[i]);
    });
    double sum = 0;
    for (const double one : found) sum += one;
    return sum;
  }
  Executor& host() override { return *host_; }
  MachineMemory* memory() override {
    return ranks_.front()->memory() == nullptr ? nullptr : &memory_;
  }

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
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      SUBBYTE_TRY(KvPool pool, ranks_[i]->make_kv_pool(rank_layouts_[i], type, size));
      pools->push_back(std::move(pool));
    }
    std::vector<KvGroup> groups;
    for (std::size_t i = 0; i < layout.groups.size(); ++i) {
      groups.emplace_back(layout.groups[i], cache_units(layout.groups[i], size),
                          std::make_unique<GroupMemory>(pools, place_.first, i));
    }
    return KvPool(layout, type, size, std::move(groups));
  }

  /// Once for the weights of a plan, of which nothing is kept.
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    if (weights_.empty()) {
      return Error{"linear.unsupported", "weights that the ranks have been given before"};
    }
    const Division division = divide(plan, place_.size, GroupBorders());
    std::vector<std::unique_ptr<CompiledStep>> steps(ranks_.size());
    std::vector<Status> results(ranks_.size());
    on_all([&](std::size_t i) {
      try {
        results[i] = compile(plan, division, i, steps[i]);
      } catch (const std::bad_alloc&) {
        results[i] = Error{"memory", "not enough memory for the weights of a rank"};
      } catch (const std::exception& error) {  // a thread has nobody who would catch it
        results[i] = Error{"device.ranks", std::string("the weights of a rank: ") + error.what()};
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
    if (!lost_.ok()) return;
    ++in_flight_;
    const auto& steps = static_cast<const GroupCompiledStep&>(step);
    on_all([&](std::size_t i) {
      Batch own = batch;
      if (i > 0 && batch.observer != nullptr) own.observer = &not_observed_;
      ranks_[i]->submit(steps.at(i), own);
    });
  }

  Status wait(Logits& logits) override {
    if (in_flight_ == 0) return lost_;
    --in_flight_;
    Status result = ranks_.front()->wait(logits);
    int64_t failed = result.ok() ? 0 : 1;
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      Status other = ranks_[i]->wait(others_);
      if (other.ok()) continue;
      ++failed;
      if (result.ok() || result.error().code == kLost) result = std::move(other);
    }
    // The others have waited for one that failed alone, and are not where it is since.
    if (failed > 0 && failed < std::ssize(ranks_)) lost_ = Error{kLost, result.error().message};
    return result;
  }

 private:
  const Backend& first() const { return *ranks_.front(); }

  /// Calls work(i) for each rank here at once.
  template <class Work>
  void on_all(const Work& work) {
    threads_.run(static_cast<int>(ranks_.size()),
                 [&](int i) { work(static_cast<std::size_t>(i)); });
  }

  std::shared_ptr<const void> kept(GroupWeight weight) {
    weights_.push_back(std::make_shared<GroupWeight>(std::move(weight)));
    return weights_.back();
  }

  Status compile(const StepPlan& plan, const Division& division, std::size_t i,
                 std::unique_ptr<CompiledStep>& step) {
    const int rank = place_.first + static_cast<int>(i);
    RankCutter cutter(ranks_[i].get(), rank, place_.size);
    auto own = plan_of_rank(plan, division, rank, cutter);
    SUBBYTE_CHECK(cutter.status());
    if (!own.ok()) return own.error();
    SUBBYTE_CHECK(memory_.finish_rank(i));
    SUBBYTE_TRY(step, ranks_[i]->compile(std::move(own).value()));
    largest_[i] = cutter.largest();
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
  ThreadPool threads_;  // of each rank; they wait for each other
  GroupMachines memory_;
  // Of plans that were not compiled so far.
  std::vector<std::shared_ptr<GroupWeight>> weights_;
  std::vector<std::shared_ptr<ExpertMatrices>> experts_;
  // Of the last plan that was.
  CacheLayout layout_;
  std::vector<CacheLayout> rank_layouts_;
  std::vector<Weight> largest_;  // by rank
  // Of steps.
  NoObserver not_observed_;
  Logits others_;  // of all ranks but the first
  int64_t in_flight_ = 0;
  Status lost_;  // why there will be no more
};

}  // namespace

Result<std::unique_ptr<Backend>> make_group_backend(std::vector<std::unique_ptr<Backend>> ranks,
                                                    const GroupPlace& place,
                                                    std::shared_ptr<Executor> host) {
  auto group = std::make_unique<GroupBackend>(std::move(ranks), place, std::move(host));
  if (group->has_threads()) return std::unique_ptr<Backend>(std::move(group));
  return Error{"device.ranks", "tensor parallelism: the system gives no thread for each rank"};
}

}  // namespace subbyte
