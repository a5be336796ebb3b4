// GLM-4.7-Flash: transformers' Glm4MoeLiteForCausalLM. Latent attention; after it the first layer
// has a dense block, the others a mixture whose router takes sigmoids and a bias that only chooses,
// beside an expert that every token goes to.

#include "models/config_keys.h"
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

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "q_lora_rank", kComputed, "", "null: none; absent: 768"),
    SUBBYTE_CONFIG_KEY("", "kv_lora_rank", kComputed, "", "absent: 512"),
    SUBBYTE_CONFIG_KEY("", "qk_nope_head_dim", kComputed, "", "absent: 192"),
    SUBBYTE_CONFIG_KEY("", "qk_rope_head_dim", kComputed, "", "absent: 64"),
    SUBBYTE_CONFIG_KEY("", "v_head_dim", kComputed, "", "absent: 256"),
    SUBBYTE_CONFIG_KEY("", "qk_head_dim", kIgnored, "", "the sum of two others"),
    SUBBYTE_CONFIG_KEY("", "head_dim", kIgnored, "", "qk_rope_head_dim says it"),
    SUBBYTE_CONFIG_KEY("", "num_key_value_heads", kComputed, "", "num_attention_heads"),
    SUBBYTE_CONFIG_KEY("", "rope_interleave", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "n_routed_experts", kComputed, "", "absent: 64"),
    SUBBYTE_CONFIG_KEY("", "num_local_experts", kComputed, "", "n_routed_experts"),
    SUBBYTE_CONFIG_KEY("", "num_experts_per_tok", kComputed, "", "absent: 4"),
    SUBBYTE_CONFIG_KEY("", "moe_intermediate_size", kComputed, "", "absent: 1536"),
    SUBBYTE_CONFIG_KEY("", "n_shared_experts", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("", "routed_scaling_factor", kComputed, "", "absent: 1.8"),
    SUBBYTE_CONFIG_KEY("", "n_group", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("", "topk_group", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("", "norm_topk_prob", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "mlp_layer_types", kComputed, "", "absent: dense, then sparse"),
    SUBBYTE_CONFIG_KEY("", "first_k_dense_replace", kRefused, "1", "mlp_layer_types says it"),
    SUBBYTE_CONFIG_KEY("", "topk_method", kRefused, "\"noaux_tc\"",
                       "another way to choose experts"),
    SUBBYTE_CONFIG_KEY("", "scoring_func", kRefused, "\"sigmoid\"", "other scores of experts"),
    SUBBYTE_CONFIG_KEY("", "moe_layer_freq", kRefused, "1", "dense layers between the others"),
    SUBBYTE_CONFIG_KEY("", "num_nextn_predict_layers", kIgnored, "",
                       "of parts that draft, which are not read"),
    SUBBYTE_CONFIG_KEY("", "num_mtp_layers", kIgnored, "",
                       "of parts that draft, which are not read"),
    SUBBYTE_CONFIG_KEY("", "ep_size", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "aux_loss_alpha", kIgnored, "", "of training"),
    SUBBYTE_CONFIG_KEY("", "seq_aux", kIgnored, "", "of training"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("mscale_all_dim", kComputed, "", "of YaRN; of the scale of scores, too"),
};

Status read(const json::Object& config, ModelConfig& model) {
  LatentConfig latent = {.query_rank = 768, .nope = 192, .value = 256};
  SUBBYTE_CHECK(read_latent(config, model, latent));
  ExpertConfig& experts = latent.experts;
  experts = {.count = 64, .per_token = 4, .inner = 1536, .shared_inner = 1};
  experts.routing = {
      .scores = Routing::Scores::kSigmoid, .added = 1e-20f, .factor = 1.8f, .groups_by_two = true};
  SUBBYTE_CHECK(read_latent_experts(config, "num_local_experts", experts));
  SUBBYTE_TRY(experts.layers, read_mlp_layer_types(config, 1, model.num_layers));
  model.own = FamilyConfig(std::move(latent));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_latent_step(config, config.own.as<LatentConfig>(), step);
}

// Sources: the config.json of zai-org/GLM-4.7-Flash; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, numbers that turn, window, vocabulary,
    //             first added token, positions, tied,
    //             experts, experts of a token, inner of an expert
    {"glm4-moe-lite", "tiny",      256,  512,   2,  4,   4,   32, 0, 512,    480,    2048,   false,
     8, 2, 128},
    {"glm4-moe-lite", "4.7-flash", 2048, 10240, 47, 20,  20,  64, 0, 154880, 154820, 202752, false,
     64, 4, 1536},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  const bool is_tiny = shape.hidden == 256;
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  const LatentConfig latent =
      is_tiny ? LatentConfig{.query_rank = 128, .rank = 128, .nope = 64, .value = 64}
              : LatentConfig{.query_rank = 768, .nope = 192, .value = 256};
  add_latent_shape(shape, latent, config);
  config["n_shared_experts"] = 1;
  config["rope_theta"] = 1000000.0;
  config["routed_scaling_factor"] = 1.8;
  return config;
}

}  // namespace

extern const ModelFamily glm4_moe_lite_family;
const ModelFamily glm4_moe_lite_family = {.model_types = kModelTypes,
                                          .keys = kKeys,
                                          .rope_keys = kRopeKeys,
                                          .read = read,
                                          .record = record,
                                          .shapes = kShapes,
                                          .config_of = config_of};

}  // namespace subbyte
