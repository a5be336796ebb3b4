// The sections of bitsandbytes, FP8, kbit and vq.
//
//   bitsandbytes:                    {"quant_method": "bitsandbytes", "load_in_4bit": true,
//                                     "bnb_4bit_quant_type": "nf4",
//                                     "bnb_4bit_use_double_quant": true}
//   FP8, transformers and vLLM:      {"quant_method": "fp8", "weight_block_size": [128, 128],
//                                     "activation_scheme": "dynamic", "fmt": "e4m3"}
//   kbit:                            {"quant_method": "kbit", "bits": 4, "block_size": 32}, or
//                                    "bits": [2, 4] where modules differ
//   vq:                              {"quant_method": "vq", "bits": 2, "block_size": 32,
//                                     "rotation": 256}, bits as in kbit

#include <algorithm>
#include <initializer_list>

#include "checkpoints/config/quantization_methods.h"
#include "checkpoints/foreign_software.h"
#include "formats/rotation.h"

namespace subbyte {
namespace {

constexpr int64_t kLargestBlock = int64_t{1} << 24;

}  // namespace

Status read_fp8(const json::Object& object, QuantizationConfig& config) {
  SUBBYTE_TRY(const auto code, object.word("fmt"));
  if (code.value_or("e4m3") != "e4m3") {
    return object.error("quantization.format", "fmt", "\"e4m3\"");
  }
  SUBBYTE_CHECK(read_kv_cache_scheme(object, config.kv_cache));
  SUBBYTE_TRY(const auto activations, object.word("activation_scheme"));
  if (activations.value_or("static") != "static" && *activations != "dynamic") {
    return object.error("quantization.activations", "activation_scheme",
                        "\"dynamic\" or \"static\"");
  }
  const json::Value* const size = object.find("weight_block_size");
  if (size == nullptr || size->is_null()) return {};
  const auto is_size = [](const json::Value& value) {
    return json::is_integer(value, 1, kLargestBlock);
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
  SUBBYTE_TRY(const auto type, object.word("bnb_4bit_quant_type"));
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
