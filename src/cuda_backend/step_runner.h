#pragma once
// Runs the steps of a GPU: chooses how a step of a plan runs for its batch, and launches it on one
// stream.
//
//   up to eight single tokens, where there is a kernel   programs, and launches between them
//   single tokens, the same step as before               a graph of the launches
//   all others                                           launches

#include <map>
#include <string>

#include "cuda_backend/attention.h"
#include "cuda_backend/choices.h"
#include "cuda_backend/delta_net.h"
#include "cuda_backend/experts.h"
#include "cuda_backend/linear.h"
#include "cuda_backend/step_graphs.h"
#include "cuda_backend/step_programs.h"
#include "cuda_backend/steps_in_flight.h"
#include "kernels/cuda/exchange/peer_group.h"
#include "ops/backend.h"

namespace subbyte {

/// A plan, the memory that its values share, and what steps of it are.
class CudaCompiledStep : public CompiledStep {
 public:
  /// `id`: of no other step of the backend.
  CudaCompiledStep(StepPlan step_plan, int64_t id)
      : CompiledStep(std::move(step_plan)),
        id_(id),
        slots_(assign_slots(plan())),
        kinds_(attention_kinds(plan())),
        has_16bit_latents_(subbyte::has_16bit_latents(plan())),
        launches_(schedule_launches(plan(), true)),
        observed_(schedule_launches(plan(), false)) {}

  int64_t id() const { return id_; }
  const ValueSlots& slots() const { return slots_; }
  /// The different ones.
  const std::vector<AttentionKind>& kinds() const { return kinds_; }
  bool has_16bit_latents() const { return has_16bit_latents_; }
  const Schedule& launches() const { return launches_; }
  /// Every result is stored.
  const Schedule& observed() const { return observed_; }
  /// Made when it is first asked for.
  const Schedule& programs(int64_t tokens, bool attends, const cuda::Device& device) const;

 private:
  int64_t id_;
  ValueSlots slots_;
  std::vector<AttentionKind> kinds_;
  bool has_16bit_latents_;
  Schedule launches_, observed_;
  mutable std::map<std::pair<int64_t, bool>, Schedule> programs_;
};

/// Memory that a step works in, in bytes. Upper bounds: what kernels really take depends on the
/// batch.
struct CudaWorkspace {
  int64_t tensors = 0;   // of the step, with tokens, tasks, logits and choices
  int64_t products = 0;  // activations in the order of a kernel
  int64_t results = 0;   // of products that are gated or converted afterwards
  int64_t partials = 0;  // of attention
  int64_t programs = 0;  // of steps that are one kernel
  int64_t experts = 0;   // routes, and what is between the products
  int64_t delta_nets = 0;
  int64_t expansion = 0;  // of latents

  int64_t sum() const {
    return tensors + products + results + partials + programs + experts + delta_nets + expansion;
  }
};

/// Bytes of a number of a value.
constexpr int64_t value_bytes(ValueType type) {
  return type == ValueType::kFloat ? 4 : 2;
}

struct StepRunnerOptions {
  bool batch_invariant = false;
  bool mxfp8_experts = false;
  bool fp8_activations = false;
  int step_kernel_tokens = 0;  // 0: no programs
  bool step_graphs = true;
  cuda::PeerGroup peers = {};  // this GPU alone, or the ranks of a group
};

class CudaStepRunner {
 public:
  CudaStepRunner(const cuda::Device& device, cuda::Number number, const StepRunnerOptions& options,
                 cuda::Stream stream);

  /// Code linear.unsupported names an operation that has no kernels; the weights need not be there.
  static Status check_operations(const StepPlan& plan);
  /// The same of a plan with its weights.
  Status check(const StepPlan& plan) const;

  /// Says whether a step may have programs, which follows from the batch and from options of all
  /// ranks.
  bool may_have_programs(const Batch& batch) const;
  /// Counts the sums over ranks of such a step, as Schedule::exchanges().
  int64_t exchanges_of_programs(const CudaCompiledStep& step, const Batch& batch) const;

  /// Takes memory for a step, which launch() enqueues afterwards: nothing waits for other ranks so
  /// far. `by_programs`: it has them, on all ranks. Codes: cuda.*.
  Status prepare(const CudaCompiledStep& step, const Batch& batch, bool by_programs);
  /// `results` are where the operations of the step leave them. Codes: cuda.*.
  Status launch(StepResults& results);

  /// How the last step ran, see Backend::last_step().
  std::string last_step() const;

  /// Kernels of products, which say what weights they take.
  CudaProducts& products() { return products_; }
  CudaMoe& mixture() { return moe_; }

  /// The memory that steps of a plan work in, up to `size`; its weights need not be there.
  CudaWorkspace workspace(const StepPlan& plan, const StepSize& size) const;
  /// So that such steps allocate nothing. Code cuda.memory.
  Status reserve(const CudaWorkspace& workspace);
  int64_t device_bytes() const;

 private:
  /// Refuses what the ranks cannot exchange.
  Status check_exchange(const StepPlan& plan, const Op& op) const;
  /// Puts what the stage before has sent into the memory of its values.
  Status receive(const Batch& batch);
  /// Finds what the next stage reads.
  const std::vector<SentValue>& sent() const;
  Status take_sent();
  const Schedule& programs_of(const CudaCompiledStep& step, const Batch& batch) const;
  bool attends(const CudaCompiledStep& step, const Batch& batch) const;
  Status take_values();
  Status begin_graph(const CudaCompiledStep& step);
  Status run_items(const Schedule& schedule);
  Status bind_programs(const CudaCompiledStep& step, const Schedule& schedule);
  template <class Item>
  Status run_item(const Item& item);
  Status run_item(const ScheduledProgram& program);
  Status launch(const PlanLaunch& item);
  Status launch(const SummedNorm& item);
  Status launch(const RoutedNorm& item);
  Status launch(const ReducedNorm& item);
  Status launch(const JoinedNorms& item);
  Status launch(const JoinedExperts& item);
  Status launch(const DeltaNetWithGates& item);
  Status launch(const TokenAttention& item);
  /// Says whether this step is of a few single tokens that may have attention as one kernel, that
  /// of the kernel of a step; of more of them.
  bool attends_tokens() const;
  bool attends_batch() const;
  Status show(const Op& op);

  /// Launches operations by themselves that others have not taken in after all.
  Status launch_apart(std::initializer_list<int64_t> ops);

  template <class Kind>
  const Kind& plan_op(int64_t op) const {
    return *plan_->as<Kind>(op);
  }
  /// Without what is added, and with it.
  cuda::AddNormCall norm_call(const AddNormOp& op) const;
  cuda::AddNormCall add_norm_call(const AddNormOp& op) const;
  cuda::JoinedNormsCall joined_norms_call(const JoinedNorms& item) const;
  cuda::NormTerm norm_term(ValueId id, int64_t norm, int64_t experts) const;
  Status launch_experts(const ExpertsOp& op, const JoinedExperts& joined);
  /// HeadsLinearOp for some rows: its product, or copies where latents are expanded.
  void multiply_heads(const HeadsLinearOp& op, int64_t first, int64_t rows);
  void move_heads(const HeadsLinearOp& op, int64_t first, int64_t rows);
  /// Logits of the gate of an expert that every token goes to; nullptr: it has none.
  const float* gate_of(const SigmoidGateOp& op) const {
    return op.gate == kNoValue ? nullptr : floats(op.gate);
  }
  cuda::RouterCall router_call(const ExpertsOp& op, const JoinedRouter& joined) const;
  CudaSharedExpert shared_expert(const JoinedExpert& joined) const;
  int64_t rows_of(ValueId id) const {
    return plan_->value(id).rows == ValueRows::kTokens ? step_.num_tokens() : step_.num_head_rows();
  }
  std::byte* at(ValueId id) const { return pointers_[slots_->slot_of[id]]; }
  /// A row of activations.
  std::byte* row_at(ValueId id, int64_t row) const {
    return at(id) + row * plan_->value(id).cols * value_bytes(ValueType::kActivation);
  }
  float* floats(ValueId id) const { return reinterpret_cast<float*>(at(id)); }
  CudaRows activations(ValueId id) const { return {at(id), rows_of(id), plan_->value(id).cols}; }
  Element element() const { return cuda::element_of(number_); }

#define SUBBYTE_LAUNCH(Kind) Status launch(const Kind& op);
  SUBBYTE_OPERATIONS(SUBBYTE_LAUNCH)
#undef SUBBYTE_LAUNCH

  cuda::Device device_;
  cuda::Number number_;
  StepRunnerOptions options_;
  cuda::Stream stream_;
  CudaStep step_;
  CudaProducts products_;
  CudaMoe moe_;
  CudaBuffer partials_;   // of attention
  CudaBuffer expansion_;  // of latents
  CudaBuffer received_{pinned_step_memory()};
  std::vector<SentValue> sent_;  // as floats
  CudaAttention attention_;
  CudaDeltaNets delta_nets_;
  StepPrograms programs_;
  StepGraphs graphs_;
  CudaChoices choices_;
  // Of the step that runs.
  const CudaCompiledStep* compiled_ = nullptr;
  const Schedule* schedule_ = nullptr;
  const StepPlan* plan_ = nullptr;
  const ValueSlots* slots_ = nullptr;
  const Batch* batch_ = nullptr;
  SlotPointers pointers_;
  cuda::RoutedSum routes_;  // of the last experts
  StepResults results_;
  std::size_t num_programs_run_ = 0;
  bool has_expanded_ = false;     // latents
  bool attends_at_once_ = false;  // all by programs and TokenAttention, without tasks
  /// Circumstances that the tables of programs on the GPU are bound to.
  struct Bound {
    int64_t step = -1;
    int64_t tokens = 0;
    bool attends = false;
    const void* cache = nullptr;
    uint64_t epoch = 0;
    SlotPointers pointers;

    bool operator==(const Bound&) const = default;
  };
  Bound bound_;
};

}  // namespace subbyte
