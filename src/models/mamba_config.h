#pragma once
// Blocks of Mamba 2 as config.json speaks of them, for the configs of families.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/config_keys.h"
#include "models/model_config.h"
#include "models/model_shape.h"
#include "ops/step_plan.h"

namespace subbyte {

inline constexpr int64_t kMaxMambaHeads = 4096;

struct MambaConfig {
  MambaShape shape;
  bool has_conv_bias = true;
  bool has_bias = false;  // of both projections

  MambaOp op() const { return {.shape = shape, .has_bias = has_conv_bias}; }
  bool operator==(const MambaConfig&) const = default;
};

/// Keys of blocks whose heads are as large as mamba_expand says.
inline constexpr ConfigKey kMambaKeys[] = {
    SUBBYTE_CONFIG_NUMBER(MambaConfig, "", "mamba_n_heads", shape.heads, 128, 1, kMaxMambaHeads,
                          ""),
    SUBBYTE_CONFIG_KEY("", "mamba_d_head", kComputed, "", "absent: as mamba_expand says"),
    SUBBYTE_CONFIG_KEY("", "mamba_expand", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_NUMBER(MambaConfig, "", "mamba_n_groups", shape.groups, 1, 1, kMaxMambaHeads,
                          "of B, C and the norm"),
    SUBBYTE_CONFIG_NUMBER(MambaConfig, "", "mamba_d_state", shape.state_size, 256, 1, kMaxMambaSize,
                          ""),
    SUBBYTE_CONFIG_NUMBER(MambaConfig, "", "mamba_d_conv", shape.taps, 4, 1, kMaxMambaTaps,
                          "taps of the filters"),
    SUBBYTE_CONFIG_FLAG(MambaConfig, "", "mamba_conv_bias", has_conv_bias, true, ""),
    SUBBYTE_CONFIG_FLAG(MambaConfig, "", "mamba_proj_bias", has_bias, false, ""),
    SUBBYTE_CONFIG_KEY("", "mamba_chunk_size", kComputed, "", "of the reference: only looked at"),
    SUBBYTE_CONFIG_KEY("", "time_step_limit", kComputed, "", "absent: from 0 on"),
};

/// Those of synthesized models.
inline constexpr ShapeKeys kMambaShape = {
    "", "", R"({"mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
                "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
                "mamba_n_heads": "$hidden/32", "mamba_proj_bias": false})"};

/// Reads kMambaKeys. Codes: json.*, config.mamba for sizes that do not fit together and limits of
/// steps that are no limits.
Result<MambaConfig> read_mamba(const json::Object& config, ModelConfig& model);

/// Checks one whose sizes are read, adds what follows of them, and reads the limits of steps;
/// `names` are those of the keys of heads, of groups, of chunks, which are only looked at, and of
/// the limits.
struct MambaNames {
  std::string_view heads = "mamba_n_heads";
  std::string_view groups = "mamba_n_groups";
  std::string_view chunk = "mamba_chunk_size";
  std::string_view step_limit = "time_step_limit";
};
Status finish_mamba(const json::Object& config, const MambaNames& names, const ModelConfig& model,
                    MambaConfig& mamba);

}  // namespace subbyte
