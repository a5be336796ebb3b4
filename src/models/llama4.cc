// Llama 4 (Scout, Maverick), the text: transformers' Llama4ForCausalLM. Three of four layers turn
// neighbours, normalise heads without a weight after it, and see chunks; in the others nothing
// turns, and queries grow with their positions. Some or all layers are mixtures whose weights
// multiply what experts read, beside an expert that every token goes to.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/layer_lists.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "llama4_text",
                                      .architecture = "Llama4ForCausalLM",
                                      .wrapper = "llama4",
                                      .defaults = {.intermediate_size = 8192,
                                                   .vocab = 202048,
                                                   .heads = 40,
                                                   .kv_heads = 8,
                                                   .head_dim = 128,
                                                   .max_positions = 131072,
                                                   .rms_norm_eps = 1e-5,
                                                   .rope_theta = 500000,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kOfFamily}}};

struct Own {
  ExpertConfig experts;
  std::vector<bool> turning;  // [num_layers]
  bool has_head_norms = true;
  QueryScale query_scale;  // of layers that do not turn

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("llama4", "boi_token_id eoi_token_id", kIgnored, "",
                       "of parts that see, which are not read"),
    SUBBYTE_CONFIG_KEY("llama4_text", "intermediate_size", kComputed, "",
                       "of an expert; absent: 8192"),
    SUBBYTE_CONFIG_NUMBER(ModelConfig, "llama4_text", "intermediate_size_mlp", intermediate_size,
                          16384, 1, kMaxWidth, "of layers without experts"),
    SUBBYTE_CONFIG_KEY("llama4_text", "num_local_experts", kComputed, "", "absent: 16"),
    SUBBYTE_CONFIG_KEY("llama4_text", "num_experts_per_tok", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("llama4_text", "moe_layers", kComputed, "",
                       "layers with experts; absent: by interleave_moe_layer_step"),
    SUBBYTE_CONFIG_KEY("llama4_text", "interleave_moe_layer_step", kComputed, "",
                       "experts are in the last of so many layers; absent: 1"),
    SUBBYTE_CONFIG_FLAG(Own, "llama4_text", "use_qk_norm", has_head_norms, true,
                        "of heads that turn"),
    SUBBYTE_CONFIG_KEY("llama4_text", "no_rope_layers", kComputed, "",
                       "1: heads of the layer turn; absent: by no_rope_layer_interval"),
    SUBBYTE_CONFIG_KEY("llama4_text", "no_rope_layer_interval", kComputed, "",
                       "heads do not turn in the last of so many layers; absent: 4"),
    SUBBYTE_CONFIG_KEY("llama4_text", "attention_chunk_size", kComputed, "",
                       "absent: 8192; null: there are no chunks"),
    SUBBYTE_CONFIG_KEY("llama4_text", "layer_types", kComputed, "",
                       "absent: layers whose heads turn see chunks"),
    SUBBYTE_CONFIG_KEY("llama4_text", "attn_temperature_tuning", kComputed, "",
                       "queries of layers that do not turn grow; absent: true"),
    SUBBYTE_CONFIG_NUMBER(Own, "llama4_text", "floor_scale", query_scale.step, 8192, 1,
                          kMaxPositions, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "llama4_text", "attn_scale", query_scale.beta, 0.1, 0, 1e3, ""),
    SUBBYTE_CONFIG_KEY("llama4_text", "for_llm_compressor", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("llama4_text",
                       "output_router_logits router_aux_loss_coef "
                       "router_jitter_noise",
                       kIgnored, "", "of training"),
};

// What llama.cpp computes with, whatever a file was made of.
constexpr int64_t kGgufChunk = 8192;
constexpr double kGgufBeta = 0.1;
constexpr int64_t kGgufTurning = 4;
constexpr uint64_t kGgufPlainExperts = 128;  // of the one whose heads have no norms
constexpr std::string_view kGgufWindow = "attention.sliding_window";

constexpr GgufKeyRule kGgufKeys[] = {
    {"feed_forward_length", "intermediate_size_mlp"},
    {"expert_feed_forward_length", "intermediate_size"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"interleave_moe_layer_step", "interleave_moe_layer_step"},
    {kGgufWindow, "attention_chunk_size", "", kGgufByFamily},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"rope_freqs", ""},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "feed_forward.experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "feed_forward.experts.down_proj", GgufChange::kExperts},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
};

/// Rows of heads lie in files as they turn. A window of 0 says that there are no chunks and that no
/// query grows, of models without experts (MobileLLM).
Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_TRY(const auto window, gguf_integer(model.keys(), kGgufWindow));
  if (window.value_or(kGgufChunk) != kGgufChunk) {
    return model.keys().error("gguf.value", "llama4." + std::string(kGgufWindow),
                              fmt::format("{}, the size of chunks", kGgufChunk));
  }
  config["attention_chunk_size"] = kGgufChunk;
  config["attn_temperature_tuning"] = true;
  config["attn_scale"] = kGgufBeta;
  config["floor_scale"] = kGgufChunk;
  config["no_rope_layer_interval"] = kGgufTurning;
  config["use_qk_norm"] = config["num_local_experts"] != json::Value(kGgufPlainExperts);
  return add_turns_rope(model, "llama3", config);
}

constexpr GgufArchitecture kGguf[] = {{.name = "llama4",
                                       .model_type = "llama4_text",
                                       .gating = 2,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .biases = kUsualGgufBiases}};

constexpr RopeKind kRopeKinds[] = {{"llama3", read_turns_rope}};

/// "chunked_attention" or "full_attention" of each layer; absent: those that turn see chunks.
Status read_chunks(const json::Object& config, const Own& own, ModelConfig& model) {
  constexpr const char* kChunk = "attention_chunk_size";
  constexpr const char* kTypes = "layer_types";
  constexpr std::string_view kKinds[] = {"full_attention", "chunked_attention"};
  SUBBYTE_TRY(const auto chunk, config.integer(kChunk, 1, kMaxPositions));
  const bool is_null = config.find(kChunk) != nullptr && !chunk;
  const int64_t size = is_null ? 0 : chunk.value_or(8192);
  for (std::size_t i = 0; i < own.turning.size(); ++i) {
    model.windows[i] = own.turning[i] ? size : 0;
  }
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, kTypes, kKinds, model.num_layers));
  for (int64_t i = 0; kinds && i < model.num_layers; ++i) {
    model.windows[i] = (*kinds)[i] == 1 ? size : 0;
    if ((*kinds)[i] == 0 || size > 0) continue;
    return config.error("config.layer_types", kTypes,
                        "\"full_attention\", or \"chunked_attention\" beside a size of chunks");
  }
  return {};
}

/// Layers that have experts.
Result<std::vector<bool>> read_mixtures(const json::Object& config, int64_t num_layers) {
  SUBBYTE_TRY(const auto step, config.integer("interleave_moe_layer_step", 1, kMaxPositions));
  if (config.has("moe_layers")) return read_layer_numbers(config, "moe_layers", num_layers);
  std::vector<bool> layers(static_cast<std::size_t>(num_layers));
  for (int64_t i = 0; i < num_layers; ++i) layers[i] = (i + 1) % step.value_or(1) == 0;
  return layers;
}

/// true, or a number that is not 0, which older files have.
Result<bool> read_tuning(const json::Object& config) {
  constexpr const char* kKey = "attn_temperature_tuning";
  const json::Value* const found = config.find(kKey);
  if (found != nullptr && found->is_number()) return *found != json::Value(0);
  SUBBYTE_TRY(const auto tunes, config.boolean(kKey));
  return tunes.value_or(true);
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  SUBBYTE_TRY(own.turning, read_turning_layers(config, model.num_layers));
  SUBBYTE_CHECK(read_chunks(config, own, model));
  own.experts = {.count = 16, .per_token = 1, .inner = 8192};
  SUBBYTE_CHECK(read_experts(
      config, model, {.count = "num_local_experts", .inner = "intermediate_size"}, own.experts));
  SUBBYTE_TRY(own.experts.layers, read_mixtures(config, model.num_layers));
  own.experts.shared_inner = own.experts.inner;
  own.experts.routing = {
      .scores = Routing::Scores::kSigmoid, .normalises = false, .weights_inputs = true};
  own.query_scale.first = 1;
  SUBBYTE_TRY(const bool tunes, read_tuning(config));
  if (!tunes) own.query_scale = {};
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  UsualStep usual;
  usual.attention.pairs = RopePairs::kNeighbours;
  usual.gated.prefix = "feed_forward.";
  usual.experts = &own.experts;
  usual.mixture = {.prefix = "feed_forward.", .router = "router", .shared = {.has_gate = false}};
  usual.of_layer = [&own](StepRecorder::Attention& attention, int64_t layer) {
    const bool turns = own.turning[static_cast<std::size_t>(layer)];
    attention.shape.in_chunks = attention.shape.window > 0;
    if (!turns) attention.rope = nullptr;
    if (!turns) attention.query_scale = own.query_scale;
    if (turns && own.has_head_norms) attention.norms = HeadsNorm::kPlainAfterRope;
  };
  record_usual_step(config, step, std::move(usual));
}

// Sources: the config.json files of meta-llama/Llama-4-Scout-17B-16E and Maverick-17B-128E; tiny is
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"llama4", "tiny", 256, 512, 4, 4, 2, 64, 8, 512, 480, 2048, false, 4, 1, 128},
    {"llama4", "scout", 5120, 16384, 48, 40, 8, 128, 8192, 202048, 200000, 131072, false, 16, 1,
     8192},
    {"llama4", "maverick", 5120, 16384, 48, 40, 8, 128, 8192, 202048, 200000, 131072, false, 128, 1,
     8192},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_chunk_size": "$window", "attn_temperature_tuning": true,
                 "interleave_moe_layer_step": 2, "intermediate_size": "$expert_size",
                 "intermediate_size_mlp": "$intermediate", "moe_intermediate_size": "$none",
                 "num_local_experts": "$experts", "rope_scaling": null, "rope_theta": 500000.0,
                 "use_qk_norm": true})"},
    {"", "scout", R"({"interleave_moe_layer_step": 1})"},
    {"", "maverick", R"({"use_qk_norm": false})"},
};

}  // namespace

const ModelFamily llama4_family = {.model_types = kModelTypes,
                                   .gguf = kGguf,
                                   .keys = kKeys,
                                   .rope_kinds = kRopeKinds,
                                   .read = read_own<Own, kKeys, read_rest>,
                                   .record = record,
                                   .shapes = kShapes,
                                   .shape_keys = kShapeKeys};

}  // namespace subbyte
