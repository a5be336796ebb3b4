#include "transform/config_dtype.h"

#include "models/model_config.h"

namespace subbyte {
namespace {

constexpr const char* kKeys[] = {"dtype", "torch_dtype"};  // the newer one counts
constexpr const char* kParts[] = {kTextConfig, "vision_config", "audio_config"};

std::string dtype_of_part(const json::Value& part) {
  for (const char* const key : kKeys) {
    const auto dtype = part.find(key);
    if (dtype != nullptr && dtype->is_string()) return dtype->get<std::string>();
  }
  return {};
}

/// Says whether the part named one.
bool replace(json::Value& part, std::string_view dtype) {
  bool found = false;
  for (const char* const key : kKeys) {
    const auto old = part.find(key);
    if (old == nullptr) continue;
    *old = dtype;
    found = true;
  }
  return found;
}

}  // namespace

std::string dtype_of(const json::Value& config) {
  std::string dtype = dtype_of_part(config);
  if (!dtype.empty()) return dtype;
  const auto text = config.find(kTextConfig);
  if (text != nullptr && text->is_object()) dtype = dtype_of_part(*text);
  return dtype;
}

void set_dtype(json::Value& config, std::string_view dtype) {
  if (!replace(config, dtype)) config["torch_dtype"] = dtype;
  for (const char* const name : kParts) {
    const auto part = config.find(name);
    if (part != nullptr && part->is_object()) replace(*part, dtype);
  }
}

}  // namespace subbyte
