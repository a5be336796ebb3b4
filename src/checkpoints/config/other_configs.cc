// The sections of ModelOpt, bitsandbytes and kbit.
//
//   ModelOpt, hf_quant_config.json:  {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
//   or config.json:                  {"quant_method": "modelopt", "quant_algo": "NVFP4", ...}
//   bitsandbytes:                    {"quant_method": "bitsandbytes", "load_in_4bit": true,
//                                     "bnb_4bit_quant_type": "nf4",
//                                     "bnb_4bit_use_double_quant": true}
//   kbit:                            {"quant_method": "kbit", "bits": 4, "block_size": 32}, or
//                                    "bits": [2, 4] where modules differ

#include <algorithm>
#include <limits>

#include "checkpoints/config/quantization_methods.h"
#include "checkpoints/foreign_software.h"

namespace subbyte {
namespace {

struct Algorithm {
  std::string_view name;
  bool e8m0_scales;  // else E4M3, and a factor
};

/// What the weights are; activations stay floats here, as in other weight-only readers.
constexpr Algorithm kModeloptAlgorithms[] = {{"NVFP4", false},          {"W4A16_NVFP4", false},
                                             {"W4A8_NVFP4_FP8", false}, {"mxfp4", true},
                                             {"MXFP4", true},           {"W4A8_MXFP4_FP8", true}};

/// "FP8" is E4M3 with a scale for each tensor; config.json may say it as compressed-tensors does.
Status read_kv_cache(const json::Object& object, KvCacheScheme& scheme) {
  SUBBYTE_TRY(const auto algorithm, object.string("kv_cache_quant_algo"));
  if (!algorithm) return read_kv_cache_scheme(object, scheme);
  scheme = {*algorithm == "FP8" ? KvCacheScheme::Form::kFp8 : KvCacheScheme::Form::kOther,
            json::to_text(json::Value(*algorithm))};
  return {};
}

}  // namespace

Status read_modelopt(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto section, object.object("quantization"));
  const json::Object& from = section ? *section : object;
  SUBBYTE_TRY(const std::string algorithm, from.required_string("quant_algo"));
  const auto known = std::ranges::find(kModeloptAlgorithms, algorithm, &Algorithm::name);
  if (known == std::end(kModeloptAlgorithms)) {
    return from.error("quantization.algorithm", "quant_algo",
                      "\"NVFP4\", \"W4A16_NVFP4\", \"W4A8_NVFP4_FP8\", \"mxfp4\" or "
                      "\"W4A8_MXFP4_FP8\"");
  }
  config.e8m0_scales = known->e8m0_scales;
  SUBBYTE_TRY(const auto size, from.integer("group_size", std::numeric_limits<int64_t>::min(),
                                            std::numeric_limits<int64_t>::max()));
  // A size of 0 is what ModelOpt writes where it does not know one.
  const int64_t usual = known->e8m0_scales ? 32 : 16;
  const int64_t group_size = size.value_or(0) == 0 ? usual : *size;
  if (group_size != 32 && group_size != usual) {
    return from.error("quantization.group_size", "group_size",
                      known->e8m0_scales ? "32" : "16 or 32");
  }
  config.bits = {4};
  config.group_sizes = {group_size};
  return read_kv_cache(from, config.kv_cache);
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

Status read_kbit(const json::Object& object, QuantizationConfig& config) {
  const json::Value* bits = object.find("bits");
  const json::Value list = bits == nullptr    ? json::Value::array()
                           : bits->is_array() ? *bits
                                              : json::Value::array({*bits});
  for (const json::Value& width : list) {
    if (!width.is_number_integer() || width < 2 || width > 5) {
      return object.error("quantization.bits", "bits", "2, 3, 4 or 5, or a list of them");
    }
    config.bits.push_back(width.get<int64_t>());
  }
  if (list.empty()) {
    return object.error("quantization.bits", "bits", "2, 3, 4 or 5, or a list of them");
  }
  SUBBYTE_TRY(const int64_t size, object.required_integer("block_size", 0, 1 << 24));
  if (size != 32) return object.error("quantization.group_size", "block_size", "32");
  config.group_sizes = {size};
  return {};
}

}  // namespace subbyte
