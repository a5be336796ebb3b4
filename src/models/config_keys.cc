#include "models/config_keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoints/config/agreement.h"
#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

using json::KeyRule;
using json::KeyUse;

constexpr ConfigKey kConfigKeys[] = {
#define SUBBYTE_GENERAL_ROPE_KEY(key, use, neutral, note)
#define SUBBYTE_GENERAL_KEY(key, use, neutral, note) \
  SUBBYTE_CONFIG_KEY("", key, use, neutral, note),
#include "models/config_keys.def"
#undef SUBBYTE_GENERAL_KEY
#undef SUBBYTE_GENERAL_ROPE_KEY
};

constexpr KeyRule kRopeRules[] = {
#define SUBBYTE_GENERAL_KEY(key, use, neutral, note)
#define SUBBYTE_GENERAL_ROPE_KEY(key, use, neutral, note) SUBBYTE_ROPE_KEY(key, use, neutral, note),
#include "models/config_keys.def"
#undef SUBBYTE_GENERAL_KEY
#undef SUBBYTE_GENERAL_ROPE_KEY
};

/// Those of keys that a family has no rule of its own for.
void add_others(std::span<const KeyRule> general, std::vector<KeyRule>& rules) {
  const std::vector<KeyRule> own = rules;
  for (const KeyRule& rule : general) {
    if (json::find_rule(own, rule.key) == nullptr) rules.push_back(rule);
  }
}

std::vector<KeyRule> rules_of(std::span<const ConfigKey> keys, std::string_view model_type) {
  return json::rules_of(std::vector<json::ScopedRule>(keys.begin(), keys.end()), model_type);
}

bool is_layer_type(std::string_view key) {
  return key == kFullLayers || key == kSlidingLayers;
}

/// Adds those of a rope section, and of the sections in it that types of layers have.
void add_unknown_of_rope(const json::Object& section, const std::string& name,
                         std::span<const KeyRule> rules, std::vector<std::string>& keys) {
  for (const std::string& key : json::unknown_keys(section, rules)) {
    keys.push_back(name + "." + key);
  }
  for (const char* const type : {kFullLayers, kSlidingLayers}) {
    const auto inner = section.object(type);
    if (inner.ok() && *inner) add_unknown_of_rope(**inner, name + "." + type, rules, keys);
  }
}

/// Of one object: config.json, or the text part of one.
std::vector<std::string> unknown_in(const json::Object& config, std::string_view model_type) {
  std::vector<std::string> keys = json::unknown_keys(config, config_rules(model_type));
  for (const char* const name : {"rope_parameters", "rope_scaling"}) {
    const auto section = config.object(name);
    if (!section.ok() || !*section) continue;
    add_unknown_of_rope(**section, name, rope_rules(model_type), keys);
  }
  return keys;
}

}  // namespace

Status read_keys(const json::Object& config, std::span<const ConfigKey> keys, void* own,
                 ModelConfig& model) {
  for (const ConfigKey& row : keys) {
    if (row.read == nullptr || !json::is_in(row.scopes, model.model_type)) continue;
    SUBBYTE_CHECK(row.read(config, row, own, model));
  }
  return {};
}

Result<std::string_view> name_of(const json::Object& config, std::string_view names) {
  const std::vector<std::string_view> words = json::words_of(names);
  std::string_view name = words.front();
  for (const std::string_view other : words) {
    SUBBYTE_TRY(name, one_name(config, {name, other}, "config.contradiction"));
  }
  return name;
}

Status read_key(const json::Object& config, const ConfigKey& row, bool& value) {
  SUBBYTE_TRY(const auto key, name_of(config, row.rule.key));
  SUBBYTE_TRY(const auto given, config.boolean(key));
  value = given.value_or(std::isnan(row.absent) ? value : row.absent != 0);
  return {};
}

Status read_key(const json::Object& config, const ConfigKey& row, int64_t& value) {
  SUBBYTE_TRY(const auto key, name_of(config, row.rule.key));
  SUBBYTE_TRY(const auto given,
              config.integer(key, static_cast<int64_t>(row.least), static_cast<int64_t>(row.most)));
  value = given.value_or(std::isnan(row.absent) ? value : static_cast<int64_t>(row.absent));
  return {};
}

Status read_key(const json::Object& config, const ConfigKey& row, float& value) {
  SUBBYTE_TRY(const auto key, name_of(config, row.rule.key));
  SUBBYTE_TRY(const auto given, config.number(key, row.least, row.most));
  value = static_cast<float>(given.value_or(std::isnan(row.absent) ? double{value} : row.absent));
  return {};
}

json::Value said_of(const ModelConfig& model, std::string_view key) {
  const ModelFamily& family = family_of(model);
  for (const std::span<const ConfigKey> list :
       {family.keys, family.shared_keys[0], family.shared_keys[1], family.shared_keys[2]}) {
    for (const ConfigKey& row : list) {
      const bool is_named = json::is_in(row.rule.key, key) && !row.rule.key.empty();
      if (!is_named || row.said == nullptr || !json::is_in(row.scopes, model.model_type)) continue;
      json::Value value = row.said(model);
      if (!value.is_number() ||
          (value.get<double>() >= row.least && value.get<double>() <= row.most)) {
        return value;
      }
    }
  }
  return {};
}

std::vector<KeyRule> config_rules(std::string_view model_type) {
  std::vector<KeyRule> rules;
  if (const ModelFamily* family = find_family(model_type)) {
    rules = rules_of(family->keys, model_type);
    for (const std::span<const ConfigKey> list : family->shared_keys) {
      add_others(rules_of(list, model_type), rules);
    }
    const auto& wrapped = family->model_types;
    if (std::ranges::find(wrapped, model_type, &ModelType::wrapper) != wrapped.end()) {
      rules.push_back({kTextConfig, KeyUse::kComputed, ""});
    }
  }
  add_others(rules_of(kConfigKeys, model_type), rules);
  return rules;
}

std::vector<KeyRule> rope_rules(std::string_view model_type) {
  std::vector<KeyRule> rules;
  bool has_types = false;
  if (const ModelFamily* family = find_family(model_type)) {
    rules.assign(family->rope_keys.begin(), family->rope_keys.end());
    const auto type = std::ranges::find(family->model_types, model_type, &ModelType::name);
    has_types = type != family->model_types.end() && type->defaults.has_sliding_rope;
  }
  add_others(kRopeRules, rules);
  if (!has_types) std::erase_if(rules, [](const KeyRule& rule) { return is_layer_type(rule.key); });
  return rules;
}

std::vector<std::string> keys_beside_text_part(const json::Object& config) {
  // Of a wrapper itself, or of the file.
  constexpr std::array<std::string_view, 6> kOuter = {"model_type",          "text_config",
                                                      "tie_word_embeddings", "eos_token_id",
                                                      "quantization_config", "compression_config"};
  std::vector<std::string> keys;
  const auto wrapper = config.string("model_type");
  const auto text = text_part_of(config);
  if (!wrapper.ok() || !text.ok() || !*text) return keys;
  const std::vector<KeyRule> rules = config_rules(**wrapper);
  for (const auto& [key, value] : config.members()) {
    const KeyRule* const rule = json::find_rule(rules, key);
    if (rule == nullptr || rule->use != KeyUse::kComputed || value.is_null()) continue;
    if (std::ranges::find(kOuter, key) != kOuter.end()) continue;
    const json::Value* const inside = (*text)->find(key);
    if (inside == nullptr || *inside != value) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> unknown_config_keys(const json::Object& config,
                                             std::string_view model_type) {
  const auto text = text_part_of(config);
  if (!text.ok() || !*text) return unknown_in(config, model_type);
  const auto wrapper = config.required_string("model_type");
  std::vector<std::string> keys =
      unknown_in(config, wrapper.ok() ? std::string_view(*wrapper) : model_type);
  for (const std::string& key : unknown_in(**text, model_type)) {
    keys.push_back(std::string(kTextConfig) + "." + key);
  }
  return keys;
}

}  // namespace subbyte
