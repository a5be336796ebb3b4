#pragma once
// What keys of config.json mean (json/key_rules.h).

#include <span>
#include <string_view>
#include <vector>

#include "json/key_rules.h"

/// A rule of the types that `types` names, with blanks between them; "": of all that a list is for.
/// `note` is for docs/model_files.md (tools/key_tables.py).
#define SUBBYTE_CONFIG_KEY(types, key, use, neutral, note) \
  json::ScopedRule {                                       \
    types, {                                               \
      key, json::KeyUse::use, neutral                      \
    }                                                      \
  }

/// The same for rope_parameters and rope_scaling, in a list of a family.
#define SUBBYTE_ROPE_KEY(key, use, neutral, note) \
  json::KeyRule {                                 \
    key, json::KeyUse::use, neutral               \
  }

namespace subbyte {

/// The rules of a type, or of a wrapper: those of its family, and then those that all have.
std::vector<json::KeyRule> config_rules(std::string_view model_type);

/// Those of rope_parameters and rope_scaling.
std::vector<json::KeyRule> rope_rules(std::string_view model_type);

/// Keys of config.json, of its text part and of their rope sections that no rule names, as
/// "rope_scaling.key" there. `model_type` is that of a ModelConfig.
std::vector<std::string> unknown_config_keys(const json::Object& config,
                                             std::string_view model_type);

/// Keys of the text model that stand beside the text part of a wrapper, where neither the reference
/// nor this reads them, and say what the text part does not.
std::vector<std::string> keys_beside_text_part(const json::Object& config);

}  // namespace subbyte
