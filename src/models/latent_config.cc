#include "models/latent_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/gguf_config.h"
#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

/// The number of six digits that a key of F32 was made of, where there is one.
double mscale_of(double log) {
  constexpr double kSixDigits = 1e6;
  const double said = log / kLatentYarnLog;
  const double rounded = std::round(said * kSixDigits) / kSixDigits;
  return static_cast<float>(kLatentYarnLog * rounded) == static_cast<float>(log) ? rounded : said;
}

}  // namespace

Status read_latent(const json::Object& config, ModelConfig& model, LatentConfig& latent,
                   std::string_view count) {
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
  return read_routed_experts(config, model, latent.experts, count);
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

Status add_latent_sizes(const GgufFile& file, json::Value& config) {
  SUBBYTE_TRY(const auto turning, gguf_integer(file, "rope.dimension_count"));
  const bool are_apart = file.find(gguf_key_in(file, "attention.key_length_mla")) != nullptr;
  SUBBYTE_TRY(const auto keys,
              gguf_integer(file, are_apart ? "attention.key_length_mla" : "attention.key_length"));
  SUBBYTE_TRY(const auto values, gguf_integer(file, are_apart ? "attention.value_length_mla"
                                                              : "attention.value_length"));
  if (!turning || !keys || !values || *turning < 1 || *keys <= *turning || *values < 1) {
    return file.error("gguf.value", gguf_key_in(file, "attention.key_length_mla"),
                      "a size above that of rope.dimension_count, beside value_length_mla");
  }
  config["qk_nope_head_dim"] = static_cast<uint64_t>(*keys - *turning);
  config["v_head_dim"] = static_cast<uint64_t>(*values);
  config["num_key_value_heads"] = config["num_attention_heads"];
  config.erase("head_dim");
  SUBBYTE_TRY(const auto log, gguf_number(file, "rope.scaling.yarn_log_multiplier"));
  if (log && *log != 0 && config.contains("rope_scaling")) {
    json::Value& section = config["rope_scaling"];
    section["mscale"] = section["mscale_all_dim"] = mscale_of(*log);
  }
  return {};
}

void add_latent_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model,
                          GgufKeys& keys) {
  const LatentConfig& latent = model.own.as<LatentConfig>();
  const ExpertConfig& experts = latent.experts;
  const bool has_sigmoids = experts.routing.scores == Routing::Scores::kSigmoid;
  const auto dense = std::ranges::find(experts.layers, true) - experts.layers.begin();
  for (const auto& [name, number] :
       {std::pair<std::string_view, int64_t>("expert_gating_func", has_sigmoids ? 2 : 1),
        {"attention.head_count_kv", 1},
        {"attention.key_length", latent.rank + model.head_dim},
        {"attention.value_length", latent.rank},
        {"attention.key_length_mla", latent.nope + model.head_dim},
        {"attention.value_length_mla", latent.value},
        {"leading_dense_block_count", dense},
        {"expert_shared_count", experts.shared_inner / std::max<int64_t>(1, experts.inner)},
        {"expert_group_count", experts.routing.groups},
        {"expert_group_used_count", experts.routing.top_groups}}) {
    keys.whole(architecture.key(name), static_cast<uint32_t>(number));
  }
}

}  // namespace subbyte
