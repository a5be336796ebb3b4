#pragma once
// Runs the operations of a step one after the other, each on all threads.

#include <memory>
#include <vector>

#include "cpu_backend/float_buffer.h"
#include "cpu_backend/heads.h"
#include "cpu_backend/kv_memory.h"
#include "cpu_backend/latent_expansion.h"
#include "cpu_backend/weights.h"
#include "exchange/exchange.h"
#include "kernels/cpu/execution.h"
#include "kernels/cpu/linear_pass.h"
#include "ops/backend.h"
#include "ops/value_memory.h"

namespace subbyte {

/// A plan with the memory that its values share, and what each operation may do for the next.
class CpuCompiledStep : public CompiledStep {
 public:
  explicit CpuCompiledStep(StepPlan step_plan);

  const ValueSlots& slots() const { return slots_; }
  /// The weights of the next product after operation i, or of the first one of the next step;
  /// nullptr where they are not known.
  const NextWeights* follows(std::size_t i) const { return follows_[i]; }
  /// Says whether the operation after number i may do what i does as it reads it: a product with
  /// the norm before it, attention with the rotation.
  bool joins_next(std::size_t i) const { return joins_next_[i]; }
  /// Findings of the product of operation i, for the one runner that has this.
  std::shared_ptr<ProductGroup>* kept(std::size_t i) const { return &kept_[i]; }

 private:
  bool is_norm_of_product(std::size_t i) const;
  bool is_rotation_of_attention(std::size_t i) const;

  ValueSlots slots_;
  std::vector<NextWeights> products_;  // by operation; none where it is no product
  std::vector<const NextWeights*> follows_;
  std::vector<bool> joins_next_;
  mutable std::vector<std::shared_ptr<ProductGroup>> kept_;
};

/// Code linear.unsupported names an operation that the runner has no form of, or that exchanges
/// something with other ranks where there are none.
Status check_plan(const StepPlan& plan, const Exchange* exchange);

class StepRunner {
 public:
  /// `exchange` with the other ranks of a group; nullptr: there are none.
  StepRunner(Execution& execution, Exchange* exchange)
      : execution_(execution), exchange_(exchange) {}

  /// Codes: linear.unsupported; those of Exchange.
  Status run(const CpuCompiledStep& step, const Batch& batch);

  /// Logits of the last step: [Batch::num_head_rows()][StepPlan::vocab_size()]. The caller may swap
  /// them for a buffer of its own. Empty where head_parts() says who has them.
  std::vector<float>& logits() { return logits_; }
  /// The parts of the logits that the ranks have; nullptr: this one has all, or there are none.
  const AllGatherOp* head_parts() const { return head_parts_; }
  /// This rank's part [Batch::num_head_rows()][columns], until the next step.
  std::span<const float> own_logits() { return numbers(head_parts_->x); }
  /// The same of what it sends to the next stage.
  std::vector<float>& sent() { return sent_; }

 private:
  void begin(const CpuCompiledStep& step, const Batch& batch);
  void show(const Op& op);
  /// Says whether ranks put the logits together, which is left to RankHead.
  bool gathers_logits(const AllGatherOp& op) const;

  int64_t rows(ValueRows rows) const;
  int64_t rows_of(ValueId id) const { return rows(plan_->value(id).rows); }
  /// The numbers of a value, [rows][cols].
  std::span<float> numbers(ValueId id);
  /// A product for each matrix of `weight`; their results lie side by side in the rows of y.
  std::span<const LinearProduct> products_of(ValueId y, ValueId x, const Weight& weight);
  /// Says whether operation i is left to the one after it: left_norm_, left_rotation_.
  bool is_left(const CpuCompiledStep& step, std::size_t i);
  RotatedRows rotated_rows(const RotateOp& op);
  /// Attention of one token of each part, with the rotation that was left to it.
  void attend_tokens(const AttendOp& op, const RotateOp& rotation);
  /// linear_pass() with the norm that was left to it, and with the product that follows.
  Status multiply(std::span<const LinearProduct> products, LinearPass pass, AfterPart after);
  /// The head rows of a value: all of it, or copies.
  std::span<float> head_rows(ValueId id, FloatBuffer& copies);
  const KvMemory& memory(const CacheSlot& slot) const {
    return pool_->groups()[slot.group].memory().of_rank(exchange_ == nullptr ? 0
                                                                             : exchange_->rank());
  }
  const CpuKvMemory& cache(const CacheSlot& slot) const {
    return static_cast<const CpuKvMemory&>(memory(slot));
  }
  /// The parts of the batch with the states of a layer.
  std::vector<StatePart> states(const CacheSlot& slot) const;
  Element element() const { return pool_->type(); }
  /// Says whether attention of a part makes keys and values of every head from latents: by the part
  /// alone, and never where results may not depend on how a prompt is cut.
  bool expands(const LatentSizes& latent, const Part& part) const;
  /// Rows of the batch that follow each other and are alike in that.
  struct Rows {
    int64_t first = 0;
    int64_t count = 0;
    bool are_expanded = false;
  };
  std::vector<Rows> rows_of_latents(const LatentSizes& latent) const;
  Status multiply_heads(const HeadsLinearOp& op, int64_t first, int64_t rows);
  void move_heads(const HeadsLinearOp& op, int64_t first, int64_t rows);
  /// Zeros, where results of attention over expanded latents are shorter than rows have room for.
  static void clear_unused(const LatentSizes& latent, const AttentionPart& part);

#define SUBBYTE_RUN(Kind) Status run(const Kind& op);
  SUBBYTE_OPERATIONS(SUBBYTE_RUN)
#undef SUBBYTE_RUN

  Execution& execution_;
  Exchange* exchange_;
  std::vector<FloatBuffer> slots_;  // later steps use them again
  std::vector<float> logits_;       // a value, too
  FloatBuffer head_x_, head_delta_;
  FloatBuffer sums_;      // that threads make beside a product, in turns with the slot of their x
  FloatBuffer heads_;     // [heads][rows][inputs]
  FloatBuffer gathered_;  // of all ranks
  std::vector<float> sent_;
  std::vector<LinearProduct> products_;  // of the operation that runs
  // Of the step that runs.
  const StepPlan* plan_ = nullptr;
  const ValueSlots* slots_of_values_ = nullptr;
  const Batch* batch_ = nullptr;
  const KvPool* pool_ = nullptr;
  const AllGatherOp* head_parts_ = nullptr;
  const NextWeights* next_ = nullptr;  // after the operation that runs
  std::shared_ptr<ProductGroup>* kept_ = nullptr;
  const AddNormOp* left_norm_ = nullptr;  // which the next operation is to make
  const RotateOp* left_rotation_ = nullptr;
  std::vector<int32_t> tokens_;                // of all parts
  std::vector<int64_t> positions_;             // of each of them
  std::vector<bool> are_long_;                 // whether the text of each of them is
  std::vector<std::vector<RowPlace>> places_;  // the same, by group of the cache
};

}  // namespace subbyte
