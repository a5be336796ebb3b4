// The quantization section of a config.json. The input is the file.

#include "checkpoints/flavour.h"
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
  const auto config = read_quantization_config(*object, {});
  if (!config.ok()) {
    fuzz::require_line(config.error(), "input");
    return 0;
  }
  fuzz::require(!config->method_name().empty(), "a name");
  fuzz::require(config->flavour == nullptr || config->flavour->read != nullptr, "a flavour");
  return 0;
}
