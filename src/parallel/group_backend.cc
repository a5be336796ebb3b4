#include "parallel/group_backend.h"

#include <string>
#include <string_view>
#include <utility>

#include "parallel/group.h"
#include "parallel/no_observer.h"
#include "parallel/rank_plan.h"

namespace subbyte {
namespace {

constexpr std::string_view kLost = "exchange.lost";

class RankCut : public GroupCut {
 public:
  explicit RankCut(const GroupPlace& place) : place_(place) {}

  Status cut(const StepPlan& plan) override {
    division_ = divide(plan, place_.size, GroupBorders());
    return {};
  }
  RankCutter cutter(Backend* backend, std::size_t i) const override {
    return {backend, rank(i), place_.size};
  }
  Result<StepPlan> plan_of(const StepPlan& plan, std::size_t i,
                           WeightCutter& cutter) const override {
    return plan_of_rank(plan, division_, rank(i), cutter);
  }

 private:
  int rank(std::size_t i) const { return place_.first + static_cast<int>(i); }

  GroupPlace place_;
  Division division_;
};

class RankGroup : public Group {
 public:
  RankGroup(Members ranks, const GroupPlace& place, std::shared_ptr<Executor> host)
      : Group(std::move(ranks), place, std::make_unique<RankCut>(place), std::move(host)),
        size_(place.size) {}

  // --- the machine

  std::string description() const override {
    return std::to_string(size_) + " ranks of " + first().description();
  }
  std::string last_step() const override { return first().last_step(); }
  int64_t prompt_chunk() const override { return first().prompt_chunk(); }
  /// All ranks read at once what is largest of their own.
  double measure_read_bandwidth(const Weight&) override {
    std::vector<double> found(members().size());
    on_all([&](std::size_t i) {
      const Weight& own = largest()[i];
      if (own.storage != nullptr) found[i] = members()[i]->measure_read_bandwidth(own);
    });
    double sum = 0;
    for (const double one : found) sum += one;
    return sum;
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
      members()[i]->submit(steps.at(i), own);
    });
  }

  Status wait(Logits& logits) override {
    if (in_flight_ == 0) return lost_;
    --in_flight_;
    Status result = members().front()->wait(logits);
    int64_t failed = result.ok() ? 0 : 1;
    for (std::size_t i = 1; i < members().size(); ++i) {
      Status other = members()[i]->wait(others_);
      if (other.ok()) continue;
      ++failed;
      if (result.ok() || result.error().code == kLost) result = std::move(other);
    }
    // The others have waited for one that failed alone, and are not where it is since.
    if (failed > 0 && failed < std::ssize(members())) {
      lost_ = Error{kLost, result.error().message};
    }
    return result;
  }

 private:
  const Backend& first() const { return *members().front(); }

  int size_;
  NoObserver not_observed_;
  Logits others_;  // of all ranks but the first
  int64_t in_flight_ = 0;
  Status lost_;  // why there will be no more
};

}  // namespace

Result<std::unique_ptr<Backend>> make_group_backend(std::vector<std::unique_ptr<Backend>> ranks,
                                                    const GroupPlace& place,
                                                    std::shared_ptr<Executor> host) {
  auto group = std::make_unique<RankGroup>(std::move(ranks), place, std::move(host));
  if (group->has_threads()) return std::unique_ptr<Backend>(std::move(group));
  return Error{"device.ranks", "tensor parallelism: the system gives no thread for each rank"};
}

}  // namespace subbyte
