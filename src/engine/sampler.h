#pragma once
// Choosing the next token. The order is that of Hugging Face and vLLM: repetition penalty,
// temperature, top-k, top-p, min-p, then one draw.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/status.h"

namespace subbyte {

struct SamplingOptions {
  double temperature = 0.8;         // 0: always the most likely token (the lowest id on ties)
  int64_t top_k = 40;               // 0: all
  double top_p = 0.95;              // 1: all
  double min_p = 0.05;              // relative to the most likely token; 0: all
  double repetition_penalty = 1.0;  // Keskar et al., "CTRL", 2019; 1: none
  uint64_t seed = 0;
};

/// Ranges of all fields, once, for every front end. Code sampling.range.
Status check_sampling(const SamplingOptions& options);

/// The defaults of a model: `defaults`, overridden by what generation_config.json says.
Result<SamplingOptions> read_sampling_defaults(const std::filesystem::path& directory,
                                               const SamplingOptions& defaults);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  /// `history`: the tokens that the repetition penalty applies to.
  /// Code sampling.not_finite when a logit is NaN or +infinity, or all are -infinity.
  Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    int32_t token;
    double value;  // logit, later probability
  };

  /// Fills `largest_`.
  Status scan(std::span<const float> logits);
  /// Makes candidates of tokens among which the `wanted` best are.
  void collect(std::span<const float> logits, std::size_t wanted);
  std::size_t count_occurred(std::span<const int32_t> history, std::size_t vocabulary);
  void penalize(std::span<const float> logits);
  void keep_best(std::size_t wanted);
  void keep_probable();

  SamplingOptions options_;
  Random random_;
  std::vector<float> largest_;  // of each block of logits
  std::vector<int32_t> occurred_;
  std::vector<bool> has_occurred_;  // [token]
  std::vector<Candidate> candidates_;
};

}  // namespace subbyte
