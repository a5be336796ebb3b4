#pragma once
// How the tokens of a request are chosen: options, and one stream of random numbers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "json/strict_json.h"
#include "ops/token_choice.h"
#include "subbyte/sampling.h"

namespace subbyte {

/// The wishes of all together, and our own numbers where nobody has any.
struct SamplingOptions {
  double temperature = 0.8;         // 0: always the most likely token (the lowest id on ties)
  int64_t top_k = 40;               // 0: all
  double top_p = 0.95;              // 1: all
  double min_p = 0.05;              // relative to the most likely token; 0: all
  double repetition_penalty = 1.0;  // Keskar et al., "CTRL", 2019; 1: none
  double frequency_penalty = 0;     // for each time that a token was generated; 0: none
  double presence_penalty = 0;      // for tokens that were generated; 0: none
  uint64_t seed = 0;
  std::vector<LogitBias> biases{};  // by their tokens, each once; at most kMaxBiases
};

/// Says whether there is a wish for how tokens are cut: then whatever nobody says of that is
/// neutral.
bool says_how(const Sampling& wishes);
/// These wishes, and those of `next` where there are none.
Sampling or_else(const Sampling& wishes, const Sampling& next);
/// With the values of `rest` for what is not said.
SamplingOptions resolve(const Sampling& wishes, const SamplingOptions& rest);

/// Temperature 1, and no cut: what someone who says a part of it leaves unsaid.
SamplingOptions neutral_sampling();

/// Options for requests that do not say what they are sampled with.
struct SamplingDefaults {
  SamplingOptions alone;  // where a request says nothing of how tokens are cut
  SamplingOptions beside = neutral_sampling();  // what is beside the part that it says

  /// Defaults of a command line and a model: what neither says is our own default, or neutral where
  /// the model says a part of it.
  static SamplingDefaults of(const Sampling& options, const Sampling& model);
  SamplingOptions with(const Sampling& request) const {
    return resolve(request, says_how(request) ? beside : alone);
  }
};

/// Ranges of all fields, once, for every front end. Code sampling.range.
Status check_sampling(const SamplingOptions& options);

/// "temperature 0.6, top-k 20, top-p 0.95, min-p 0, seed 0", with the penalties that there are;
/// "greedy (temperature 0)" where nothing is drawn.
std::string to_string(const SamplingOptions& options);
/// The same as an object: temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty,
/// presence_penalty, seed.
json::Value to_json(const SamplingOptions& options);

class Sampler {
 public:
  /// None of `held_back` is chosen among the first `min_tokens`.
  explicit Sampler(const SamplingOptions& options, int64_t min_tokens = 0,
                   std::span<const int32_t> held_back = {});

  /// How the next token is to be chosen, by a backend: the same until advance(). `history`: what
  /// penalties apply to, the last `num_generated` of which were generated. What the choice points
  /// to stays as long as this.
  TokenChoice choice(std::span<const int32_t> history, int64_t num_generated = 0) const;
  /// How the token after the next one is to be chosen, where has_penalty() is false.
  TokenChoice choice_after(int64_t num_generated) const;
  bool has_penalty() const { return choice({}).has_penalty(); }
  /// The token has been chosen.
  void advance() { uniform_ = random_.uniform(); }

  /// Chooses here, and advances unless that fails. Codes: those of TokenChooser::choose.
  Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> history,
                         int64_t num_generated = 0);

 private:
  SamplingOptions options_;
  int64_t min_tokens_;
  std::vector<LogitBias> first_biases_;  // of the first `min_tokens_`
  Random random_;
  double uniform_;  // of the next choice
  TokenChooser chooser_;
};

}  // namespace subbyte
