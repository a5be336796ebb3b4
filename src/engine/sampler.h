#pragma once
// How the tokens of a request are chosen: options, and one stream of random numbers.

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/random.h"
#include "base/status.h"
#include "ops/token_choice.h"

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
  explicit Sampler(const SamplingOptions& options)
      : options_(options), random_(options.seed), uniform_(random_.uniform()) {}

  /// How the next token is to be chosen, by a backend: the same until advance(). `history`: the
  /// tokens that the repetition penalty applies to.
  TokenChoice choice(std::span<const int32_t> history) const;
  /// How the token after the next one is to be chosen, where has_penalty() is false.
  TokenChoice choice_after() const;
  bool has_penalty() const { return options_.repetition_penalty != 1; }
  /// The token has been chosen.
  void advance() { uniform_ = random_.uniform(); }

  /// Chooses here, and advances unless that fails. Codes: those of TokenChooser::choose.
  Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  SamplingOptions options_;
  Random random_;
  double uniform_;  // of the next choice
  TokenChooser chooser_;
};

}  // namespace subbyte
