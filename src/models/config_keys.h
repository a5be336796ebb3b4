#pragma once
// What keys of config.json mean (json/key_rules.h).

#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "json/key_rules.h"

/// A rule of the types that `types` names, with blanks between them; "": of all that a list is for.
/// `note` is for docs/model_files.md (tools/key_tables.py).
#define SUBBYTE_CONFIG_KEY(types, key, use, neutral, note) \
  ConfigKey {                                              \
    {                                                      \
      types, {                                             \
        key, json::KeyUse::use, neutral                    \
      }                                                    \
    }                                                      \
  }

/// One that is computed: read_keys() reads a number from `least` to `most`, or a boolean, into
/// `place` of an `Owner`, which is the family's own config or ModelConfig. Absent and null mean
/// `absent`, or what is there already (kKept). A key may have several names, with blanks between
/// them.
#define SUBBYTE_CONFIG_NUMBER(Owner, types, key, place, absent, least, most, note)            \
  ConfigKey {                                                                                 \
    {types, {key, json::KeyUse::kComputed, ""}}, absent, least, most,                         \
        [](const json::Object& config, const ConfigKey& row, void* own, ModelConfig& model) { \
          return read_key(config, row, owner_of<Owner>(own, model).place);                    \
        },                                                                                    \
        [](const ModelConfig& model) {                                                        \
          const Owner* const owner = owner_in<Owner>(model);                                  \
          return owner == nullptr ? json::Value() : json::Value(owner->place);                \
        }                                                                                     \
  }
#define SUBBYTE_CONFIG_FLAG(Owner, types, key, place, absent, note) \
  SUBBYTE_CONFIG_NUMBER(Owner, types, key, place, absent, 0, 1, note)

/// The same for rope_parameters and rope_scaling, in a list of a family.
#define SUBBYTE_ROPE_KEY(key, use, neutral, note) \
  json::KeyRule {                                 \
    key, json::KeyUse::use, neutral               \
  }

namespace subbyte {

struct ModelConfig;

inline constexpr double kKept = std::numeric_limits<double>::quiet_NaN();

struct ConfigKey : json::ScopedRule {
  double absent = kKept;
  double least = 0;
  double most = 0;
  Status (*read)(const json::Object& config, const ConfigKey& row, void* own,
                 ModelConfig& model) = nullptr;
  /// Tells what was read; null where the model has no such config.
  json::Value (*said)(const ModelConfig& model) = nullptr;
};

/// The name under which a key is there, of several with blanks between them; the first where it is
/// not. Code config.contradiction where they say different things.
Result<std::string_view> name_of(const json::Object& config, std::string_view names);

template <class Owner>
Owner& owner_of(void* own, ModelConfig& model) {
  if constexpr (std::is_same_v<Owner, ModelConfig>) {
    return model;
  } else {
    return *static_cast<Owner*>(own);
  }
}

/// `Config` is ModelConfig, of which this header knows nothing.
template <class Owner, class Config>
const Owner* owner_in(const Config& model) {
  if constexpr (std::is_same_v<Owner, Config>) {
    return &model;
  } else {
    return model.own.template part<Owner>();
  }
}

/// Tells what `model` has of a key that a row of its type gives a place, be it a default; null
/// without such a row, and for a number that the key cannot have.
json::Value said_of(const ModelConfig& model, std::string_view key);

/// Reads the keys of the type of `model` that have a place. Codes: json.type, json.range,
/// config.contradiction.
Status read_keys(const json::Object& config, std::span<const ConfigKey> keys, void* own,
                 ModelConfig& model);
Status read_key(const json::Object& config, const ConfigKey& row, bool& value);
Status read_key(const json::Object& config, const ConfigKey& row, int64_t& value);
Status read_key(const json::Object& config, const ConfigKey& row, float& value);

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
