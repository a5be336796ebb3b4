// Qwen3, dense and with experts. Queries and keys are normalised per head before the rotary
// embedding; the feed-forward block is SwiGLU, or a mixture of such experts in the layers that
// config.json says. So are the text models of Qwen3-VL, none of whose layers slides. Reference:
// transformers, models/qwen3, models/qwen3_moe, models/qwen3_vl and models/qwen3_vl_moe.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .defaults = {.kv_heads = 32,
                  .head_dim = 128,
                  .max_positions = 32768,
                  .sliding = SlidingRule::kFromLayer,
                  .sliding_window = 4096,
                  .first_sliding_layer = 28}},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .defaults = {.kv_heads = 4,
                  .max_positions = 32768,
                  .sliding = SlidingRule::kAll,
                  .sliding_window = 4096}},
    {.name = "qwen3_vl_text",
     .architecture = "Qwen3VLTextModel",
     .wrapper = "qwen3_vl",
     .defaults = {.kv_heads = 32, .head_dim = 128, .max_positions = 128000, .rope_theta = 500000}},
    {.name = "qwen3_vl_moe_text",
     .architecture = "Qwen3VLMoeTextModel",
     .wrapper = "qwen3_vl_moe",
     .defaults = {.kv_heads = 16,
                  .max_positions = 128000,
                  .rope_theta = 500000,
                  .tie_word_embeddings = true}}};
constexpr const ModelType& kDense = kModelTypes[0];
constexpr const ModelType& kMoe = kModelTypes[1];
constexpr const ModelType& kVisionMoe = kModelTypes[3];
constexpr std::string_view kContainers[] = {"ak47", "ak48"};
constexpr ChatFormat kChat[] = {ChatFormat::kChatMl};

constexpr GgufKeyRule kGgufKeys[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob", "true"},
};

constexpr GgufArchitecture kGguf[] = {
    {.name = "qwen3", .model_type = "qwen3"},
    {.name = "qwen3vl", .model_type = "qwen3"},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .keys = kGgufKeys},
    {.name = "qwen3vlmoe", .model_type = "qwen3_moe", .keys = kGgufKeys},
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("qwen3 qwen3_moe", "sliding_window", kComputed, "",
                       "absent: 4096 with use_sliding_window"),
    SUBBYTE_CONFIG_KEY("qwen3 qwen3_moe", "use_sliding_window", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("qwen3", "max_window_layers", kComputed, "", "absent: 28"),
    SUBBYTE_CONFIG_KEY("qwen3", "layer_types", kComputed, "", "absent: what the other keys say"),
    SUBBYTE_CONFIG_KEY("qwen3_moe", "layer_types", kComputed, "", "what the other keys say"),
    SUBBYTE_CONFIG_KEY("qwen3 qwen3_moe", "transformers_version", kComputed, "",
                       "before 4.53: all layers slide or none does"),
    SUBBYTE_CONFIG_KEY("qwen3_moe qwen3_vl_moe_text",
                       "num_local_experts num_experts_per_tok "
                       "moe_intermediate_size",
                       kComputed, "", "must be there"),
    SUBBYTE_CONFIG_KEY("qwen3_moe qwen3_vl_moe_text", "num_experts", kComputed, "",
                       "num_local_experts, older"),
    SUBBYTE_CONFIG_FLAG(ExpertConfig, "qwen3_moe", "norm_topk_prob", routing.normalises, false, ""),
    SUBBYTE_CONFIG_KEY("qwen3_vl_moe_text", "norm_topk_prob", kIgnored, "",
                       "weights of experts always add up to 1"),
    SUBBYTE_CONFIG_KEY("qwen3_vl_text qwen3_vl_moe_text", "sliding_window use_sliding_window",
                       kIgnored, "", "no layer slides"),
    SUBBYTE_CONFIG_KEY("qwen3_moe qwen3_vl_moe_text", "decoder_sparse_step", kComputed, "",
                       "absent: 1"),
    SUBBYTE_CONFIG_KEY("qwen3_moe qwen3_vl_moe_text", "mlp_only_layers", kComputed, "",
                       "absent: none"),
    SUBBYTE_CONFIG_KEY("qwen3_moe", "max_window_layers", kIgnored, "",
                       "all layers slide or none does"),
    SUBBYTE_CONFIG_KEY("qwen3_moe", "attention_chunk_size", kRefused, "", "a cache that forgets"),
};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(
      config, step,
      {.attention = {.norms = HeadsNorm::kEach}, .experts = &config.own.as<ExpertConfig>()});
}

Status read_rest(const json::Object& config, ModelConfig& model, ExpertConfig& experts) {
  if (model.model_type != kMoe.name && model.model_type != kVisionMoe.name) return {};
  SUBBYTE_CHECK(read_experts(config, model, {.count = "num_local_experts num_experts"}, experts));
  SUBBYTE_TRY(experts.layers, read_expert_layers(config, model.num_layers));
  return {};
}

// Sources: the config.json files of Qwen/Qwen3-*; those called tiny are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"qwen3",     "tiny",      256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,  false},
    {"qwen3",     "0.6b",      1024, 3072,  28, 16, 8, 128, 0, 151936, 151643, 40960, true},
    {"qwen3",     "1.7b",      2048, 6144,  28, 16, 8, 128, 0, 151936, 151643, 40960, true},
    {"qwen3",     "4b",        2560, 9728,  36, 32, 8, 128, 0, 151936, 151643, 40960, true},
    {"qwen3",     "8b",        4096, 12288, 36, 32, 8, 128, 0, 151936, 151643, 40960, false},
    {"qwen3",     "14b",       5120, 17408, 40, 40, 8, 128, 0, 151936, 151643, 40960, false},
    {"qwen3",     "32b",       5120, 25600, 64, 64, 8, 128, 0, 151936, 151643, 40960, false},
    {"qwen3-moe", "tiny", 256, 512, 2, 4, 2, 64, 0, 512, 480, 2048, false, 8, 2, 128},
    {"qwen3-moe", "30b-a3b",   2048, 6144,  48, 32, 4, 128, 0, 151936, 151643, 40960, false,
     128, 8, 768},
    {"qwen3-moe", "235b-a22b", 4096, 12288, 94, 64, 4, 128, 0, 151936, 151643, 40960, false,
     128, 8, 1536},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"max_window_layers": "$layers", "rope_scaling": null, "rope_theta": 1000000,
                 "sliding_window": null, "use_sliding_window": false})"},
    {"qwen3-moe", "", R"({"model_type": "qwen3_moe", "decoder_sparse_step": 1,
                          "mlp_only_layers": [], "norm_topk_prob": true,
                          "num_experts": "$experts", "output_router_logits": false,
                          "router_aux_loss_coef": 0.001})"},
};

}  // namespace

const ModelFamily qwen3_family = {.model_types = kModelTypes,
                                  .containers = kContainers,
                                  .gguf = kGguf,
                                  .keys = kKeys,
                                  .read = read_own<ExpertConfig, kKeys, read_rest>,
                                  .record = record,
                                  .chat = kChat,
                                  .shapes = kShapes,
                                  .shape_keys = kShapeKeys};

}  // namespace subbyte
