#pragma once
// Tokens chosen from logits where these are: the same ones as TokenChooser's (ops/token_choice.h),
// by the arithmetic of base/token_weight.h. Weights are integers, so the order in which threads add
// them changes nothing.
//
// Tokens have a place: the order of the logit in the high half, ~token in the low one. Larger
// places come first; no two are equal.
//
//   scan     chunks of 256 logits, with biases and penalties: the best place of each
//   weigh    the weight of all tokens, where a row has no top_k
//   choose   a CTA for each choice. As many chunks as tokens are wanted have a best place of the
//            last of them or more, so the tokens from that place on hold the wanted ones. They are
//            sorted in shared memory. Where they are too many, or the draw falls outside of them,
//            places are found by bisection over the whole row, some tenths of a millisecond.
//   give     in place of that, where a rank of a group has a part of the logits: the best of them.
//            All ranks then choose among the candidates of all, as of a row of logits.

#include "base/token_weight.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// TokenChoice for the kernels.
struct ChoiceRow {
  double temperature;
  double top_p;
  double min_p;
  double repetition_penalty;
  double frequency_penalty;
  double presence_penalty;
  double uniform;
  int64_t top_k;
  int64_t row;  // of the logits
  // In SampleCall::tokens_of_rows.
  int64_t history_begin;
  int64_t history_size;   // tokens that some penalty applies to
  int64_t num_generated;  // the last so many of them are counted
  int64_t biases_begin;
  int64_t num_biases;  // each a token, and the bits of a float

  /// Says whether logits change at all.
  SUBBYTE_HOST_DEVICE bool has_changes() const { return history_size > 0 || num_biases > 0; }
};

struct SampleCall {
  const float* logits = nullptr;  // [rows][vocabulary]
  int64_t vocabulary = 0;         // at most 2^24
  const ChoiceRow* choices = nullptr;
  const int32_t* tokens_of_rows = nullptr;  // histories and biases of all choices
  int64_t num_choices = 0;
  int64_t first_token = 0;  // whose logit is the first of a row
  const float* names =
      nullptr;                  // [num_choices][vocabulary] tokens whose logits these are; nullptr:
                                // those from first_token on
  bool has_changes = false;     // some choice has
  bool has_all_tokens = false;  // some choice draws, without top_k
  std::byte* scratch = nullptr;  // sample_scratch_bytes(), at a multiple of 8
  int32_t* tokens = nullptr;     // [num_choices]; -1 where the logits are not finite
};

/// Most tokens that give() gives of a part.
inline constexpr int64_t kMaxGivenCandidates = 1024;

/// Best tokens of a part of the logits, best first, for a choice among those of all parts: as many
/// as the choice may fall on, and then -infinity. Where a logit is NaN or +infinity, all are NaN.
struct CandidatesCall {
  SampleCall of;            // a part; its `tokens` are not written
  int64_t count = 0;        // given of each choice, which is greedy or has a top_k up to that
  float* logits = nullptr;  // [num_choices][stride], of which `count` are written
  float* tokens = nullptr;  // likewise: whole numbers
  int64_t stride = 0;
};

int64_t sample_scratch_bytes(const SampleCall& call);

/// Errors are left to cudaGetLastError().
void run_sample(const SampleCall& call, Stream stream);
void run_candidates(const CandidatesCall& call, Stream stream);

}  // namespace subbyte::cuda
