#include "models/latent_config.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
Status read_latent(const json::Object& config, ModelConfig& model, LatentConfig& latent) {
  if (model.num_kv_heads != model.num_heads) {
    return config.error("config.heads", "num_key_value_heads",
                        fmt::format("num_attention_heads ({})", model.num_heads));
  }
  const bool has_none = config.find("q_lora_rank") != nullptr && !config.has("q_lora_rank");
  if (has_none) latent.query_rank = 0;
  SUBBYTE_CHECK(read_keys(config, kLatentKeys, &latent, model));
  SUBBYTE_TRY(const auto interleaves, config.boolean("rope_interleave"));
  SUBBYTE_TRY(const double factor, rope_score_factor(config, model));
  latent.pairs = interleaves.value_or(true) ? RopePairs::kNeighbours : RopePairs::kHalves;
  latent.scale =
      static_cast<float>(factor / std::sqrt(static_cast<double>(latent.nope + model.rope.dim())));
  return {};
}

void record_latent_step(const ModelConfig& config, StepRecorder& step) {
  const LatentConfig& latent = config.own.as<LatentConfig>();
  const StepRecorder::LatentAttention attention = {.heads = config.num_heads,
                                                   .query_rank = latent.query_rank,
                                                   .rank = latent.rank,
                                                   .nope = latent.nope,
                                                   .value = latent.value,
                                                   .scale = latent.scale,
                                                   .rope = step.rope(),
                                                   .pairs = latent.pairs,
                                                   .query_scale = latent.query_scale,
                                                   .has_bias = config.attention_bias,
                                                   .indexer = latent.indexer};
  UsualStep usual;
  usual.first = [&](ValueId h, int64_t layer) {
    StepRecorder::LatentAttention of_layer = attention;
    of_layer.selects = latent.selects.empty() || latent.selects[layer];
    return step.latent_attention(h, of_layer);
  };
  usual.experts = &latent.experts;
  usual.mixture.shared = {.name = "shared_experts", .has_gate = false};
  if (latent.experts.routing.scores == Routing::Scores::kSigmoid) {
    usual.mixture.choice_bias = "gate.e_score_correction_bias";
  }
  record_usual_step(config, step, std::move(usual));
}

}  // namespace subbyte
