#pragma once
// A machine that models run on: the CPU, a GPU. src/backends/ makes them.
//
//   loading    upload...()   weights go to the memory of the machine, in the form of its kernels
//              compile()     takes the operations of a model's step (ops/step_plan.h)
//                            Only these refuse; whatever was taken is served in every step.
//   a step     submit()      enqueues the operations for a batch, and returns at once
//              wait()        waits for the oldest step that was submitted; its first error is what
//                            it returns. A GPU has work all the time where the next step is
//                            submitted before that: steps_in_flight(); stages of a pipeline where
//                            there are several: steps_at_once().
//
// Results of a token do not depend on how many threads there are; in batch-invariant mode they do
// not depend on the other tokens either. One thread at a time uses a backend.

#include <memory>
#include <string>

#include "base/status.h"
#include "ops/batch.h"
#include "ops/machine_memory.h"
#include "ops/step_plan.h"
#include "subbyte/executor.h"

namespace subbyte {

/// A plan in the form of the backend that compiled it.
class CompiledStep {
 public:
  explicit CompiledStep(StepPlan step_plan) : plan_(std::move(step_plan)) {}
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;
  virtual ~CompiledStep() = default;

  const StepPlan& plan() const { return plan_; }

 private:
  StepPlan plan_;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // --- the machine

  /// "amx kernels, 2 threads"
  virtual std::string description() const = 0;
  /// How the last step that was submitted runs, where a backend has several ways: "one kernel", "a
  /// graph", "launches".
  virtual std::string last_step() const { return {}; }
  /// Tokens of a prompt that a step is best given: more keep a larger machine busy, and take room.
  virtual int64_t prompt_chunk() const = 0;
  /// Bytes per second that the machine reads from memory, measured now, on the bytes of `weight`;
  /// 0 when they fit into its caches.
  virtual double measure_read_bandwidth(const Weight& weight) = 0;
  /// The threads of the host, for work beside the operations, such as importing.
  virtual Executor& host() = 0;
  /// nullptr: the machine computes in the memory of the host, where weights may stay in their file.
  virtual MachineMemory* memory() { return nullptr; }

  // --- loading

  /// Code linear.unsupported names what is supported. `bias` [rows] or empty.
  virtual Result<Weight> upload(Matrix matrix, std::vector<float> bias = {}) {
    std::vector<Matrix> one;
    one.push_back(std::move(matrix));
    return upload_joined(std::move(one), std::move(bias));
  }
  /// Matrices with as many columns, whose outputs follow each other: q, k, v; gate, up.
  virtual Result<Weight> upload_joined(std::vector<Matrix> matrices,
                                       std::vector<float> bias = {}) = 0;
  /// A table that need not fit into the memory of the machine: a step looks its rows up in that of
  /// the host (EmbedOp).
  virtual Result<Weight> upload_far(Matrix table) { return upload(std::move(table)); }
  virtual Result<Experts> upload(ExpertMatrices experts) = 0;
  virtual Result<Vector> upload(std::vector<float> numbers) = 0;
  /// Refuses a plan for the kinds of its operations, before weights are loaded: they are handles
  /// without storage so far. Code linear.unsupported.
  virtual Status check_operations(const StepPlan&) const { return {}; }
  /// Refuses caches that make_kv_pool() does not make, before weights are loaded. Code
  /// kv.unsupported.
  virtual Status check_cache(const CacheLayout& layout, Element type) const = 0;
  /// Codes: kv.memory when there is no room for that; that of check_cache.
  virtual Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                                      const CacheSize& size) = 0;
  /// The plan has weights that this backend uploaded. Code linear.unsupported names the operation
  /// and what is supported. The compiled step must not outlive the backend.
  virtual Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) = 0;

  // --- a step

  /// Steps that may be on their way at once: so many may be submitted before the first wait(). With
  /// one every token of a batch is known; with two there may be pending_token(), of a choice that
  /// the step before has.
  virtual int64_t steps_in_flight() const { return 1; }
  /// Steps of different sequences that the machine computes at once, as each of its stages has one:
  /// so many may be submitted before the first wait(). A sequence is in one of them, and all its
  /// tokens are known.
  virtual int64_t steps_at_once() const { return 1; }

  /// `step` was compiled here. The sequences of the batch have room for its tokens
  /// (Sequence::reserve) and know their lengths before them. The sequences must stay until the step
  /// is waited for, all else of the batch until this returns. Errors, want of memory among them,
  /// are those of wait().
  virtual void submit(const CompiledStep& step, const Batch& batch) = 0;

  /// Waits for the oldest step that was submitted and not waited for, of which there is one.
  /// `logits` has its Batch::num_logits() rows then, and a token for each part with a choice: the
  /// one that TokenChooser takes of the same logits.
  virtual Status wait(Logits& logits) = 0;
};

}  // namespace subbyte
