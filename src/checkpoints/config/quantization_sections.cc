#include "checkpoints/config/quantization_sections.h"

#include <algorithm>

#include "base/small_letters.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/config/side_file_keys.h"
#include "checkpoints/flavour.h"

namespace subbyte {
namespace {

constexpr const char* kSectionKeys[] = {"quantization_config", "compression_config"};
constexpr const char* kTextPart = "text_config";

void add_unknown(const Flavour& flavour, const json::Object& section, const std::string& prefix,
                 std::vector<std::string>& keys) {
  add_unknown_keys(section, prefix, flavour.name, keys);
  if (flavour.find_unknown != nullptr) flavour.find_unknown(section, prefix, keys);
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
  const Flavour* const flavour = find_flavour(word);
  return flavour == nullptr ? word : std::string(flavour->name);
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

const Flavour* flavour_of_side_file(const SideFiles& files) {
  const Flavour* last = nullptr;
  for (const Flavour* const flavour : all_flavours()) {
    const bool has_file = !flavour->side_file.empty() && files.has(flavour->side_file);
    if (has_file) last = flavour;
  }
  return last;
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
  const Flavour* const flavour = method.ok() && *method ? find_flavour(**method) : nullptr;
  if (flavour != nullptr) add_unknown(*flavour, section, name + ".", keys);
  return keys;
}

std::vector<std::string> unknown_side_file_keys(const json::Object& config,
                                                const SideFiles& files) {
  std::vector<std::string> keys;
  if (const auto found = find_quantization_section(config); !found.ok() || *found) return keys;
  const Flavour* const flavour = flavour_of_side_file(files);
  if (flavour == nullptr) return keys;
  const auto file = files.read(flavour->side_file);
  const auto object = file.ok() ? file->object() : file.error();
  if (!object.ok()) return keys;
  add_unknown(*flavour, *object, std::string(flavour->side_file) + ": ", keys);
  return keys;
}

Status compare_other_sections(const json::Object& config, const json::Object& section,
                              const SideFiles& files, std::vector<Disagreement>& found) {
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
  for (const Flavour* const flavour : all_flavours()) {
    if (flavour->side_file.empty() || !files.has(flavour->side_file)) continue;
    const auto file = files.read(flavour->side_file);
    const auto object = file.ok() ? file->object() : file.error();
    if (!object.ok()) continue;  // it does not count
    SUBBYTE_CHECK(compare_sections(inner_section(section), method, inner_section(*object),
                                   method_of(*object, flavour->name),
                                   std::string(flavour->side_file), found));
  }
  return {};
}

}  // namespace subbyte
