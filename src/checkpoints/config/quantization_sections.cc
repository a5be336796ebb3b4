#include "checkpoints/config/quantization_sections.h"

#include <algorithm>

#include "base/model_file.h"
#include "base/small_letters.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/config/quantization_config.h"
#include "checkpoints/config/side_file_keys.h"
#include "checkpoints/foreign_software.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSectionKeys[] = {"quantization_config", "compression_config"};
constexpr const char* kTextPart = "text_config";

constexpr SideFile kSideFiles[] = {{"quantize_config.json", "gptq"},
                                   {"quant_config.json", "awq"},
                                   {"hf_quant_config.json", "modelopt"}};

/// Appends what no rule of `scope` names.
void append_unknown(const json::Object& object, const std::string& prefix, std::string_view scope,
                    std::vector<std::string>& keys) {
  for (const std::string& key : json::unknown_keys(object, quantization_rules(scope))) {
    keys.push_back(prefix + key);
  }
}

/// Of config_groups of compressed-tensors.
void append_unknown_of_groups(const json::Object& section, const std::string& prefix,
                              std::vector<std::string>& keys) {
  const auto groups = section.object("config_groups");
  if (!groups.ok() || !*groups) return;
  for (const auto& [name, value] : (*groups)->members()) {
    const auto group = json::Object::of(value, name);
    if (!group.ok()) continue;
    const std::string path = prefix + "config_groups." + name + ".";
    append_unknown(*group, path, "ct-group", keys);
    const auto weights = group->object("weights");
    if (!weights.ok() || !*weights) continue;
    append_unknown(**weights, path + "weights.", "ct-weights", keys);
  }
}

/// Of ModelOpt, whose file has all in a section, and sections of modules in it.
void append_unknown_of_modelopt(const json::Object& object, const std::string& prefix,
                                std::vector<std::string>& keys) {
  const auto inner = object.object("quantization");
  const bool has_inner = inner.ok() && *inner;
  const json::Object& section = has_inner ? **inner : object;
  const std::string path = prefix + (has_inner ? "quantization." : "");
  if (has_inner) append_unknown(section, path, "modelopt", keys);
  const auto layers = section.object("quantized_layers");
  if (!layers.ok() || !*layers) return;
  for (const auto& [name, value] : (*layers)->members()) {
    const auto layer = json::Object::of(value, name);
    if (layer.ok())
      append_unknown(*layer, path + "quantized_layers." + name + ".", "modelopt", keys);
  }
}

void append_unknown_of_section(const json::Object& section, const std::string& prefix,
                               std::string_view method, std::vector<std::string>& keys) {
  append_unknown(section, prefix, method, keys);
  if (method == "compressed-tensors") append_unknown_of_groups(section, prefix, keys);
  if (method == "modelopt") append_unknown_of_modelopt(section, prefix, keys);
}

/// The section that a file of ModelOpt has inside, or the file itself.
json::Object inner_section(const json::Object& file) {
  const auto inner = file.object("quantization");
  return inner.ok() && *inner ? **inner : file;
}

/// What a section says of its method, where it says it.
std::string method_of(const json::Object& section, std::string_view otherwise) {
  const auto method = section.word("quant_method");
  const std::string word = small_letters(method.ok() && *method ? **method : otherwise);
  return word == "marlin" ? "gptq" : word;
}

}  // namespace

Result<std::optional<FoundSection>> find_quantization_section(const json::Object& config) {
  for (const char* const key : kSectionKeys) {
    SUBBYTE_TRY(auto section, config.object(key));
    if (section) return std::optional<FoundSection>({key, *std::move(section)});
  }
  SUBBYTE_TRY(const auto text, config.object(kTextPart));
  if (!text) return std::optional<FoundSection>();
  for (const char* const key : kSectionKeys) {
    SUBBYTE_TRY(auto section, text->object(key));
    if (section) {
      return std::optional<FoundSection>({std::string("text_config.") + key, *std::move(section)});
    }
  }
  return std::optional<FoundSection>();
}

const SideFile* find_side_file(const fs::path& directory) {
  const auto found = std::ranges::find_if(
      kSideFiles, [&](const SideFile& file) { return is_there(directory / file.name); });
  return found == std::end(kSideFiles) ? nullptr : found;
}

void erase_other_sections(json::Value& config) {
  config.erase("compression_config");
  const auto text = config.find(kTextPart);
  if (text == nullptr || !text->is_object()) return;
  for (const char* const key : kSectionKeys) text->erase(key);
}

std::vector<std::string> unknown_quantization_keys(const json::Object& config) {
  std::vector<std::string> keys;
  const auto found = find_quantization_section(config);
  if (!found.ok() || !*found) return keys;
  const auto& [name, section] = **found;
  const auto method = section.string("quant_method");
  if (!method.ok() || !*method || !foreign_method(**method).empty()) return keys;
  append_unknown_of_section(section, name + ".", **method, keys);
  return keys;
}

std::vector<std::string> unknown_side_file_keys(const json::Object& config,
                                                const fs::path& directory) {
  std::vector<std::string> keys;
  if (const auto found = find_quantization_section(config); !found.ok() || *found) return keys;
  const SideFile* const file = find_side_file(directory);
  if (file == nullptr) return keys;
  const std::string path = (directory / file->name).string();
  const auto value = json::parse_file(path, kMaxSideFileBytes);
  if (!value.ok()) return keys;
  const auto object = json::Object::of(*value, path);
  if (!object.ok()) return keys;
  append_unknown_of_section(*object, std::string(file->name) + ": ", file->method, keys);
  return keys;
}

Status compare_other_sections(const json::Object& config, const json::Object& section,
                              const fs::path& directory, std::vector<Disagreement>& found) {
  const std::string method = method_of(section, "");
  SUBBYTE_TRY(const auto text, config.object(kTextPart));
  for (const json::Object* const part : {&config, text ? &*text : nullptr}) {
    if (part == nullptr) continue;
    for (const char* const key : kSectionKeys) {
      const auto other = part->object(key);
      if (!other.ok() || !*other || (*other)->where() == section.where()) continue;
      SUBBYTE_CHECK(compare_sections(section, method, **other, method_of(**other, method),
                                     (*other)->where(), found));
    }
  }
  for (const SideFile& file : kSideFiles) {
    const std::string path = (directory / file.name).string();
    if (!is_there(path)) continue;
    const auto value = json::parse_file(path, kMaxSideFileBytes);
    const auto object = value.ok() ? json::Object::of(*value, path) : value.error();
    if (!object.ok()) continue;  // it does not count
    SUBBYTE_CHECK(compare_sections(inner_section(section), method, inner_section(*object),
                                   method_of(*object, file.method), std::string(file.name), found));
  }
  return {};
}

}  // namespace subbyte
