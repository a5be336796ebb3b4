#pragma once
// What a step of a plan is on the GPU: the operations as launches, and, where a few tokens are
// served so, runs of operations as programs of the kernel of a step (kernels/cuda/step/program.h).
// Host arithmetic on the plan and on the forms of its weights, done once for each number of tokens.
//
//   plan        norm   linear   rotate  attend   linear   norm    gated linear   linear   norm ...
//   launches    norm   linear   rotate  attend   linear   norm    gated linear   linear   norm ...
//   programs         [ linear   attention        linear           gated linear   linear       ...
//                      normalises x              adds to x        normalises x   adds to x
//
// A sum over ranks between a product and the norm that adds it is left to that product, too.
//
// A sum of experts is left to the norm that adds it (lowering.h), as a norm and a residual sum are
// left to the products around them in a program.

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cuda_backend/weights.h"
#include "device/experts.h"
#include "kernels/cuda/step/layout.h"
#include "kernels/cuda/step/tensors.h"
#include "ops/value_memory.h"

namespace subbyte {

/// An operation of the plan by its own kernels.
struct PlanLaunch {
  int64_t op = 0;
};

/// A norm of a sum that the product before it has added.
struct SummedNorm {
  int64_t op = 0;
};

/// A norm that adds the routes of experts, and what a sigmoid gate gives beside them.
struct RoutedNorm {
  int64_t op = 0;
  int64_t gated = -1;
};

/// A norm of a sum to which all ranks give a part.
struct ReducedNorm {
  int64_t op = 0;
  int64_t reduce = -1;
};

/// Norms of one token that follow each other as one kernel (kernels/cuda/elementwise/norm.h): of
/// one or two terms, of their sum, and of the stream that it is added to, as several results.
struct JoinedNorms {
  int64_t op = 0;                           // adds to the stream
  std::array<int64_t, 2> terms = {-1, -1};  // norms of them; -1: a term is as it is
  int64_t added = -1;                       // their sum; -1: there is one term
  int64_t of_sum = -1;                      // its norm
  std::vector<int64_t> more;                // norms of the same stream
  int64_t experts = -1;  // whose routes are left to this: what the first norm of a term reads, or
                         // the sum of one term
};

/// The operations of an expert that every token goes to, which is one more of a mixture's.
struct JoinedExpert {
  int64_t gate_up = -1;
  int64_t down = -1;
  int64_t gated = -1;  // weighted by a sigmoid, and added to the mixture's sum

  bool is_there() const { return gated >= 0; }
};

/// The operations between the stream and the choice of experts, which one kernel does for one token
/// (kernels/cuda/experts/router.h) where it has their forms, else each by itself.
struct JoinedRouter {
  int64_t norm = -1;    // of what the router multiplies; -1: it stays apart
  int64_t gate = -1;    // of an expert that every token goes to
  int64_t router = -1;  // -1: all stay apart

  bool is_there() const { return router >= 0; }
};

/// Experts with what is around them.
struct JoinedExperts {
  int64_t op = 0;
  JoinedExpert shared = {};
  JoinedRouter router = {};
  bool leaves_sum = false;  // to the norm that reads the result, which adds the routes
};

/// A gated delta net with the product that gives b and a.
struct DeltaNetWithGates {
  int64_t op = 0;
  int64_t gates = -1;
};

/// Attention of a few single tokens with what turns their heads (kernels/cuda/attention/
/// attend_tokens.h), where one kernel has that of the step, else each by itself.
struct TokenAttention {
  int64_t op = 0;
  int64_t rotate = -1;
};

/// Where a product or an attention of a program finds its input.
struct ProgramInput {
  ValueId value = kNoValue;
  std::optional<cuda::StepTensors::Place> tagged;  // of a write in this program
};

/// The logits of a router, or b and a of a delta net.
struct ProgramRouter {
  int64_t op = 0;
  const CudaMatrix* matrix = nullptr;
  const CudaMatrix* gate = nullptr;  // of an expert that every token goes to, the last row; or none
  int64_t first_cta = 0;
  ProgramInput x;
  const Norm* norm = nullptr;
  std::optional<cuda::StepTensors::Place> result;
};

/// An expert that every token goes to, as one more of those that are chosen.
struct ProgramSharedExpert {
  JoinedExpert ops;
  const CudaMatrix* gate_up = nullptr;  // nullptr: there is none
  const CudaMatrix* down = nullptr;
  const CudaMatrix* gate = nullptr;  // nullptr: its weight is 1
};

/// The chosen experts of a layer, of which each product has a matrix.
struct ProgramExperts {
  int64_t op = 0;
  const device::PackedExperts* matrices = nullptr;
  cuda::StackedExperts stacked;
  ProgramSharedExpert shared;
  std::optional<cuda::StepTensors::Place> logits;  // of gate and up
};

/// A matrix of a linear operation, or of experts.
struct ProgramProduct {
  int64_t op = 0;
  const CudaMatrix* matrix = nullptr;
  std::optional<ProgramExperts> experts;
  int64_t first = 0;  // column of the result
  cuda::Activation activation = cuda::Activation::kNone;
  SwiGLU swiglu = {};
  ProgramInput x;
  const Norm* norm = nullptr;   // of the input
  ValueId y = kNoValue;         // or
  ValueId residual = kNoValue;  // what the result is added to,
  uint32_t exchange = 0;  // as a part of this sum over ranks of the program, from 1 on; 0: all
  std::optional<cuda::StepTensors::Place> result;

  const gpu::PackedFormat& format() const {
    return experts ? experts->matrices->format() : matrix->format();
  }
  /// Those of one expert.
  const cuda::WeightArguments& arguments() const {
    return experts ? experts->matrices->arguments() : matrix->arguments();
  }
  cuda::StackedExperts stacked() const {
    return experts ? experts->stacked : cuda::StackedExperts();
  }
};

struct ProgramAttention {
  int64_t rotate = 0;  // operations
  int64_t attend = 0;
  bool is_gated = false;  // by what lies next to each head of queries
  ProgramInput qkv;
  ValueId y = kNoValue;
  std::optional<cuda::StepTensors::Place> result;
};

struct ProgramDeltaNet {
  int64_t op = 0;
  ProgramInput qkvz, ba;
  ValueId y = kNoValue;
  std::optional<cuda::StepTensors::Place> result;
};

struct ScheduledProgram {
  std::vector<std::variant<ProgramProduct, ProgramAttention, ProgramRouter, ProgramDeltaNet>> ops;
  cuda::StepLayout layout;
  int num_products = 0;
  int64_t kv_heads = 1;       // of its attentions, the most
  int64_t partial_bytes = 0;  // the same
  int32_t key_group = -1;     // of the cache, of its attentions; -1: there are none;
  int32_t state_group = -1;   // and of its delta nets
  uint32_t tags = 0;          // that its tensors take
  uint32_t exchanges = 0;     // sums over ranks
};

/// A machine operation: runs on the GPU as one.
using MachineOp = std::variant<PlanLaunch, SummedNorm, RoutedNorm, ReducedNorm, JoinedNorms,
                               JoinedExperts, DeltaNetWithGates, TokenAttention, ScheduledProgram>;

struct Schedule {
  std::vector<MachineOp> items;

  bool has_programs() const;
  /// Sums over ranks that programs have; -1: there are no programs.
  int64_t exchanges() const;
  /// Says whether an attention of `plan` is launched by itself, which needs tasks then. Where
  /// TokenAttention has no kernel its attention is, too.
  bool launches_attention(const StepPlan& plan) const;
};

/// Launches alone. `joins`: operations are joined by rules (lowering.h) for steps of so many
/// `tokens`; 0: any number. Else each is launched by itself.
Schedule schedule_launches(const StepPlan& plan, bool joins, int64_t tokens = 0);

/// Limits of the programs of a step.
struct ProgramLimits {
  int64_t words = 0;       // tagged floats of a program
  int64_t bytes = 0;       // all programs of a step
  int64_t kv_heads = 0;    // of an attention
  int64_t max_inputs = 0;  // of a product, times the tokens, with more than one token
  int64_t max_summed = 0;  // numbers of a sum over ranks
};

/// Programs for `tokens` single tokens, and launches between them. `attends`: the cache has the
/// type of activations. Without programs where the device has no such kernel, where a product has
/// too many inputs, or where a layer that keeps a state, a mixture of experts, attention beside one
/// kind of these, or what ranks exchange has no form in a program: then programs are short and
/// graphs of launches faster. `slots`: of the plan.
Schedule schedule_programs(const StepPlan& plan, const ValueSlots& slots, int64_t tokens,
                           bool attends, const cuda::Device& device, const ProgramLimits& limits);

/// For people: a line for each launch, and for each operation of a program.
std::string to_string(const Schedule& schedule, const StepPlan& plan);

/// The table of a program in the memory of the GPU has so many bytes.
int64_t program_bytes(const ScheduledProgram& program);

}  // namespace subbyte
