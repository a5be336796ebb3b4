#include "models/config_keys.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "models/model_family.h"

namespace subbyte {
namespace {

using json::KeyRule;
using json::KeyUse;

#undef SUBBYTE_CONFIG_KEY

constexpr std::array kConfigKeys = {
#define SUBBYTE_ROPE_KEY(key, use, neutral, note)
#define SUBBYTE_CONFIG_KEY(types, key, use, neutral, note) \
  json::ScopedRule{types, {key, KeyUse::use, neutral}},
#include "models/config_keys.def"
#undef SUBBYTE_CONFIG_KEY
#undef SUBBYTE_ROPE_KEY
};

constexpr std::array kRopeRules = {
#define SUBBYTE_CONFIG_KEY(types, key, use, neutral, note)
#define SUBBYTE_ROPE_KEY(key, use, neutral, note) KeyRule{key, KeyUse::use, neutral},
#include "models/config_keys.def"
#undef SUBBYTE_CONFIG_KEY
#undef SUBBYTE_ROPE_KEY
};

}  // namespace

std::vector<KeyRule> config_rules(std::string_view model_type) {
  std::vector<KeyRule> rules = json::rules_of(kConfigKeys, model_type);
  if (const ModelFamily* family = find_family(model_type)) {
    std::ranges::copy(json::rules_of(family->keys, model_type), std::back_inserter(rules));
  }
  return rules;
}

std::span<const KeyRule> rope_rules() {
  return kRopeRules;
}

std::vector<std::string> unknown_config_keys(const json::Object& config,
                                             std::string_view model_type) {
  std::vector<std::string> keys = json::unknown_keys(config, config_rules(model_type));
  for (const char* const name : {"rope_parameters", "rope_scaling"}) {
    const auto section = config.object(name);
    if (!section.ok() || !*section) continue;
    for (const std::string& key : json::unknown_keys(**section, rope_rules())) {
      keys.push_back(std::string(name) + "." + key);
    }
  }
  return keys;
}

}  // namespace subbyte
