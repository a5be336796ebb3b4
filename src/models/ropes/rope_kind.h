#pragma once
// Kinds of rotary embeddings: each is a function from what config.json says to frequencies and a
// factor, in a file of its own.

#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "json/strict_json.h"
#include "ops/rope.h"

namespace subbyte {

struct RopeInput {
  const json::Object& config;
  const json::Object& section;  // rope_parameters or rope_scaling
  int64_t dim = 0;              // numbers of a head that turn
  double theta = 0;
  int64_t max_positions = 0;  // max_position_embeddings
  int64_t head_dim = 0;

  std::vector<double> frequencies() const { return rope_frequencies(dim, theta); }
};

struct ScaledRope {
  Rope rope;
  /// The positions that it reaches, where these may be more than max_position_embeddings.
  int64_t positions = 0;

  bool operator==(const ScaledRope&) const = default;
};

struct RopeKind {
  std::string_view name;  // rope_type
  /// Codes config.rope, json.*.
  Result<ScaledRope> (*read)(const RopeInput& input);
};

/// Nothing is scaled.
Result<ScaledRope> read_plain_rope(const RopeInput& input);
/// All frequencies divided by a factor.
Result<ScaledRope> read_linear_rope(const RopeInput& input);
/// Peng et al., "YaRN", 2023.
Result<ScaledRope> read_yarn_rope(const RopeInput& input);
/// Frequencies that make few turns within the original positions are divided.
Result<ScaledRope> read_turns_rope(const RopeInput& input);

/// Frequencies of a whole head, of which those beyond the part that turns are 0.
Result<ScaledRope> read_proportional_rope(const RopeInput& input);

/// Ding et al., "LongRoPE", 2024: a factor for each frequency, and others for long texts.
Result<ScaledRope> read_long_rope(const RopeInput& input);

/// The factor that must be there.
Result<double> required_rope_factor(const json::Object& section);

/// The original positions stand in the section, or beside it, where they count.
Result<std::optional<double>> original_positions(const RopeInput& input);

}  // namespace subbyte
