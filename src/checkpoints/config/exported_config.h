#pragma once
// How a checkpoint says what its weights are, for Hugging Face, vLLM and the tools that made them.

#include <algorithm>

#include "checkpoints/exporter.h"
#include "json/strict_json.h"

namespace subbyte {

struct ExportedConfig {
  json::Value section;              // quantization_config of config.json
  std::string_view side_file = {};  // a file that other readers look for; "": none
  json::Value side_content = {};
};

/// Takes out of config.json all sections that say how weights are quantized but
/// quantization_config, which is written anew: the older name of it, and those of the text model
/// inside of a wrapper.
void erase_other_sections(json::Value& config);

/// Group size as configs say it: -1 for the whole row.
inline int64_t config_group_size(const WeightFormat& format) {
  return format.group_size == 0 ? -1 : format.group_size;
}

/// Modules that are alike for a config, as what they have in common and how many there are.
/// `Key` is compared with ==; the commonest comes first, of equally many the first in the model.
template <typename Key>
struct AlikeModules {
  Key key;
  std::vector<const ExportedModule*> modules;
};

template <typename KeyOf>
auto group_alike(const std::vector<ExportedModule>& modules, const KeyOf& key_of) {
  using Key = decltype(key_of(modules.front().shape));
  std::vector<AlikeModules<Key>> groups;
  for (const ExportedModule& module : modules) {
    const Key key = key_of(module.shape);
    auto found = std::ranges::find(groups, key, &AlikeModules<Key>::key);
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    found->modules.push_back(&module);
  }
  std::ranges::stable_sort(groups, std::ranges::greater(),
                           [](const auto& group) { return group.modules.size(); });
  return groups;
}

}  // namespace subbyte
