#pragma once
// Rates of a loaded model: decode of some sequences in one step, prefill of a prompt.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "models/model.h"

namespace subbyte::bench {

struct DecodeRun {
  int64_t sequences = 1;
  int64_t context = 128;  // tokens of each before the first step that is measured
  int64_t steps = 256;    // of a round, a token for each sequence
  int rounds = 5;         // each begins with the same context
  int64_t in_flight = 2;  // steps; 1: the host submits the next when it knows the tokens
};

/// Medians: the rate over rounds, the times over all steps.
struct DecodeFigures {
  double tokens_per_second = 0;
  double step_seconds = 0;
  double submit_seconds = 0;  // of the host, for the launches of a step
  double wait_seconds = 0;    // of the host, for tokens
  double bytes = 0;           // weights, keys and values that a step reads, in the mean of a round
  std::string ran_as;         // Backend::last_step()
};

/// Greedy: each sequence goes on with its most likely token, which the backend chooses. The cache
/// is f16. Codes: those of Model::make_kv_pool and Model::forward; sampling.not_finite.
Result<DecodeFigures> measure_decode(const Model& model, Backend& backend, const DecodeRun& run);

struct PrefillRun {
  int64_t tokens = 4096;
  int64_t chunk = 4096;  // tokens of a step
  int rounds = 5;
};

/// Tokens per second up to the one chosen after the last, the median over the rounds. Codes: those
/// of Model::make_kv_pool and Model::forward.
Result<double> measure_prefill(const Model& model, Backend& backend, const PrefillRun& run);

}  // namespace subbyte::bench
