// The sections of ModelOpt, bitsandbytes, FP8, kbit and vq.
//
//   ModelOpt, hf_quant_config.json:  {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
//   or config.json:                  {"quant_method": "modelopt", "quant_algo": "NVFP4", ...}
//   bitsandbytes:                    {"quant_method": "bitsandbytes", "load_in_4bit": true,
//                                     "bnb_4bit_quant_type": "nf4",
//                                     "bnb_4bit_use_double_quant": true}
//   FP8, transformers and vLLM:      {"quant_method": "fp8", "weight_block_size": [128, 128],
//                                     "activation_scheme": "dynamic", "fmt": "e4m3"}
//   ModelOpt, several algorithms:    {"quant_algo": "MIXED_PRECISION", "quantized_layers":
//                                     {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}, ...}}
//   kbit:                            {"quant_method": "kbit", "bits": 4, "block_size": 32}, or
//                                    "bits": [2, 4] where modules differ
//   vq:                              {"quant_method": "vq", "bits": 2, "block_size": 32,
//                                     "rotation": 256}, bits as in kbit

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "checkpoints/config/quantization_methods.h"
#include "checkpoints/foreign_software.h"
#include "formats/rotation.h"

namespace subbyte {
namespace {

enum class ModeloptWeights : uint8_t { kNvfp4, kMxfp4, kFp8 };

struct Algorithm {
  std::string_view name;
  ModeloptWeights weights;
};

/// What the weights are; activations stay floats here, as in other weight-only readers.
constexpr Algorithm kModeloptAlgorithms[] = {
    {"NVFP4", ModeloptWeights::kNvfp4},
    {"W4A16_NVFP4", ModeloptWeights::kNvfp4},
    {"W4A8_NVFP4_FP8", ModeloptWeights::kNvfp4},
    {"mxfp4", ModeloptWeights::kMxfp4},
    {"MXFP4", ModeloptWeights::kMxfp4},
    {"W4A8_MXFP4_FP8", ModeloptWeights::kMxfp4},
    {"FP8", ModeloptWeights::kFp8},
    {"FP8_PER_CHANNEL_PER_TOKEN", ModeloptWeights::kFp8},
    {"FP8_PB_WO", ModeloptWeights::kFp8},
};
constexpr std::string_view kMixed = "MIXED_PRECISION";
constexpr int64_t kFp8Block = 128;  // of FP8_PB_WO
constexpr int64_t kLargestBlock = int64_t{1} << 24;

/// "FP8" is E4M3 with a scale for each tensor; config.json may say it as compressed-tensors does.
Status read_kv_cache(const json::Object& object, KvCacheScheme& scheme) {
  SUBBYTE_TRY(const auto algorithm, object.string("kv_cache_quant_algo"));
  if (!algorithm) return read_kv_cache_scheme(object, scheme);
  scheme = {*algorithm == "FP8" ? KvCacheScheme::Form::kFp8 : KvCacheScheme::Form::kOther,
            json::to_text(json::Value(*algorithm))};
  return {};
}

/// Inputs that share a scale; 0 is what ModelOpt writes where it does not know.
Status read_fp4_group(const json::Object& from, bool e8m0_scales, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto size, from.integer("group_size", std::numeric_limits<int64_t>::min(),
                                            std::numeric_limits<int64_t>::max()));
  const int64_t usual = e8m0_scales ? 32 : 16;
  const int64_t group_size = size.value_or(0) == 0 ? usual : *size;
  if (group_size != 32 && group_size != usual) {
    return from.error("quantization.group_size", "group_size", e8m0_scales ? "32" : "16 or 32");
  }
  const bool differs = config.has_fp4 && (config.e8m0_scales != e8m0_scales ||
                                          config.group_sizes != std::vector{group_size});
  if (differs) {
    return from.error("quantization.algorithm", "quant_algo",
                      "one kind of 4 bits in all modules, as those before it");
  }
  config.has_fp4 = true;
  config.e8m0_scales = e8m0_scales;
  config.bits = {4};
  config.group_sizes = {group_size};
  return {};
}

Status read_algorithm(const json::Object& from, QuantizationConfig& config) {
  SUBBYTE_TRY(const std::string name, from.required_string("quant_algo"));
  const auto known = std::ranges::find(kModeloptAlgorithms, name, &Algorithm::name);
  if (known == std::end(kModeloptAlgorithms)) {
    return from.error("quantization.algorithm", "quant_algo",
                      "\"NVFP4\", \"W4A16_NVFP4\", \"W4A8_NVFP4_FP8\", \"mxfp4\", "
                      "\"W4A8_MXFP4_FP8\", \"FP8\", \"FP8_PER_CHANNEL_PER_TOKEN\", "
                      "\"FP8_PB_WO\" or \"MIXED_PRECISION\" of these");
  }
  if (known->weights != ModeloptWeights::kFp8) {
    return read_fp4_group(from, known->weights == ModeloptWeights::kMxfp4, config);
  }
  config.has_fp8 = true;
  if (name == "FP8_PB_WO") config.block_rows = config.block_cols = kFp8Block;
  return {};
}

/// What modules have, each by its name: the tensors of a module may agree with any of them.
Status read_quantized_layers(const json::Object& from, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto layers, from.object("quantized_layers"));
  if (!layers) return from.error("json.missing", "quantized_layers", "an object");
  for (const auto& [name, value] : from.find("quantized_layers")->items()) {
    SUBBYTE_TRY(const auto layer, json::Object::of(value, layers->where() + "." + name));
    SUBBYTE_CHECK(json::check_keys(layer, quantization_rules("modelopt"), "config.not_computed"));
    SUBBYTE_CHECK(read_algorithm(layer, config));
  }
  return {};
}

}  // namespace

Status read_modelopt(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto section, object.object("quantization"));
  const json::Object& from = section ? *section : object;
  config.has_fp4 = false;
  SUBBYTE_TRY(const std::string algorithm, from.required_string("quant_algo"));
  if (algorithm == kMixed) {
    SUBBYTE_CHECK(read_quantized_layers(from, config));
  } else {
    SUBBYTE_CHECK(read_algorithm(from, config));
  }
  return read_kv_cache(from, config.kv_cache);
}

Status read_fp8(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto code, object.string("fmt"));
  if (code.value_or("e4m3") != "e4m3") {
    return object.error("quantization.format", "fmt", "\"e4m3\"");
  }
  SUBBYTE_CHECK(read_kv_cache_scheme(object, config.kv_cache));
  SUBBYTE_TRY(const auto activations, object.string("activation_scheme"));
  if (activations.value_or("static") != "static" && *activations != "dynamic") {
    return object.error("quantization.activations", "activation_scheme",
                        "\"dynamic\" or \"static\"");
  }
  const json::Value* const size = object.find("weight_block_size");
  if (size == nullptr || size->is_null()) return {};
  const auto is_size = [](const json::Value& value) {
    return value.is_number_integer() && value > 0 && value <= kLargestBlock;
  };
  if (!size->is_array() || size->size() != 2 || !is_size((*size)[0]) || !is_size((*size)[1]) ||
      (*size)[1].get<int64_t>() % 8 != 0) {
    return object.error("quantization.group_size", "weight_block_size",
                        "null, or two positive numbers, the second a multiple of 8");
  }
  config.block_rows = (*size)[0].get<int64_t>();
  config.block_cols = (*size)[1].get<int64_t>();
  config.rounds_inputs = activations.value_or("") == "dynamic";
  return {};
}

Status read_bitsandbytes(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto eight, object.boolean("load_in_8bit"));
  if (eight.value_or(false)) {
    return foreign_error("quantization.bits", object.where() + ".load_in_8bit",
                         "bitsandbytes in 8 bits");
  }
  SUBBYTE_TRY(const auto four, object.boolean("load_in_4bit"));
  if (!four.value_or(false)) return object.error("quantization.bits", "load_in_4bit", "true");
  SUBBYTE_TRY(const auto type, object.string("bnb_4bit_quant_type"));
  if (type.value_or("fp4") != "nf4") {  // fp4 is what an absent key means
    return object.error("quantization.quant_type", "bnb_4bit_quant_type", "\"nf4\"");
  }
  SUBBYTE_TRY(const auto twice, object.boolean("bnb_4bit_use_double_quant"));
  config.double_quant = twice.value_or(false);
  config.bits = {4};
  return {};
}

namespace {

/// "bits" that `allowed` has, one or a list, and "block_size".
Status read_bits_and_block(const json::Object& object, std::initializer_list<int> allowed,
                           std::string_view expected, QuantizationConfig& config) {
  const json::Value* bits = object.find("bits");
  const json::Value list = bits == nullptr    ? json::Value::array()
                           : bits->is_array() ? *bits
                                              : json::Value::array({*bits});
  for (const json::Value& width : list) {
    const bool is_known = width.is_number_integer() &&
                          std::ranges::any_of(allowed, [&](int known) { return width == known; });
    if (!is_known) return object.error("quantization.bits", "bits", std::string(expected));
    config.bits.push_back(width.get<int64_t>());
  }
  if (list.empty()) return object.error("quantization.bits", "bits", std::string(expected));
  SUBBYTE_TRY(const int64_t size, object.required_integer("block_size", 0, 1 << 24));
  if (size != 32) return object.error("quantization.group_size", "block_size", "32");
  config.group_sizes = {size};
  return {};
}

}  // namespace

Status read_kbit(const json::Object& object, QuantizationConfig& config) {
  return read_bits_and_block(object, {2, 3, 4, 5}, "2, 3, 4 or 5, or a list of them", config);
}

Status read_vq(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_CHECK(read_bits_and_block(object, {2, 4}, "2 or 4, or a list of both", config));
  SUBBYTE_TRY(const int64_t rotation, object.required_integer("rotation", 0, 1 << 24));
  if (!is_rotation(rotation)) {
    return object.error("quantization.rotation", "rotation", "0, 16, 64 or 256");
  }
  config.rotation = rotation;
  return {};
}

}  // namespace subbyte
