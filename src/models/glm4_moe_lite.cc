// GLM-4.7-Flash: transformers' Glm4MoeLiteForCausalLM. Latent attention; after it the first layer
// has a dense block, the others a mixture whose router takes sigmoids and a bias that only chooses,
// beside an expert that every token goes to.

#include "models/latent_config.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "glm4_moe_lite",
                                      .architecture = "Glm4MoeLiteForCausalLM",
                                      .defaults = {.intermediate_size = 10240,
                                                   .kv_heads = 20,
                                                   .head_dim = 64,
                                                   .head_dim_key = "qk_rope_head_dim",
                                                   .max_positions = 202752,
                                                   .rms_norm_eps = 1e-5,
                                                   .eos = 1}}};

/// Files are those of DeepSeek V3, as which they are read. Their first layers are dense.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_CHECK(add_latent_sizes(model.keys(), config));
  const auto dense = config["first_k_dense_replace"].get<uint64_t>();
  for (uint64_t i = 0; i < config["num_hidden_layers"].get<uint64_t>(); ++i) {
    config["mlp_layer_types"].push_back(i < dense ? "dense" : "sparse");
  }
  config.erase("first_k_dense_replace");
  return {};
}

constexpr GgufArchitecture kGguf[] = {
    latent_gguf("deepseek2", "glm4_moe_lite", complete_gguf, true)};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "mlp_layer_types", kComputed, "", "absent: dense, then sparse"),
    SUBBYTE_CONFIG_KEY("", "first_k_dense_replace", kRefused, "1", "mlp_layer_types says it"),
};

Status read(const json::Object& config, ModelConfig& model) {
  LatentConfig latent = {.query_rank = 768, .nope = 192, .value = 256};
  latent.experts = {.count = 64, .per_token = 4, .inner = 1536, .shared_inner = 1};
  latent.experts.routing = sigmoid_routing(1.8f);
  SUBBYTE_CHECK(read_latent(config, model, latent));
  SUBBYTE_TRY(latent.experts.layers, read_mlp_layer_types(config, 1, model.num_layers));
  model.own = FamilyConfig(std::move(latent));
  return {};
}

// Sources: the config.json of zai-org/GLM-4.7-Flash; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"glm4-moe-lite", "tiny", 256, 512, 2, 4, 4, 32, 0, 512, 480, 2048, false, 8, 2, 128},
    {"glm4-moe-lite", "4.7-flash", 2048, 10240, 47, 20,  20,  64, 0, 154880, 154820, 202752, false,
     64, 4, 1536},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kLatentShape,
    {"", "", R"({"q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256,
                 "routed_scaling_factor": 1.8, "rope_theta": 1000000.0})"},
    kTinyLatentShape,
};

}  // namespace

const ModelFamily glm4_moe_lite_family = {.model_types = kModelTypes,
                                          .gguf = kGguf,
                                          .keys = kKeys,
                                          .shared_keys = {kRoutedExpertKeys, kLatentKeys},
                                          .rope_keys = kLatentRopeKeys,
                                          .read = read,
                                          .record = record_latent_step,
                                          .shapes = kShapes,
                                          .shape_keys = kShapeKeys};

}  // namespace subbyte
