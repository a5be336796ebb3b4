#pragma once
// Products of a step, whose operations follow each other: with what is before and what is after.

#include <memory>
#include <span>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/next_weights.h"

namespace subbyte {

/// Makes rows [first, first + count) of activations, one after the other: in `room`, for twice as
/// many floats, or elsewhere. Called on any thread, for any rows, more than once; with task 0 on
/// one thread at a time.
using MakeRows = FunctionRef<const float*(int64_t first, int64_t count, int task, float* room)>;

/// Findings of linear_pass() about some products.
class ProductGroup;

struct LinearPass {
  int64_t set_size = 1;
  /// All activations are float32, whatever the execution's precision.
  bool is_exact = false;
  /// Each thread makes the activations itself, of which all products read the same ones. Those of
  /// the products are not read.
  const MakeRows* make_rows = nullptr;
  /// Weights of the product that follows, unless nullptr.
  const NextWeights* next = nullptr;
  /// Findings that stay with the caller, unless nullptr: the same products with other numbers begin
  /// sooner the next time. Their weights outlive it.
  std::shared_ptr<ProductGroup>* kept = nullptr;
};

/// Says whether linear_pass() takes a MakeRows for m rows: few activations, on more threads than
/// one. What each thread makes for itself it does not have to fetch from another. The weights are
/// not rotated, and products read all rows.
bool makes_rows(Execution& execution, int64_t m, int64_t cols);

/// linear_group() with all that; the results are the same bits.
Status linear_pass(Execution& execution, std::span<const LinearProduct> products,
                   const LinearPass& pass, AfterPart after);

/// Does nothing, as linear_group() after a part.
inline constexpr auto kNothingAfter = [](const DonePart&) {};

}  // namespace subbyte
