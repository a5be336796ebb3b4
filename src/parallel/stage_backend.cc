#include "parallel/stage_backend.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/job_threads.h"
#include "exchange/message.h"
#include "parallel/group.h"
#include "parallel/micro_batch.h"
#include "parallel/rank_plan.h"
#include "parallel/stages.h"
#include "parallel/step_message.h"

namespace subbyte {
namespace {

class StageCut : public GroupCut {
 public:
  /// `first`: the stage of the first member here.
  StageCut(int first, int stages, const StageSizes& sizes)
      : first_(static_cast<std::size_t>(first)), num_stages_(stages), sizes_(sizes) {}

  Status cut(const StepPlan& plan) override {
    if (plan.cache.groups.empty()) {
      return Error{"device.stages", "stages are of models that keep something of a text"};
    }
    if (plan.ops.size() == num_ops_) return {};  // as it was when memory was reserved for it
    SUBBYTE_TRY(stages_, stages_of(plan));
    num_ops_ = plan.ops.size();
    return {};
  }
  bool shrinks() override {
    num_ops_ = 0;
    return sizes_.fills_last && --*sizes_.last > 0;
  }
  RankCutter cutter(Backend* backend, std::size_t) const override { return {backend, 0, 1}; }
  Result<StepPlan> plan_of(const StepPlan& plan, std::size_t i,
                           WeightCutter& cutter) const override {
    const StepPlan own = plan_of_stage(plan, stages_[first_ + i]);
    return plan_of_rank(own, undivided(own), 0, cutter);
  }

  int num_stages() const { return num_stages_; }
  /// "layers 0 to 17 on "; empty before a plan is cut.
  std::string place_of(std::size_t i) const {
    return stages_.empty() ? std::string() : to_string(stages_[first_ + i]) + " on ";
  }

 private:
  Result<std::vector<Stage>> stages_of(const StepPlan& plan) {
    if (sizes_.fills_last && !sizes_.last) {
      SUBBYTE_TRY(const std::vector<Stage> all, even_stages(plan, 1));
      sizes_.last = all.front().num_layers;
    }
    if (!sizes_.last) return even_stages(plan, num_stages_);
    auto stages = stages_with_last(plan, *sizes_.last);
    // A border between layers that belong together is none.
    while (!stages.ok() && sizes_.fills_last && --*sizes_.last > 0) {
      stages = stages_with_last(plan, *sizes_.last);
    }
    return stages;
  }

  std::size_t first_;
  int num_stages_;
  StageSizes sizes_;
  std::vector<Stage> stages_;
  std::size_t num_ops_ = 0;  // of the plan that they are of
};

using Exchanges = std::vector<std::shared_ptr<Exchange>>;

/// Stages show their operations at once.
class OneAtATime : public StepObserver {
 public:
  explicit OneAtATime(StepObserver* observer) : observer_(observer) {}
  void observe(const Op& op, ValueId result, std::span<const float> numbers) override {
    const std::lock_guard lock(mutex_);
    observer_->observe(op, result, numbers);
  }

 private:
  StepObserver* observer_;
  std::mutex mutex_;
};

/// A step on its way through the stages here.
struct StageStep {
  const GroupCompiledStep& compiled;
  std::vector<std::byte> batch;  // write_batch()
  std::unique_ptr<OneAtATime> observer;
  std::vector<MicroBatch> pieces;
  Pools pools;
  std::vector<Status> results;  // by member
  NotedCopies copies{};         // before it
  Logits logits{};              // of the last stage
};

class StageGroup : public Group {
 public:
  StageGroup(Members stages, Exchanges exchanges, std::unique_ptr<StageCut> cut,
             std::shared_ptr<Executor> host)
      : Group(std::move(stages), {.size = exchanges.front()->size()}, std::move(cut),
              std::move(host)),
        exchanges_(std::move(exchanges)),
        steps_(members().size(), [this](std::size_t i, StageStep& step) { run(i, step); }) {
    note_copies(copies_);
  }
  ~StageGroup() override {
    // Who waits for a stage that does not come, ends.
    for (std::size_t i = 0; i < exchanges_.size() && steps_.size() > 0; ++i) {
      exchanges_[i]->leave("has ended");
    }
  }

  // --- the machine

  std::string description() const override {
    const auto& stages = static_cast<const StageCut&>(cut());
    std::string text = std::to_string(stages.num_stages()) + " stages: ";
    if (members().size() == 1) text = "one of " + text;
    for (std::size_t i = 0; i < members().size(); ++i) {
      text += (i > 0 ? "; " : "") + stages.place_of(i) + members()[i]->description();
    }
    return text;
  }

  /// As many pieces as stages, where some are CPUs: each costs room for what a step computes. GPUs
  /// have enough in one, and memory for it.
  int64_t prompt_chunk() const override {
    const bool are_gpus = std::ranges::all_of(
        members(), [](const auto& stage) { return stage->memory() != nullptr; });
    return least_chunk() * (are_gpus ? 1 : std::min(num_stages(), kMostChunks));
  }

  /// Stages read what they have one after the other.
  double measure_read_bandwidth(const Weight&) override {
    double bytes = 0;
    double seconds = 0;
    for (std::size_t i = 0; i < members().size(); ++i) {
      const Weight& own = largest()[i];
      if (own.storage == nullptr) continue;
      const double found = members()[i]->measure_read_bandwidth(own);
      if (found <= 0) return 0;
      bytes += static_cast<double>(own.bytes);
      seconds += static_cast<double>(own.bytes) / found;
    }
    return seconds > 0 ? bytes / seconds : 0;
  }

  // --- a step

  int64_t steps_at_once() const override { return num_stages(); }

  void submit(const CompiledStep& step, const Batch& batch) override {
    MessageWriter parts;
    write_batch(batch, parts);
    auto next = std::make_unique<StageStep>(StageStep{
        .compiled = static_cast<const GroupCompiledStep&>(step),
        .batch = {parts.bytes().begin(), parts.bytes().end()},
        .observer =
            batch.observer == nullptr ? nullptr : std::make_unique<OneAtATime>(batch.observer),
        .pieces = pieces_of(step.plan(), batch),
        .pools = pools_of(batch),
        .results = std::vector<Status>(members().size())});
    next->copies = std::exchange(*copies_, {});  // last: not lost with a step that was not made
    steps_.push(std::move(next));
  }

  /// The error of the stage that has failed first, and not that it was lost to others.
  Status wait(Logits& logits) override {
    const std::unique_ptr<StageStep> done = steps_.pop();
    Status first;
    for (Status& result : done->results) {
      if (result.ok()) continue;
      if (first.ok() || first.error().code == "exchange.lost") first = std::move(result);
    }
    SUBBYTE_CHECK(first);
    logits = std::move(done->logits);
    return {};
  }

 private:
  static constexpr std::size_t kLeastPiece = 128;  // tokens: fewer read the weights for too little
  static constexpr std::size_t kPiecesOfStage = 2;
  static constexpr int kMostChunks = 4;

  int num_stages() const { return static_cast<const StageCut&>(cut()).num_stages(); }

  int64_t least_chunk() const {
    int64_t least = members().front()->prompt_chunk();
    for (const auto& stage : members()) least = std::min(least, stage->prompt_chunk());
    return least;
  }

  /// The pools of the stages, which any group of the cache knows.
  static const Pools& pools_of(const Batch& batch) {
    const KvPool& pool = batch.parts.front().sequence->pool();
    return static_cast<const GroupMemory&>(pool.groups().front().memory()).pools();
  }

  /// The same in all processes. States are those of the ends of steps, so that parts with states
  /// stay whole.
  std::vector<MicroBatch> pieces_of(const StepPlan& plan, const Batch& batch) const {
    const auto tokens = static_cast<std::size_t>(batch.num_tokens());
    const std::size_t stages = static_cast<std::size_t>(num_stages());
    const std::size_t piece = std::clamp(tokens / (kPiecesOfStage * stages) + 1, kLeastPiece,
                                         static_cast<std::size_t>(least_chunk()));
    const bool has_states = std::ranges::any_of(plan.cache.groups, &CacheGroup::is_state);
    return micro_batches(batch, piece, !has_states);
  }

  /// What a stage does of a step.
  void run(std::size_t i, StageStep& step) {
    Status& result = step.results[i];
    try {
      for (const NotedCopy& copy : step.copies) copy.on_member(i);
      MessageReader parts(0, step.batch);
      const MirroredBatch whole(parts, (*step.pools)[i]);
      Batch batch = whole.batch();
      batch.observer = step.observer.get();
      result = run_pieces(i, step, batch);
    } catch (const std::bad_alloc&) {
      result = Error{"memory", "not enough memory for a step"};
    } catch (const std::exception& error) {
      result = Error{"device.stages", error.what()};
    }
    if (!result.ok()) exchanges_[i]->leave(result.error().message);
  }

  /// Runs the pieces of a step on a stage, each when the stage before has done it.
  Status run_pieces(std::size_t i, StageStep& step, const Batch& batch) {
    const CompiledStep& compiled = step.compiled.at(i);
    Exchange& others = *exchanges_[i];
    const int stages = others.size();
    const bool is_first = others.rank() == rank_of_stage(0, stages);
    const bool is_last = others.rank() == rank_of_stage(stages - 1, stages);
    int64_t cols = 0;
    for (const ReceiveOp* op : ops_of<ReceiveOp>(compiled.plan())) cols += op->cols;
    std::vector<float> received;
    for (const MicroBatch& piece : step.pieces) {
      if (!is_first) {
        received.resize(num_tokens(piece) * static_cast<std::size_t>(cols));
        SUBBYTE_CHECK(others.receive(received, (others.rank() + stages - 1) % stages));
      }
      const StageBatch own(batch, piece, (*step.pools)[i], is_last, received);
      members()[i]->submit(compiled, own.batch());
      Logits given;
      SUBBYTE_CHECK(members()[i]->wait(given));
      if (is_last) {
        add(std::move(given), step.logits);
      } else {
        SUBBYTE_CHECK(others.send(std::move(given.sent), (others.rank() + 1) % stages));
      }
    }
    return {};
  }

  /// Results of a piece after those before it.
  static void add(Logits given, Logits& all) {
    if (given.vocab_size > 0) all.vocab_size = given.vocab_size;
    if (all.values.empty()) {
      all.values = std::move(given.values);
    } else {
      all.values.insert(all.values.end(), given.values.begin(), given.values.end());
    }
    all.tokens.insert(all.tokens.end(), given.tokens.begin(), given.tokens.end());
  }

  Exchanges exchanges_;  // by member
  std::shared_ptr<NotedCopies> copies_ = std::make_shared<NotedCopies>();
  JobThreads<StageStep> steps_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_stage_backend(std::vector<StageMember> stages,
                                                    const StageSizes& sizes,
                                                    std::shared_ptr<Executor> host) {
  const Exchange& first = *stages.front().exchange;
  auto cut = std::make_unique<StageCut>((first.rank() + first.size() - 1) % first.size(),
                                        first.size(), sizes);
  Members machines;
  Exchanges exchanges;
  for (StageMember& stage : stages) {
    machines.push_back(std::move(stage.machine));
    exchanges.push_back(std::move(stage.exchange));
  }
  try {
    auto group = std::make_unique<StageGroup>(std::move(machines), std::move(exchanges),
                                              std::move(cut), std::move(host));
    if (group->has_threads()) return std::unique_ptr<Backend>(std::move(group));
  } catch (const std::system_error&) {  // of their threads
  }
  return Error{"device.stages", "the system gives no thread for each stage"};
}

}  // namespace subbyte
