#pragma once
// What a model directory says about how its weights are quantized: config.json's
// quantization_config, or the side files of older tools (quantize_config.json of GPTQ,
// quant_config.json of AWQ). The tensors decide; this is what they are checked against.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace subbyte {

namespace json {
class Object;
}

struct QuantizationConfig {
  enum class Method : uint8_t { kNone, kAwq, kGptq, kMxfp4 };

  Method method = Method::kNone;
  std::string where = "config.json";  // the file that said so, for messages

  // AWQ and GPTQ. `bits` and `group_sizes` hold the general value and those of the overrides
  // ("dynamic"), which name single modules by regular expressions: the tensors of a module may
  // agree with any of them.
  std::vector<int64_t> bits;
  std::vector<int64_t> group_sizes;   // -1: the whole row
  bool zero_point = true;             // AWQ
  bool sym = false;                   // GPTQ
  bool desc_act = false;              // GPTQ
  bool stores_zero_minus_one = true;  // GPTQ: checkpoint_format "gptq" (v1), not "gptq_v2"

  std::string method_name() const;
};

/// Reads the section out of a parsed config.json, or the side file in `directory` when there is
/// none. Codes: quantization.method, quantization.version, quantization.bits,
/// quantization.group_size, json.*.
Result<QuantizationConfig> read_quantization_config(const json::Object& config,
                                                    const std::filesystem::path& directory);

}  // namespace subbyte
