// Qwen2 and Qwen2.5, and distills of DeepSeek-R1 from them: transformers' Qwen2ForCausalLM.
// Attention by groups, whose queries, keys and values have biases and whose output has none, and a
// gated block, each after an RMS norm; Qwen2-MoE has a mixture of experts in its place, and one
// that every token goes to. The text models of Qwen2-VL and Qwen2.5-VL are dense, and older ones of
// their configs have all keys in one object. Of text all three positions of a rotary embedding by
// sections (mrope) are the same, so that it is the usual one.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ConfigDefaults kOfVision = {.kv_heads = 8,
                                      .max_positions = 32768,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 1000000,
                                      .attention_bias = true,
                                      .eos = 151645,
                                      .sliding = SlidingRule::kFromLayer,
                                      .sliding_window = 4096,
                                      .first_sliding_layer = 80};
constexpr ModelType kModelTypes[] = {{.name = "qwen2",
                                      .architecture = "Qwen2ForCausalLM",
                                      .defaults = {.kv_heads = 32,
                                                   .max_positions = 32768,
                                                   .attention_bias = true,
                                                   .sliding = SlidingRule::kFromLayer,
                                                   .sliding_window = 4096,
                                                   .first_sliding_layer = 28}},
                                     {.name = "qwen2_moe",
                                      .architecture = "Qwen2MoeForCausalLM",
                                      .defaults = {.intermediate_size = 5632,
                                                   .kv_heads = 16,
                                                   .max_positions = 32768,
                                                   .attention_bias = true,
                                                   .sliding = SlidingRule::kFromLayer,
                                                   .sliding_window = 4096,
                                                   .first_sliding_layer = 28}},
                                     {.name = "qwen2_vl_text",
                                      .architecture = "Qwen2VLTextModel",
                                      .wrapper = "qwen2_vl",
                                      .may_be_flat = true,
                                      .defaults = kOfVision},
                                     {.name = "qwen2_5_vl_text",
                                      .architecture = "Qwen2_5_VLTextModel",
                                      .wrapper = "qwen2_5_vl",
                                      .may_be_flat = true,
                                      .defaults = kOfVision}};
constexpr const ModelType& kMoe = kModelTypes[1];
constexpr RopeKind kRopeKinds[] = {{"mrope", read_plain_rope}};
constexpr ChatFormat kChat[] = {ChatFormat::kChatMl, ChatFormat::kDeepSeek};

constexpr GgufKeyRule kGgufKeys[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", GgufChange::kRow},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};

/// Weights of experts do not add up to 1, and biases are seen by their tensors.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["norm_topk_prob"] = false;
  config["qkv_bias"] = model.find("blk.0.attn_q.bias") != nullptr;
  return {};
}

/// Of texts the positions of models that see are the same.
constexpr GgufArchitecture kGguf[] = {{.name = "qwen2", .model_type = "qwen2"},
                                      {.name = "qwen2vl", .model_type = "qwen2"},
                                      {.name = "qwen2moe",
                                       .model_type = "qwen2_moe",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "q, k and v have biases, o has none"),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "qwen2_moe", "qkv_bias", attention_bias, true, ""),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "num_experts", kComputed, "", "absent: 60"),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "num_experts_per_tok", kComputed, "", "absent: 4"),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "moe_intermediate_size", kComputed, "", "absent: 1408"),
    SUBBYTE_CONFIG_NUMBER(ExpertConfig, "qwen2_moe", "shared_expert_intermediate_size",
                          shared_inner, 5632, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_FLAG(ExpertConfig, "qwen2_moe", "norm_topk_prob", routing.normalises, false, ""),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "decoder_sparse_step", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "mlp_only_layers", kComputed, "", "absent: none"),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "layer_types", kComputed, "",
                       "must be there with use_sliding_window"),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "max_window_layers", kIgnored, "", "layer_types says it"),
    SUBBYTE_CONFIG_KEY("qwen2_moe", "transformers_version", kIgnored, "", "who wrote it"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent: 4096 with use_sliding_window"),
    SUBBYTE_CONFIG_KEY("", "use_sliding_window", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("", "max_window_layers", kComputed, "", "absent: 28; of models that see 80"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: what the other keys say"),
    SUBBYTE_CONFIG_KEY("", "transformers_version", kComputed, "",
                       "before 4.53: all layers slide or none does"),
    SUBBYTE_CONFIG_KEY("qwen2_vl qwen2_5_vl", "text_config", kComputed, "",
                       "the config of the text model; older ones have its keys beside the others"),
};

Status read_rest(const json::Object& config, ModelConfig& model, ExpertConfig& experts) {
  if (model.model_type != kMoe.name) return {};
  experts.count = 60;
  experts.per_token = 4;
  experts.inner = 1408;
  SUBBYTE_CHECK(read_experts(config, model, {}, experts));
  SUBBYTE_TRY(const auto slides, config.boolean("use_sliding_window"));
  SUBBYTE_TRY(experts.layers, read_expert_layers(config, model.num_layers));
  if (!slides.value_or(false) || config.has("layer_types")) return {};
  return config.error("config.layer_types", "layer_types", "an array that says which layers slide");
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(
      config, step,
      {.attention = {.has_output_bias = false}, .experts = &config.own.as<ExpertConfig>()});
}

// Sources: the config.json files of Qwen/Qwen2.5-*, Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B; those
// called tiny are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"qwen2", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,  true},
    {"qwen2", "0.5b", 896,  4864,  24, 14, 2, 64,  0, 151936, 151643, 32768, true},
    {"qwen2", "1.5b", 1536, 8960,  28, 12, 2, 128, 0, 151936, 151643, 32768, true},
    {"qwen2", "3b",   2048, 11008, 36, 16, 2, 128, 0, 151936, 151643, 32768, true},
    {"qwen2", "7b",   3584, 18944, 28, 28, 4, 128, 0, 152064, 151643, 32768, false},
    {"qwen2", "14b",  5120, 13824, 48, 40, 8, 128, 0, 152064, 151643, 32768, false},
    {"qwen2", "32b",  5120, 27648, 64, 40, 8, 128, 0, 152064, 151643, 32768, false},
    {"qwen2", "72b",  8192, 29568, 80, 64, 8, 128, 0, 152064, 151643, 32768, false},
    {"qwen2-moe", "tiny", 256, 512, 2, 4, 2, 64, 0, 512, 480, 2048, false, 8, 2, 128},
    {"qwen2-moe", "a2.7b",    2048, 5632,  24, 16, 16, 128, 0, 151936, 151643, 32768, false,
     60, 4, 1408},
    {"qwen2-moe", "57b-a14b", 3584, 18944, 28, 28, 4,  128, 0, 151936, 151643, 32768, false,
     64, 8, 2560},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": "$none", "head_dim": "$none", "max_window_layers": "$layers",
                 "rope_theta": 1000000.0, "sliding_window": "$positions",
                 "use_sliding_window": false})"},
    {"qwen2-moe", "", R"({"model_type": "qwen2_moe", "decoder_sparse_step": 1,
                          "mlp_only_layers": [], "norm_topk_prob": false,
                          "num_experts": "$experts",
                          "shared_expert_intermediate_size": "$expert_size*4"})"},
    {"qwen2-moe", "tiny", R"({"shared_expert_intermediate_size": "$expert_size*2"})"},
    {"qwen2-moe", "57b-a14b", R"({"shared_expert_intermediate_size": "$expert_size*8"})"},
};

}  // namespace

const ModelFamily qwen2_family = {.model_types = kModelTypes,
                                  .gguf = kGguf,
                                  .keys = kKeys,
                                  .rope_kinds = kRopeKinds,
                                  .read = read_own<ExpertConfig, kKeys, read_rest>,
                                  .record = record,
                                  .chat = kChat,
                                  .shapes = kShapes,
                                  .shape_keys = kShapeKeys};

}  // namespace subbyte
