// The sections of ModelOpt and bitsandbytes.
//
//   ModelOpt, hf_quant_config.json:  {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
//   or config.json:                  {"quant_method": "modelopt", "quant_algo": "NVFP4", ...}
//   bitsandbytes:                    {"quant_method": "bitsandbytes", "load_in_4bit": true,
//                                     "bnb_4bit_quant_type": "nf4",
//                                     "bnb_4bit_use_double_quant": true}

#include <limits>

#include "checkpoints/config/quantization_methods.h"

namespace subbyte {

Status read_modelopt(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto section, object.object("quantization"));
  const json::Object& from = section ? *section : object;
  SUBBYTE_TRY(const std::string algorithm, from.required_string("quant_algo"));
  if (algorithm != "NVFP4" && algorithm != "W4A16_NVFP4") {
    return from.error("quantization.algorithm", "quant_algo", "\"NVFP4\" or \"W4A16_NVFP4\"");
  }
  SUBBYTE_TRY(const auto size, from.integer("group_size", std::numeric_limits<int64_t>::min(),
                                            std::numeric_limits<int64_t>::max()));
  if (size.value_or(16) != 16) return from.error("quantization.group_size", "group_size", "16");
  config.bits = {4};
  config.group_sizes = {16};
  return {};
}

Status read_bitsandbytes(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto eight, object.boolean("load_in_8bit"));
  if (eight.value_or(false)) return object.error("quantization.bits", "load_in_8bit", "false");
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

}  // namespace subbyte
