#pragma once
// How far logits of a golden model may be from its reference, which was computed in f32, too.
//
// A sum of K products of which none stands out: partial sums grow with the square root of their
// number, and every addition rounds its partial sum by at most u = 2^-24 of it, up or down. So the
// sum is off by u sqrt(K / 2) of its size, in whatever order it is added; that of the reference is
// off as much, and their difference by
//
//   u sqrt(K)
//
// An input that is rounded to within e of itself is off by e / sqrt(3) in the mean, and so is a sum
// of many such products, however many. Errors of different sums are independent: their squares add
// up over all that follow each other from the embedding to the logits. Norms keep them, as they
// divide all of a token by the same number; what a layer adds to the stream is smaller than the
// stream, so that counting every sum in full allows for softmax, SiLU and the exponential, which
// round by a few u. A short convolution is a sum of its taps.
//
// A state of a gated delta net is a sum over the tokens, each of which rounds it twice, as it
// decays and as it is added to; what is read of it is a sum over a key, twice; queries and keys are
// divided by sums of their squares, results by a sum of theirs. The reference has five sums over
// chunks of 64 tokens and four over a key in their place. The mean of both counts, as each side's
// error is its own.
//
//   relative error r = sqrt(u^2 * (sum of all K) + (number of products) * e^2 / 3)
//
// The largest of N errors that are normally distributed is sqrt(2 ln N) times their root mean
// square. The bound is twice that, and a model is held to it in decibels with the same factor.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>

#include "backends/backends.h"
#include "models/model.h"
#include "models/tensor_spec.h"

namespace subbyte::testing {

inline constexpr double kGoldenFactor = 2;

/// What a product rounds: inputs by e of themselves.
struct Rounding {
  double e = 0;
  bool in_attention = false;  // queries, keys and values, too
};

/// What an instruction set rounds of a prompt, or of one token (docs/kernels/accuracy.md, "What is
/// rounded").
inline Rounding rounding_of(std::string_view isa, Activations activations, bool is_prompt) {
  constexpr double kPeak = 4;  // the largest of some 100 numbers over their root mean square
  constexpr double kBoth = std::numbers::sqrt2;  // weights are rounded as inputs are
  const bool has_dots = isa == "avx512vnni" || isa == "avx512bf16";
  const bool has_bytes = isa == "avx2" || (is_prompt && has_dots);
  if (activations == Activations::kInt8 && has_bytes) return {kPeak / 254};
  if (is_prompt && activations != Activations::kF32) {
    if (isa == "amx") return {kBoth * 0x1p-8, true};
    if (isa == "avx512bf16") return {kBoth * 0x1p-8};
    if (isa == "avx512vnni") return {kPeak * 0x1p-14};
  }
  if (isa == "amx" && is_prompt) return {kBoth * 0x1p-17, true};
  if (isa == "scalar" || isa == "avx512") return {};
  return {kPeak * 0x1p-22};
}

/// The terms of the sums of a gated delta net, with its convolution and its output projection.
inline int64_t delta_net_terms(const DeltaNetShape& shape, int64_t tokens) {
  constexpr int64_t kChunk = 64;
  const int64_t here = 2 * tokens + 4 * shape.key_size + shape.value_size;
  const int64_t there = 5 * kChunk + 4 * shape.key_size + shape.value_size;
  return (here + there) / 2 + shape.taps + shape.value_width();
}

/// The same of a block of Mamba 2: its states have sums over the tokens as those of delta nets,
/// which are read once, and the reference has three sums over chunks in their place.
inline int64_t mamba_terms(const MambaShape& shape, int64_t tokens) {
  const int64_t here = 2 * tokens + shape.state_size;
  const int64_t there = 3 * tokens + shape.state_size;  // its chunks are longer than most texts
  return (here + there) / 2 + shape.taps + shape.width() / shape.norm_groups + shape.width();
}

/// The root mean square of the error of the logits over theirs: r above.
inline double relative_error(const ModelConfig& config, int64_t tokens, const Rounding& rounding) {
  const int64_t heads = config.num_heads * config.head_dim;
  const auto stack = expert_stack_of(config);  // of gate and up
  const int64_t mlp = stack ? stack->rows / 2 : config.intermediate_size;
  const int64_t attention = config.head_dim + tokens;  // scores, then values
  const StepPlan plan = *plan_of(config);
  const auto nets = ops_of<DeltaNetOp>(plan);
  const auto convs = ops_of<ShortConvOp>(plan);
  const auto mambas = ops_of<MambaOp>(plan);
  const auto attentions = std::ssize(ops_of<AttendOp>(plan));
  const int64_t terms =
      config.num_layers * (2 * config.hidden_size + mlp) + attentions * (attention + heads) +
      (nets.empty() ? 0 : std::ssize(nets) * delta_net_terms(nets[0]->shape, tokens)) +
      (convs.empty() ? 0 : std::ssize(convs) * (convs[0]->taps + convs[0]->channels)) +
      (mambas.empty() ? 0 : std::ssize(mambas) * mamba_terms(mambas[0]->shape, tokens)) +
      config.hidden_size;
  int64_t products = rounding.in_attention ? 2 * attentions : 0;
  for (const LinearOp* const linear : ops_of<LinearOp>(plan)) products += linear->exact ? 0 : 1;
  products += std::ssize(ops_of<GatedLinearOp>(plan)) + std::ssize(ops_of<HeadsLinearOp>(plan)) +
              2 * std::ssize(ops_of<ExpertsOp>(plan)) + std::ssize(ops_of<LogitsOp>(plan));
  return std::sqrt(0x1p-48 * static_cast<double>(terms) +
                   static_cast<double>(products) * rounding.e * rounding.e / 3);
}

/// The largest difference that any of the logits may have from the reference. `length`: the tokens
/// of the sequence where the reference has only the last of them; 0: it has all.
inline double golden_tolerance(const ModelConfig& config, std::span<const float> reference,
                               const Rounding& rounding, int64_t length = 0) {
  double squares = 0;
  for (const float value : reference) squares += double{value} * value;
  const auto count = static_cast<double>(reference.size());
  const auto tokens = length > 0 ? length : static_cast<int64_t>(count) / config.vocab_size;
  return kGoldenFactor * std::sqrt(2 * std::log(count)) * std::sqrt(squares / count) *
         relative_error(config, tokens, rounding);
}

}  // namespace subbyte::testing
