#pragma once
// Latent attention as config.json speaks of it, and the step of families that have it with a
// mixture beside an expert that every token goes to.

#include "models/expert_config.h"
#include "models/model_shape.h"
#include "models/step_recorder.h"

namespace subbyte {

struct LatentConfig {
  int64_t query_rank = 0;  // 0: none
  int64_t rank = 512;
  int64_t nope = 0;
  int64_t value = 0;
  float scale = 1;  // of scores
  RopePairs pairs = RopePairs::kNeighbours;
  QueryScale query_scale = {};
  StepRecorder::Indexer indexer = {};
  std::vector<bool> selects = {};  // by layer, whether it has an indexer; empty: all that do
  ExpertConfig experts = {};

  bool operator==(const LatentConfig&) const = default;
};

/// q_lora_rank, kv_lora_rank, qk_nope_head_dim, v_head_dim and rope_interleave; `latent` has what
/// absent keys mean. The head_dim of the model is what turns of a head (ConfigDefaults), and its
/// rope is read. Codes: config.heads, config.rope, json.*.
Status read_latent(const json::Object& config, const ModelConfig& model, LatentConfig& latent);

/// index_n_heads, index_head_dim and index_topk into `latent.indexer`, which has what absent keys
/// mean. Codes: config.heads where a head turns more than it has, or queries have no rank; json.*.
Status read_indexer(const json::Object& config, const ModelConfig& model, LatentConfig& latent);

/// The step of a family whose own config is a LatentConfig. Routers with sigmoids have a bias that
/// only chooses.
void record_latent_step(const ModelConfig& config, StepRecorder& step);

/// The keys of a shape that both have.
void add_latent_shape(const ModelShape& shape, const LatentConfig& latent, json::Value& config);

}  // namespace subbyte
