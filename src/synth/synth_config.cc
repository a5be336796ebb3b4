#include "synth/synth_config.h"

#include "formats/rotation.h"
#include "json/strict_json.h"
#include "synth/synth_tokenizer.h"

namespace subbyte {
namespace {

using json::Value;

Value quantization_config(const SynthOptions& options) {
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
  if (options.format == "fp8") {
    return {{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"fmt", "e4m3"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", {"lm_head"}}};
  }
  const bool has_vectors = options.format.starts_with("vq");
  if (has_vectors || options.format.starts_with("kbit")) {
    Value config = {{"quant_method", has_vectors ? "vq" : "kbit"},
                    {"bits", options.format.back() - '0'},
                    {"block_size", 32},
                    {"modules_to_not_convert", {"lm_head"}}};
    if (has_vectors) config["rotation"] = kLargestRotation;
    return config;
  }
  return {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert",
       {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
}

}  // namespace

std::string synthetic_config(const ModelShape& shape, int64_t layers, const SynthOptions& options) {
  const SpecialIds ids = special_ids(shape);
  Value config = family_of(shape).config_of(shape, layers);
  config["bos_token_id"] = ids.begin_of_text;
  config["eos_token_id"] = ids.end.front();
  config["pad_token_id"] = ids.padding;
  const bool half = options.format == "awq" || options.format == "gptq";
  config["torch_dtype"] = half ? "float16" : "bfloat16";
  if (options.format != "bf16") config["quantization_config"] = quantization_config(options);
  // In the order of the alphabet, as published.
  return json::to_text(json::sorted(config), 2) + "\n";
}

std::string synthetic_generation_config(const ModelShape& shape) {
  const SpecialIds ids = special_ids(shape);
  Value config = {{"bos_token_id", ids.begin_of_text},
                  {"do_sample", true},
                  {"eos_token_id", ids.end},
                  {"pad_token_id", ids.padding}};
  const ChatFormat chat = preferred_format(family_of(shape).chat);
  if (chat == ChatFormat::kChatMl) {
    config["temperature"] = 0.6;
    config["top_k"] = 20;
    config["top_p"] = 0.95;
  }
  if (chat == ChatFormat::kDatedHeaders) {
    config["temperature"] = 0.6;
    config["top_p"] = 0.9;
  }
  return json::to_text(config, 2) + "\n";
}

}  // namespace subbyte
