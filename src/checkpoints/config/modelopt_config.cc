// The sections of ModelOpt.
//
//   hf_quant_config.json:  {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
//   or config.json:        {"quant_method": "modelopt", "quant_algo": "NVFP4", ...}
//   several algorithms:    {"quant_algo": "MIXED_PRECISION", "quantized_layers":
//                           {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}, ...}}
//
// Activations stay floats here, as in other weight-only readers, whatever an algorithm makes of
// them.

#include <algorithm>
#include <limits>

#include "checkpoints/config/quantization_methods.h"
#include "checkpoints/unread_parts.h"

namespace subbyte {
namespace {

struct Algorithm {
  std::string_view name;  // in small letters
  ModeloptWeights weights;
  bool in_blocks = false;  // FP8
};

/// Some are names of ModelOpt's own, which it writes where it has none of TensorRT-LLM's.
constexpr Algorithm kAlgorithms[] = {
    {"nvfp4", ModeloptWeights::kNvfp4},
    {"w4a16_nvfp4", ModeloptWeights::kNvfp4},
    {"w4a8_nvfp4_fp8", ModeloptWeights::kNvfp4},
    {"nvfp4_awq", ModeloptWeights::kNvfp4},
    {"mxfp4", ModeloptWeights::kMxfp4},
    {"w4a8_mxfp4_fp8", ModeloptWeights::kMxfp4},
    {"fp8", ModeloptWeights::kFp8},
    {"fp8_per_channel_per_token", ModeloptWeights::kFp8},
    {"fp8_pb_wo", ModeloptWeights::kFp8, true},
    {"fp8_pb_real", ModeloptWeights::kFp8, true},
    {"mxfp8", ModeloptWeights::kMxfp8},
    {"int8", ModeloptWeights::kInt8},
    {"w8a16", ModeloptWeights::kInt8},
    {"int8_wo", ModeloptWeights::kInt8},
    {"w8a8_sq_per_channel", ModeloptWeights::kInt8},
    {"int8_sq", ModeloptWeights::kInt8},
    {"w4a16_awq", ModeloptWeights::kInt4},
    {"int4_awq", ModeloptWeights::kInt4},
    {"int4_blockwise", ModeloptWeights::kInt4},
};
constexpr std::string_view kMixed = "mixed_precision";
constexpr int64_t kFp8Block = 128;
constexpr int64_t kLargestGroup = int64_t{1} << 24;

struct WeightsOfAlgorithms {
  ModeloptWeights weights;
  std::string_view name;
};

constexpr WeightsOfAlgorithms kNames[] = {
    {ModeloptWeights::kNvfp4, "NVFP4"}, {ModeloptWeights::kMxfp4, "MXFP4"},
    {ModeloptWeights::kFp8, "FP8"},     {ModeloptWeights::kMxfp8, "MXFP8"},
    {ModeloptWeights::kInt8, "INT8"},   {ModeloptWeights::kInt4, "INT4"}};

/// "FP8" is E4M3 with a scale for each tensor; config.json may say it as compressed-tensors does.
Status read_kv_cache(const json::Object& object, KvCacheScheme& scheme) {
  SUBBYTE_TRY(const auto algorithm, object.word("kv_cache_quant_algo"));
  if (!algorithm) return read_kv_cache_scheme(object, scheme);
  scheme = {*algorithm == "fp8" ? KvCacheScheme::Form::kFp8 : KvCacheScheme::Form::kOther,
            json::to_text(*object.find("kv_cache_quant_algo"))};
  return {};
}

/// What a group may be of; empty: of any size.
std::vector<int64_t> sizes_of(ModeloptWeights weights) {
  if (weights == ModeloptWeights::kInt4) return {};
  if (weights == ModeloptWeights::kNvfp4) return {16, 32};
  return {32};
}

/// Inputs that share a scale, where it is said: absent, or 0, which ModelOpt writes where it does
/// not know, the tensors tell.
Status read_group_size(const json::Object& from, ModeloptWeights weights,
                       QuantizationConfig& config) {
  SUBBYTE_TRY(const auto size, from.integer("group_size", std::numeric_limits<int64_t>::min(),
                                            std::numeric_limits<int64_t>::max()));
  if (size.value_or(0) == 0) {
    config.has_unsaid_group_size = true;
    return {};
  }
  const std::vector<int64_t> sizes = sizes_of(weights);
  const bool is_any = sizes.empty() && *size >= 8 && *size % 8 == 0 && *size <= kLargestGroup;
  if (!is_any && std::ranges::find(sizes, *size) == sizes.end()) {
    return from.error("quantization.group_size", "group_size",
                      sizes.empty()       ? "a positive multiple of 8"
                      : sizes.size() == 1 ? "32"
                                          : "16 or 32");
  }
  config.group_sizes.push_back(*size);
  return {};
}

Status read_algorithm(const json::Object& from, QuantizationConfig& config) {
  SUBBYTE_TRY(const std::string name, from.required_word("quant_algo"));
  const auto known = std::ranges::find(kAlgorithms, name, &Algorithm::name);
  if (known == std::end(kAlgorithms)) {
    return from.error("quantization.algorithm", "quant_algo",
                      "\"MIXED_PRECISION\" or one whose weights are NVFP4, MXFP4, FP8, MXFP8, INT8 "
                      "or INT4, such as \"W4A16_NVFP4\", \"FP8_PB_WO\", \"W8A8_SQ_PER_CHANNEL\" "
                      "and \"W4A16_AWQ\"");
  }
  config.modelopt.push_back(known->weights);
  if (known->in_blocks) config.block_rows = config.block_cols = kFp8Block;
  const bool has_groups =
      known->weights != ModeloptWeights::kFp8 && known->weights != ModeloptWeights::kInt8;
  return has_groups ? read_group_size(from, known->weights, config) : Status();
}

Status read_quantized_layer(const json::Value& value, const std::string& where,
                            QuantizationConfig& config) {
  SUBBYTE_TRY(const auto layer, json::Object::of(value, where));
  SUBBYTE_CHECK(json::check_keys(layer, quantization_rules("modelopt"), "config.not_computed"));
  return read_algorithm(layer, config);
}

/// What modules have, each by its name: the tensors of a module may agree with any of them. An
/// entry that is not understood is an error of its module, if that is read.
Status read_quantized_layers(const json::Object& from, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto layers, from.object("quantized_layers"));
  if (!layers) return from.error("json.missing", "quantized_layers", "an object");
  for (const auto& [name, value] : from.find("quantized_layers")->items()) {
    if (is_in_unread_part(name)) continue;
    Status read = read_quantized_layer(value, layers->where() + "." + name, config);
    if (!read.ok()) config.refuse(name, std::move(read).error());
  }
  return {};
}

template <typename T>
void keep_one_of_each(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
}

}  // namespace

std::string_view name_of(ModeloptWeights weights) {
  return std::ranges::find(kNames, weights, &WeightsOfAlgorithms::weights)->name;
}

Status read_modelopt(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto section, object.object("quantization"));
  const json::Object& from = section ? *section : object;
  SUBBYTE_TRY(const std::string algorithm, from.required_word("quant_algo"));
  if (algorithm == kMixed) {
    SUBBYTE_CHECK(read_quantized_layers(from, config));
  } else {
    SUBBYTE_CHECK(read_algorithm(from, config));
  }
  keep_one_of_each(config.modelopt);
  keep_one_of_each(config.group_sizes);
  return read_kv_cache(from, config.kv_cache);
}

}  // namespace subbyte
