#pragma once
// How far the predictions of a model are from those of a reference, over the tokens of a text: what
// quantization costs. The numbers are those that llama.cpp prints for a comparison of that kind.

#include <cstdint>
#include <functional>
#include <span>

#include "engine/scored_windows.h"

namespace subbyte {

/// A mean with its standard error: the deviation of the tokens over the root of their number less
/// one.
struct Estimate {
  double value = 0;
  double error = 0;
};

struct Divergence {
  int64_t scored = 0;  // tokens that were predicted
  /// exp of the mean negative log likelihood; the error is that of the mean times the perplexity.
  Estimate perplexity;
  Estimate reference;
  /// perplexity / reference, with the error of the mean difference of their logarithms: the two are
  /// of the same tokens, so it is much smaller than those above.
  Estimate ratio;
  /// Sum of p ln(p / q) over the vocabulary, p of the reference and q of the model, in nats.
  Estimate kl;
  double kl_median = 0;  // interpolated between the sorted values next to it, as the next two are
  double kl_99 = 0;      // that 99 of 100 tokens are below
  double kl_999 = 0;
  double kl_largest = 0;
  Estimate same_top;  // the share of tokens where both find the same one most likely
};

/// Both models read the same tokens, in windows as perplexity() has them. Progress is called with
/// the tokens done, all, and the mean divergence so far.
/// Codes: divergence.vocabulary when the vocabularies have other sizes, those of score_windows().
Result<Divergence> divergence(
    const ScoredModel& model, const ScoredModel& reference, KvType kv_type,
    std::span<const int32_t> tokens, int64_t window,
    const std::function<void(int64_t, int64_t, double)>& progress = nullptr);

}  // namespace subbyte
