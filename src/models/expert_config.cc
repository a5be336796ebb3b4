#include "models/expert_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "json/strict_json.h"
#include "models/layer_lists.h"
#include "models/model_config.h"

namespace subbyte {

Status read_experts(const json::Object& config, const ModelConfig& model, const ExpertKeys& keys,
                    ExpertConfig& experts) {
  const auto read = [&](std::string_view names, int64_t max, int64_t& number) -> Status {
    SUBBYTE_TRY(const auto key, name_of(config, names));
    if (number == 0) {
      SUBBYTE_TRY(number, config.required_integer(key, 1, max));
      return {};
    }
    SUBBYTE_TRY(const auto given, config.integer(key, 1, max));
    number = given.value_or(number);
    return {};
  };
  SUBBYTE_CHECK(read(keys.count, kMaxExperts, experts.count));
  SUBBYTE_CHECK(read(keys.per_token, experts.count, experts.per_token));
  if (keys.inner.empty()) {
    experts.inner = model.intermediate_size;
  } else {
    SUBBYTE_CHECK(read(keys.inner, kMaxWidth, experts.inner));
  }
  experts.layers.assign(static_cast<std::size_t>(model.num_layers), true);
  if (experts.per_token <= experts.count) return {};
  SUBBYTE_TRY(const auto count, name_of(config, keys.count));
  SUBBYTE_TRY(const auto per_token, name_of(config, keys.per_token));
  return config.error("config.experts", per_token,
                      fmt::format("at most {} ({})", count, experts.count));
}

Result<std::vector<bool>> read_expert_layers(const json::Object& config, int64_t num_layers) {
  SUBBYTE_TRY(const auto step, config.integer("decoder_sparse_step", 1, num_layers + 1));
  std::vector<bool> layers(static_cast<std::size_t>(num_layers));
  for (int64_t i = 0; i < num_layers; ++i) layers[i] = (i + 1) % step.value_or(1) == 0;
  SUBBYTE_TRY(const auto dense, read_layer_numbers(config, "mlp_only_layers", num_layers));
  for (int64_t i = 0; i < num_layers; ++i) layers[i] = layers[i] && !dense[i];
  return layers;
}

Result<std::vector<bool>> read_layers_after(const json::Object& config, std::string_view key,
                                            int64_t absent, int64_t num_layers) {
  SUBBYTE_TRY(const auto given, config.integer(key, 0, num_layers));
  const int64_t dense = std::min(given.value_or(absent), num_layers);
  std::vector<bool> layers(static_cast<std::size_t>(num_layers), true);
  std::fill_n(layers.begin(), dense, false);
  return layers;
}

Result<std::vector<bool>> read_mlp_layer_types(const json::Object& config, int64_t dense,
                                               int64_t num_layers) {
  std::vector<bool> layers(static_cast<std::size_t>(num_layers), true);
  std::fill_n(layers.begin(), std::min(dense, num_layers), false);
  constexpr std::string_view kKinds[] = {"dense", "sparse"};
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, "mlp_layer_types", kKinds, num_layers));
  if (kinds) layers.assign(kinds->begin(), kinds->end());
  return layers;
}

Status read_routing(const json::Object& config, ExpertConfig& experts) {
  Routing& routing = experts.routing;
  SUBBYTE_TRY(const auto groups, config.integer("n_group", 1, Routing::kMaxGroups));
  routing.groups = static_cast<int32_t>(groups.value_or(routing.groups));
  SUBBYTE_TRY(const auto top_groups, config.integer("topk_group", 1, routing.groups));
  routing.top_groups = static_cast<int32_t>(top_groups.value_or(routing.top_groups));
  if (routing.top_groups > routing.groups) {
    return config.error("config.experts", "n_group",
                        fmt::format("at least the {} groups of topk_group", routing.top_groups));
  }
  SUBBYTE_TRY(const auto normalises, config.boolean("norm_topk_prob"));
  routing.normalises = normalises.value_or(routing.normalises);
  SUBBYTE_TRY(const auto factor, config.number("routed_scaling_factor", 1e-6, 1e6));
  routing.factor = static_cast<float>(factor.value_or(double{routing.factor}));
  if (experts.count % routing.groups != 0) {
    return config.error("config.experts", "n_group",
                        fmt::format("a divisor of {} experts", experts.count));
  }
  if (routing.top_groups * (experts.count / routing.groups) < experts.per_token) {
    return config.error("config.experts", "topk_group",
                        fmt::format("groups of {} experts of a token", experts.per_token));
  }
  return {};
}

Status read_routed_experts(const json::Object& config, const ModelConfig& model,
                           ExpertConfig& experts, std::string_view count) {
  SUBBYTE_CHECK(read_experts(config, model, {.count = count}, experts));
  SUBBYTE_CHECK(read_routing(config, experts));
  SUBBYTE_TRY(const auto shared, config.integer("n_shared_experts", 1, kMaxExperts));
  experts.shared_inner = shared.value_or(experts.shared_inner) * experts.inner;
  return {};
}

}  // namespace subbyte
