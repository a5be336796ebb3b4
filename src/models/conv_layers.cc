#include "models/conv_layers.h"

#include <utility>

#include "models/gguf_config.h"
#include "models/layer_lists.h"

namespace subbyte {

namespace {

constexpr std::string_view kHeads = "attention.head_count_kv";

Result<std::vector<bool>> read_kinds(const json::Object& config, int64_t num_layers) {
  constexpr std::string_view kKinds[] = {"full_attention", "conv"};
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, "layer_types", kKinds, num_layers));
  if (kinds) return std::vector<bool>(kinds->begin(), kinds->end());
  SUBBYTE_TRY(auto layers, read_layer_numbers(config, "full_attn_idxs", num_layers));
  if (config.has("full_attn_idxs")) layers.flip();
  return layers;
}

}  // namespace

Result<ConvLayers> read_conv_layers(const json::Object& config, ModelConfig& model) {
  ConvLayers layers;
  SUBBYTE_TRY(layers.are_conv, read_kinds(config, model.num_layers));
  SUBBYTE_TRY(const auto taps, config.integer("conv_L_cache", 2, kMaxConvTaps));
  SUBBYTE_TRY(const auto biases, config.boolean("conv_bias"));
  SUBBYTE_TRY(const auto eps, config.number("norm_eps", 1e-12, 1.0));
  SUBBYTE_TRY(const auto tied, config.boolean("tie_embedding"));
  layers.taps = taps.value_or(3);
  layers.has_bias = biases.value_or(false);
  model.rms_norm_eps = static_cast<float>(eps.value_or(1e-5));
  model.tie_word_embeddings = tied.value_or(model.tie_word_embeddings);
  return layers;
}

void record_conv_layers(const ModelConfig& config, StepRecorder& step, const ConvLayers& layers,
                        UsualStep usual) {
  usual.names = {.before_first = "operator_norm", .before_second = "ffn_norm"};
  usual.attention.norms = HeadsNorm::kEach;
  usual.attention.q_norm = "q_layernorm";
  usual.attention.k_norm = "k_layernorm";
  usual.attention.output = "out_proj";
  usual.gated.prefix = "feed_forward.";
  usual.gated.gate_name = "w1";
  usual.gated.up = "w3";
  usual.gated.down = "w2";
  usual.logits.norm = "embedding_norm";
  const ShortConvOp conv = {
      .channels = config.hidden_size, .taps = layers.taps, .has_bias = layers.has_bias};
  usual.first = [&, conv](ValueId h, int64_t layer) {
    return layers.are_conv[layer] ? step.mixer(h, "conv.", conv, layers.has_bias) : kNoValue;
  };
  record_usual_step(config, step, std::move(usual));
}

Status add_conv_layers(const GgufModel& model, json::Value& config) {
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto heads, gguf_integers(model.keys(), kHeads, layers));
  for (const int64_t count : heads) {
    config["layer_types"].push_back(count == 0 ? "conv" : "full_attention");
  }
  return {};
}

}  // namespace subbyte
