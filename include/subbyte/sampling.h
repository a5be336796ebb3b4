#pragma once
// How tokens are chosen.

#include <cstdint>
#include <optional>
#include <vector>

#include "subbyte/version.h"

SUBBYTE_BEGIN_NAMESPACE

using TokenId = int32_t;

/// An amount that is added to the logit of a token: finite, or -infinity, and it is never chosen.
struct LogitBias {
  TokenId token = 0;
  float bias = 0;

  bool operator==(const LogitBias&) const = default;
};

/// Wishes of one of those who have a say: a request, the options of a session, the files of a
/// model. What none of them says is the number in the comment; where one of them says temperature,
/// top_k, top_p or min_p, the others of these four are neutral (1, 0, 1, 0) instead.
struct Sampling {
  std::optional<double> temperature = {};         // 0.8; 0: always the most likely token
  std::optional<int64_t> top_k = {};              // 40; 0: all
  std::optional<double> top_p = {};               // 0.95; (0, 1], 1: all
  std::optional<double> min_p = {};               // 0.05; relative to the most likely token, 0: all
  std::optional<double> repetition_penalty = {};  // 1: none; Keskar et al., "CTRL", 2019
  std::optional<double> frequency_penalty = {};   // for each time that a token came; 0: none
  std::optional<double> presence_penalty = {};    // for tokens that came; 0: none
  std::optional<uint64_t> seed = {};              // 0; of sample 0: sample i has that plus i
  std::vector<LogitBias> biases = {};             // each token once; at most 1024
};

SUBBYTE_END_NAMESPACE
