#pragma once
// Which layers have experts, as config.json says it, for the configs of families.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "ops/weights.h"

namespace subbyte {

namespace json {
class Object;
}

struct ExpertConfig {
  int64_t count = 0;  // of a layer; 0: none
  int64_t per_token = 0;
  int64_t inner = 0;         // outputs of the gate of one
  std::vector<bool> layers;  // [num_layers]; the others are dense
  RouteWeights weights = RouteWeights::kOfChosen;

  bool operator==(const ExpertConfig&) const = default;
};

/// Layers that have experts: each decoder_sparse_step-th, but for those of mlp_only_layers. As in
/// the reference, a number of which there is no layer says nothing. Codes: json.range,
/// config.mlp_only_layers.
Result<std::vector<bool>> read_expert_layers(const json::Object& config, int64_t num_layers);

}  // namespace subbyte
