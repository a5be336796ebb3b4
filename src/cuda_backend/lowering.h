#pragma once
// From the operations of a plan to what is launched: an ordered table of rules, each of which joins
// operations where they have its pattern, so that there are fewer launches.

#include <optional>
#include <span>
#include <vector>

#include "cuda_backend/schedule.h"

namespace subbyte {

/// Steps of so many tokens at most take an expert that every token goes to as one of the mixture
/// beside it. More of them multiply faster apart.
inline constexpr int64_t kMaxJoinedTokens = 3;

/// Steps of so many tokens at most leave the product of b and a to gated delta nets, of which each
/// head reads its weights for each token.
inline constexpr int64_t kMaxGateTokens = 2;

/// A plan on its way, with a launch for each operation; none where another one has taken it in.
struct Lowering {
  Lowering(const StepPlan& plan, int64_t tokens);

  /// The only reader of a value; -1: there are none or several.
  int64_t reader_of(ValueId id) const { return readers[id].size() == 1 ? readers[id][0] : -1; }
  /// The launch of an ExpertsOp, which several rules add to.
  JoinedExperts& experts_at(int64_t op);
  /// Operations that are there (not -1) are not launched by themselves.
  void take_in(std::initializer_list<int64_t> ops);

  const StepPlan& plan;
  int64_t tokens;                             // of the step; 0: any number
  std::vector<std::vector<int64_t>> readers;  // by value
  std::vector<int64_t> producers;             // the same
  std::vector<std::optional<MachineOp>> launches;
};

/// The expert beside a mixture that these experts can take in: nothing else reads what it computes
/// on its way, and its gate is there before them.
JoinedExpert joined_expert(const Lowering& lowering, int64_t op, const ExpertsOp& experts);

/// The product of one dense matrix that gives `y` of `x`, and that `reader` alone reads; -1: none.
int64_t dense_product(const Lowering& lowering, ValueId y, ValueId x, int64_t reader);

/// Attention whose heads of queries each have a gate next to them: the columns of the gates, of all
/// else, RotateOp, AttendOp and the gate of the result, one after the other.
struct GatedHeads {
  ValueId qkv = kNoValue;  // with the gates; none: that is something else
  ValueId y = kNoValue;

  bool is_there() const { return qkv != kNoValue; }
};

/// Those that begin with operation `op`.
GatedHeads gated_heads(const Lowering& lowering, int64_t op);

/// Looks whether operation `op` begins its pattern, and joins what does.
using LoweringRule = void (*)(Lowering& lowering, int64_t op);

/// All of them, in the order in which they are to be used.
std::span<const LoweringRule> lowering_rules();

/// Lowers a plan by `rules`, each of which goes over all of it before the next one.
Schedule lower(const StepPlan& plan, int64_t tokens, std::span<const LoweringRule> rules);

}  // namespace subbyte
