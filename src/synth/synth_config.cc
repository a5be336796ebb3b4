#include "synth/synth_config.h"

#include <nlohmann/json.hpp>

#include "synth/synth_tokenizer.h"

namespace subbyte {
namespace {

using nlohmann::ordered_json;

ordered_json qwen3_config(const ModelShape& shape, int64_t layers) {
  const SpecialIds ids = special_ids(shape);
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", ids.begin_of_text},
          {"eos_token_id", ids.end.front()},
          {"head_dim", shape.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", shape.hidden},
          {"initializer_range", 0.02},
          {"intermediate_size", shape.intermediate},
          {"max_position_embeddings", shape.positions},
          {"max_window_layers", layers},
          {"model_type", "qwen3"},
          {"num_attention_heads", shape.heads},
          {"num_hidden_layers", layers},
          {"num_key_value_heads", shape.kv_heads},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", shape.tied},
          {"use_cache", true},
          {"use_sliding_window", false},
          {"vocab_size", shape.vocabulary}};
}

ordered_json qwen3_moe_config(const ModelShape& shape, int64_t layers) {
  ordered_json config = qwen3_config(shape, layers);
  config["architectures"] = {"Qwen3MoeForCausalLM"};
  config["model_type"] = "qwen3_moe";
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = ordered_json::array();
  config["moe_intermediate_size"] = shape.expert_size;
  config["norm_topk_prob"] = true;
  config["num_experts"] = shape.experts;
  config["num_experts_per_tok"] = shape.per_token;
  config["output_router_logits"] = false;
  config["router_aux_loss_coef"] = 0.001;
  return config;
}

ordered_json gpt_oss_config(const ModelShape& shape, int64_t layers) {
  const SpecialIds ids = special_ids(shape);
  ordered_json types = ordered_json::array();
  for (int64_t i = 0; i < layers; ++i) {
    types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  return {{"architectures", {"GptOssForCausalLM"}},
          {"attention_bias", true},
          {"attention_dropout", 0.0},
          {"eos_token_id", ids.end.front()},
          {"experts_per_token", shape.per_token},
          {"head_dim", shape.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", shape.hidden},
          {"initial_context_length", 4096},
          {"initializer_range", 0.02},
          {"intermediate_size", shape.intermediate},
          {"layer_types", types},
          {"max_position_embeddings", shape.positions},
          {"model_type", "gpt_oss"},
          {"num_attention_heads", shape.heads},
          {"num_experts_per_tok", shape.per_token},
          {"num_hidden_layers", layers},
          {"num_key_value_heads", shape.kv_heads},
          {"num_local_experts", shape.experts},
          {"output_router_logits", false},
          {"pad_token_id", ids.padding},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling",
           {{"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"factor", 32.0},
            {"original_max_position_embeddings", 4096},
            {"rope_type", "yarn"},
            {"truncate", false}}},
          {"rope_theta", 150000},
          {"router_aux_loss_coef", 0.9},
          {"sliding_window", shape.window},
          {"swiglu_limit", 7.0},
          {"tie_word_embeddings", shape.tied},
          {"use_cache", true},
          {"vocab_size", shape.vocabulary}};
}

ordered_json quantization_config(const SynthOptions& options) {
  if (options.format == "awq") {
    return {{"quant_method", "awq"}, {"bits", 4},          {"group_size", options.group_size},
            {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", nullptr}};
  }
  if (options.format == "gptq") {
    return {{"quant_method", "gptq"},
            {"bits", 4},
            {"group_size", options.group_size},
            {"desc_act", false},
            {"sym", false},
            {"lm_head", false},
            {"damp_percent", 0.01},
            {"true_sequential", true},
            {"checkpoint_format", "gptq"},
            {"pack_dtype", "int32"}};
  }
  return {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert",
       {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
}

}  // namespace

std::string synthetic_config(const ModelShape& shape, int64_t layers, const SynthOptions& options) {
  ordered_json config = shape.arch == kGptOss ? gpt_oss_config(shape, layers)
                        : shape.experts == 0  ? qwen3_config(shape, layers)
                                              : qwen3_moe_config(shape, layers);
  const bool half = options.format == "awq" || options.format == "gptq";
  config["torch_dtype"] = half ? "float16" : "bfloat16";
  if (options.format != "bf16") config["quantization_config"] = quantization_config(options);
  return config.dump(2) + "\n";
}

std::string synthetic_generation_config(const ModelShape& shape) {
  const SpecialIds ids = special_ids(shape);
  ordered_json config = {{"bos_token_id", ids.begin_of_text},
                         {"do_sample", true},
                         {"eos_token_id", ids.end},
                         {"pad_token_id", ids.padding}};
  if (shape.arch != kGptOss) {
    config["temperature"] = 0.6;
    config["top_k"] = 20;
    config["top_p"] = 0.95;
  }
  return config.dump(2) + "\n";
}

}  // namespace subbyte
