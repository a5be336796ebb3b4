// The quantization section of a config.json. The input is the file.

#include "checkpoints/config/quantization_config.h"
#include "fuzz/fuzz.h"
#include "json/strict_json.h"

using namespace subbyte;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact file(data, size);
  const auto value = json::parse(file.text(), "input");
  if (!value.ok()) {
    fuzz::require_line(value.error(), "input");
    return 0;
  }
  const auto object = json::Object::of(*value, "input");
  if (!object.ok()) return 0;
  const auto config = read_quantization_config(*object, "/dev/null");
  if (!config.ok()) {
    fuzz::require_line(config.error(), "input");
    return 0;
  }
  fuzz::require(!config->method_name().empty(), "a name");
  const bool lists = config->method == QuantizationConfig::Method::kAwq ||
                     config->method == QuantizationConfig::Method::kGptq;
  fuzz::require(!lists || (!config->bits.empty() && !config->group_sizes.empty()), "bits, groups");
  for (const int64_t group : config->group_sizes) fuzz::require(group >= -1, "a group size");
  for (const CompressedScheme& scheme : config->schemes) {
    fuzz::require(!to_string(scheme).empty(), "a scheme");
  }
  return 0;
}
