#pragma once
// Several machines as one, whatever each has of a step: the base of ranks (group_backend.h) and of
// stages (stage_backend.h).
//
//   upload      keeps the weights
//   compile     cuts the plan, gives each member its plan and its weights, and lets go of the whole
//
// Sequences, their pages and all that knows of them are those of the whole; each member has memory
// of its own for what it keeps, with the same tables of pages.

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"
#include "parallel/group_cut.h"
#include "parallel/group_machines.h"
#include "parallel/group_place.h"

namespace subbyte {

using Members = std::vector<std::unique_ptr<Backend>>;

/// The pools of the members, by member.
using Pools = std::shared_ptr<std::vector<KvPool>>;

/// Positions of a page that members copy when they come to it.
struct NotedCopy {
  Pools pools;
  std::size_t group;
  int32_t from, to;
  int64_t positions;

  void on_member(std::size_t i) const {
    (*pools)[i].groups()[group].memory().copy_page(from, to, positions);
  }
};
using NotedCopies = std::vector<NotedCopy>;

/// One group of the cache in the memories of the members here. The first one is that of rank
/// `first`.
class GroupMemory : public KvMemory {
 public:
  /// `notes`: where copies are noted; nullptr: they are made at once.
  GroupMemory(Pools pools, int first, std::size_t group, std::shared_ptr<NotedCopies> notes)
      : pools_(std::move(pools)), first_(first), group_(group), notes_(std::move(notes)) {}

  const Pools& pools() const { return pools_; }
  KvMemory& of_rank(int rank) override {
    return (*pools_)[static_cast<std::size_t>(rank - first_)].groups()[group_].memory();
  }
  void copy_page(int32_t from, int32_t to, int64_t positions) override {
    const NotedCopy copy = {pools_, group_, from, to, positions};
    if (notes_ != nullptr) return notes_->push_back(copy);
    for (std::size_t i = 0; i < pools_->size(); ++i) copy.on_member(i);
  }

 private:
  Pools pools_;
  int first_;
  std::size_t group_;
  std::shared_ptr<NotedCopies> notes_;
};

/// The plan of each member in its own form.
class GroupCompiledStep : public CompiledStep {
 public:
  GroupCompiledStep(StepPlan step_plan, std::vector<std::unique_ptr<CompiledStep>> members)
      : CompiledStep(std::move(step_plan)), members_(std::move(members)) {}

  const CompiledStep& at(std::size_t i) const { return *members_[i]; }

 private:
  std::vector<std::unique_ptr<CompiledStep>> members_;
};

class Group : public Backend {
 public:
  /// The first member is rank `place.first`. `host` is for work beside the operations.
  Group(Members members, const GroupPlace& place, std::unique_ptr<GroupCut> cut,
        std::shared_ptr<Executor> host);

  /// Says whether the system gave a thread for each member.
  bool has_threads() const { return threads_.size() == static_cast<int>(members_.size()); }

  Executor& host() override { return *host_; }
  MachineMemory* memory() override { return memory_.is_there() ? &memory_ : nullptr; }

  using Backend::upload;
  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override;
  Result<Weight> upload_far(Matrix table) override;
  Result<Experts> upload(ExpertMatrices experts) override;
  Result<Vector> upload(std::vector<float> numbers) override;

  /// Refuse what some member refuses.
  Status check_operations(const StepPlan& plan) const override;
  Status check_cache(const CacheLayout& layout, Element type) const override;
  /// Makes a pool for the plan that was compiled last.
  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override;
  /// Once for the weights of a plan, of which nothing is kept.
  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override;

 protected:
  const Members& members() const { return members_; }
  const GroupCut& cut() const { return *cut_; }
  /// From now on copies of pages are noted here.
  void note_copies(std::shared_ptr<NotedCopies> notes) { notes_ = std::move(notes); }
  /// By member the largest matrix that it was given.
  const std::vector<Weight>& largest() const { return largest_; }

  /// Calls work(i) for each member here at once.
  template <class Work>
  void on_all(const Work& work) {
    threads_.run(static_cast<int>(members_.size()),
                 [&](int i) { work(static_cast<std::size_t>(i)); });
  }

 private:
  std::shared_ptr<const void> kept(GroupWeight weight);
  Status compile(const StepPlan& plan, std::size_t i, std::unique_ptr<CompiledStep>& step);
  void let_go();

  Members members_;
  int first_;
  std::unique_ptr<GroupCut> cut_;
  std::shared_ptr<Executor> host_;
  ThreadPool threads_;  // of each member; they wait for each other
  GroupMachines memory_;
  std::shared_ptr<NotedCopies> notes_;
  // Of plans that were not compiled so far.
  std::vector<std::shared_ptr<GroupWeight>> weights_;
  std::vector<std::shared_ptr<ExpertMatrices>> experts_;
  // Of the last plan that was.
  CacheLayout layout_;
  std::vector<CacheLayout> own_layouts_;
  std::vector<Weight> largest_;
};

}  // namespace subbyte
