#include "models/config_defaults.h"

#include <algorithm>
#include <iterator>

namespace subbyte {
namespace {

constexpr ConfigDefaults kQwen3 = {.model_type = "qwen3",
                                   .kv_heads = 32,
                                   .head_dim = 128,
                                   .max_positions = 32768,
                                   .rms_norm_eps = 1e-6,
                                   .rope_theta = 10000,
                                   .rope_scaling = {},
                                   .attention_bias = false,
                                   .sliding = SlidingRule::kFromLayer,
                                   .sliding_window = 4096,
                                   .first_sliding_layer = 28};

constexpr ConfigDefaults kQwen3Moe = {.model_type = "qwen3_moe",
                                      .kv_heads = 4,
                                      .head_dim = 0,
                                      .max_positions = 32768,
                                      .rms_norm_eps = 1e-6,
                                      .rope_theta = 10000,
                                      .rope_scaling = {},
                                      .attention_bias = false,
                                      .sliding = SlidingRule::kAll,
                                      .sliding_window = 4096,
                                      .first_sliding_layer = 0};

constexpr ConfigDefaults kGptOss = {.model_type = "gpt_oss",
                                    .kv_heads = 8,
                                    .head_dim = 64,
                                    .max_positions = 131072,
                                    .rms_norm_eps = 1e-5,
                                    .rope_theta = 150000,
                                    .rope_scaling = {.type = RopeScaling::Type::kYarn,
                                                     .factor = 32,
                                                     .original_max_positions = 4096,
                                                     .truncate = false},
                                    .attention_bias = true,
                                    .sliding = SlidingRule::kEvenLayers,
                                    .sliding_window = 128,
                                    .first_sliding_layer = 0};

constexpr const ConfigDefaults* kAll[] = {&kQwen3, &kQwen3Moe, &kGptOss};

}  // namespace

const ConfigDefaults* find_defaults(std::string_view model_type) {
  const auto* const found = std::ranges::find_if(
      kAll, [&](const ConfigDefaults* one) { return one->model_type == model_type; });
  return found == std::end(kAll) ? nullptr : *found;
}

}  // namespace subbyte
