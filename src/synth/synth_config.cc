#include "synth/synth_config.h"

#include "checkpoints/config/exported_config.h"
#include "json/strict_json.h"
#include "synth/synth_tokenizer.h"

namespace subbyte {
namespace {

using json::Value;

/// Of a model whose modules all are `kept` or as the format says.
Value quantization_config(const SyntheticWeights& weights, int64_t group_size) {
  const auto& [exporter, format] = weights;
  if (format->config != nullptr) return format->config(group_size);
  ExportedModule module = {"", {.format = format->format}};
  if (format->format.group_size == 0) module.shape.format.group_size = group_size;
  return exporter->config({.modules = {module}, .kept = {"lm_head"}, .kv_cache = {}}).section;
}

}  // namespace

std::string synthetic_config(const ModelShape& shape, int64_t layers, const SynthOptions& options) {
  const SpecialIds ids = special_ids(shape);
  Value config = shape_config(family_of(shape), shape, layers);
  config["bos_token_id"] = ids.begin_of_text;
  config["eos_token_id"] = ids.end.front();
  config["pad_token_id"] = ids.padding;
  const SyntheticWeights weights = find_synthetic_format(options.format);
  const bool half = weights.format != nullptr && weights.format->floats == DType::kF16 &&
                    weights.exporter->write_experts == nullptr;
  config["torch_dtype"] = half ? "float16" : "bfloat16";
  if (weights.format != nullptr) {
    config["quantization_config"] =
        quantization_config(weights, options.group_size.value_or(kUsualGroup));
  }
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
