#include "transform/config_texts.h"

#include <utility>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/unread_parts.h"
#include "models/model_config.h"
#include "models/model_family.h"

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

constexpr std::string_view kText = "model.";
constexpr std::string_view kWrapped = "model.language_model.";
constexpr std::string_view kOlderWrapped = "language_model.model.";
constexpr std::string_view kOlderHead = "language_model.lm_head";

std::string reader_name(std::string name, std::string_view prefix) {
  if (name == kOlderHead) return "lm_head";
  if (is_in_unread_part(name)) {
    const bool is_older =
        prefix == kWrapped && !name.starts_with(kText) && !name.starts_with("mtp.");
    return is_older ? std::string(kText) + name : name;
  }
  for (const std::string_view found : {kWrapped, kOlderWrapped, kText}) {
    if (name.starts_with(found)) return name.replace(0, found.size(), prefix);
  }
  return name;
}

/// Of Qwen2-VL an older one has no text_config.
bool is_wrapper(const json::Value& config) {
  if (!config.is_object()) return false;
  const auto type = config.find("model_type");
  if (type == nullptr || !type->is_string()) return config.contains(kTextConfig);
  const std::string name = type->get<std::string>();
  const ModelFamily* const family = find_family(name);
  return config.contains(kTextConfig) ||
         (family != nullptr && std::ranges::find(family->model_types, name, &ModelType::wrapper) !=
                                   family->model_types.end());
}

/// Readers compare the names of modules in a quantization_config with the modules of the class that
/// config.json names, whatever prefix the tensors have in the files:
///
///   config.json                     modules
///   of a text model                 model.layers.0.mlp.up_proj
///   of a wrapper                    model.language_model.layers.0.mlp.up_proj, model.visual. and
///                                   the like
///
/// Tools write the text model of a wrapper under a config of its own and keep the names of the
/// wrapper; older wrappers have language_model.model. in front, or model. alone, and visual.
ExportedModel named_for_readers(ExportedModel model, const json::Value& config) {
  const std::string_view prefix = is_wrapper(config) ? kWrapped : kText;
  for (ExportedModule& module : model.modules) {
    module.name = reader_name(std::move(module.name), prefix);
  }
  for (std::string& name : model.kept) name = reader_name(std::move(name), prefix);
  return model;
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

std::vector<TextFile> config_texts(json::Value config, const Exporter& exporter,
                                   const ExportedModel& exported) {
  const ExportedConfig said = exporter.config(named_for_readers(exported, config));
  config["quantization_config"] = said.section;
  std::vector<TextFile> texts = {{"config.json", json::to_text(config, 2) + "\n"}};
  if (!said.side_file.empty()) {
    texts.push_back({std::string(said.side_file), json::to_text(said.side_content, 2) + "\n"});
  }
  return texts;
}

}  // namespace subbyte
