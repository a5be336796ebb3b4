#pragma once
// Blocks of Mamba 2 as config.json speaks of them, for the configs of families.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/step_plan.h"

namespace subbyte {

namespace json {
class Object;
}
struct ModelConfig;

struct MambaConfig {
  MambaShape shape;
  bool has_conv_bias = true;
  bool has_bias = false;  // of both projections

  bool operator==(const MambaConfig&) const = default;
};

/// The names of the keys in a family, and what absent ones mean.
struct MambaKeys {
  const char* heads = "mamba_n_heads";
  const char* head_size = "mamba_d_head";
  const char* groups = "mamba_n_groups";
  const char* state_size = "mamba_d_state";
  const char* taps = "mamba_d_conv";
  const char* chunk = "mamba_chunk_size";
  const char* conv_bias = "mamba_conv_bias";
  const char* bias = "mamba_proj_bias";
  const char* step_limit = "time_step_limit";
  /// Absent, or "auto", the size of a head is so many times hidden_size divided by the heads, and
  /// nothing else may be said; nullptr: it is by itself.
  const char* expand = "mamba_expand";
  int64_t absent_head_size = 0;  // without `expand`
  int64_t absent_groups = 1;
  int64_t absent_state_size = 256;
};

/// Codes: json.*, config.mamba for sizes that do not fit together and limits of steps that are no
/// limits.
Result<MambaConfig> read_mamba(const json::Object& config, const MambaKeys& keys,
                               const ModelConfig& model);

}  // namespace subbyte
