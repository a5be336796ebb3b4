#include "models/latent_config.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSelected = 1 << 16;    // places in a list of each token; real ones have 2,048
constexpr int64_t kMaxIndexHeads = 1 << 12;  // real ones have 64
constexpr int64_t kMaxSelectable = 1 << 24;  // positions, which lists have as float32

}  // namespace

Status read_latent(const json::Object& config, const ModelConfig& model, LatentConfig& latent) {
  const auto read = [&](const char* key, int64_t& size) -> Status {
    SUBBYTE_TRY(const auto given, config.integer(key, 1, kMaxWidth));
    size = given.value_or(size);
    return {};
  };
  if (model.num_kv_heads != model.num_heads) {
    return config.error("config.heads", "num_key_value_heads",
                        fmt::format("num_attention_heads ({})", model.num_heads));
  }
  const bool has_none = config.find("q_lora_rank") != nullptr && !config.has("q_lora_rank");
  if (has_none) latent.query_rank = 0;
  SUBBYTE_CHECK(read("q_lora_rank", latent.query_rank));
  SUBBYTE_CHECK(read("kv_lora_rank", latent.rank));
  SUBBYTE_CHECK(read("qk_nope_head_dim", latent.nope));
  SUBBYTE_CHECK(read("v_head_dim", latent.value));
  SUBBYTE_TRY(const auto interleaves, config.boolean("rope_interleave"));
  SUBBYTE_TRY(const double factor, rope_score_factor(config, model));
  latent.pairs = interleaves.value_or(true) ? RopePairs::kNeighbours : RopePairs::kHalves;
  latent.scale =
      static_cast<float>(factor / std::sqrt(static_cast<double>(latent.nope + model.rope.dim())));
  return {};
}

Status read_indexer(const json::Object& config, const ModelConfig& model, LatentConfig& latent) {
  StepRecorder::Indexer& indexer = latent.indexer;
  const auto read = [&](const char* key, int64_t max, int64_t& size) -> Status {
    SUBBYTE_TRY(const auto given, config.integer(key, 1, max));
    size = given.value_or(size);
    return {};
  };
  constexpr const char* kHeadDim = "index_head_dim";
  SUBBYTE_CHECK(read("index_n_heads", kMaxIndexHeads, indexer.heads));
  SUBBYTE_CHECK(read(kHeadDim, kMaxWidth, indexer.head_dim));
  SUBBYTE_CHECK(read("index_topk", kMaxSelected, indexer.top));
  if (indexer.head_dim < model.rope.dim()) {
    return config.error("config.heads", kHeadDim,
                        fmt::format("at least qk_rope_head_dim ({})", model.rope.dim()));
  }
  if (model.max_positions > kMaxSelectable) {
    return config.error("json.range", "max_position_embeddings",
                        fmt::format("at most {} where an indexer selects", kMaxSelectable));
  }
  if (latent.query_rank > 0) return {};
  return config.error("config.heads", "q_lora_rank", "a rank, which the indexer reads");
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

void add_latent_shape(const ModelShape& shape, const LatentConfig& latent, json::Value& config) {
  config.erase("head_dim");
  config["q_lora_rank"] = nullptr;
  if (latent.query_rank > 0) config["q_lora_rank"] = latent.query_rank;
  config["kv_lora_rank"] = latent.rank;
  config["qk_nope_head_dim"] = latent.nope;
  config["qk_rope_head_dim"] = shape.head_dim;
  config["v_head_dim"] = latent.value;
  config["n_routed_experts"] = shape.experts;
  config["num_experts_per_tok"] = shape.per_token;
  config["moe_intermediate_size"] = shape.expert_size;
  config["n_group"] = latent.experts.routing.groups;
  config["topk_group"] = latent.experts.routing.top_groups;
  config["norm_topk_prob"] = latent.experts.routing.normalises;
}

}  // namespace subbyte
