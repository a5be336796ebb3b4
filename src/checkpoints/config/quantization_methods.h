#pragma once
// The sections of single methods, each read in a file of its own.

#include "checkpoints/config/quantization_config.h"
#include "json/strict_json.h"

namespace subbyte {

/// Codes: quantization.format, .bits, .strategy, .group_size, .activation_order, .transform,
/// .sparsity, json.*.
Status read_compressed_tensors(const json::Object& object, QuantizationConfig& config);

/// The kv_cache_scheme of compressed-tensors, which configs of ModelOpt may have, too. Code json.*.
Status read_kv_cache_scheme(const json::Object& object, KvCacheScheme& scheme);

/// `object` is the quantization section of hf_quant_config.json or of config.json.
/// Codes: quantization.algorithm, quantization.group_size, json.*.
Status read_modelopt(const json::Object& object, QuantizationConfig& config);

/// FP8 with a factor for each block, row or tensor. Codes: quantization.format,
/// quantization.group_size, json.*.
Status read_fp8(const json::Object& object, QuantizationConfig& config);

/// Codes: quantization.bits, quantization.quant_type, json.*.
Status read_bitsandbytes(const json::Object& object, QuantizationConfig& config);

/// Codes: quantization.bits, quantization.group_size, json.*.
Status read_kbit(const json::Object& object, QuantizationConfig& config);

/// Codes: quantization.bits, quantization.group_size, quantization.rotation, json.*.
Status read_vq(const json::Object& object, QuantizationConfig& config);

}  // namespace subbyte
