#include "engine/generation_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/model_file.h"
#include "checkpoints/config/config_file.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

using json::KeyUse;

constexpr std::array kRules = {
#define SUBBYTE_KEY(key, use, neutral, note) json::KeyRule{key, KeyUse::use, neutral},
#include "engine/generation_config_keys.def"
#undef SUBBYTE_KEY
};

constexpr const char* kConfig = "config.json";

/// What a config.json says of generation, of a wrapper also what its text part says where it says
/// nothing itself.
json::Value generation_part_of(const json::Object& config) {
  json::Value part = json::Value::object();
  const auto text = config.object("text_config");
  for (const json::KeyRule& rule : kRules) {
    if (config.has(rule.key)) {
      part[std::string(rule.key)] = *config.find(rule.key);
    } else if (text.ok() && *text && (*text)->has(rule.key)) {
      part[std::string(rule.key)] = *(*text)->find(rule.key);
    }
  }
  return part;
}

}  // namespace

std::filesystem::path generation_file(const std::filesystem::path& model) {
  const std::filesystem::path directory = model_directory(model);
  std::filesystem::path path = directory / "generation_config.json";
  const bool has_config = directory == model;  // beside a model file there may be any
  return is_there(path) || !has_config ? path : directory / kConfig;
}

std::span<const json::KeyRule> generation_config_rules() {
  return kRules;
}

Result<Sampling> read_generation_config(const std::filesystem::path& model) {
  Sampling wishes;
  const std::filesystem::path path = generation_file(model);
  if (!is_there(path)) return wishes;
  SUBBYTE_TRY(json::Value value, json::parse_file(path.string(), kMaxConfigBytes));
  if (path.filename() == kConfig) {
    SUBBYTE_TRY(const json::Object config, json::Object::of(value, path.string()));
    value = generation_part_of(config);
  }
  SUBBYTE_TRY(const json::Object config, json::Object::of(value, path.string()));
  SUBBYTE_CHECK(json::check_keys(config, kRules, "config.not_computed"));
  SUBBYTE_TRY(wishes.temperature, config.number("temperature", 0, 100));
  SUBBYTE_TRY(wishes.top_k, config.integer("top_k", -1, 1'000'000'000));
  SUBBYTE_TRY(wishes.top_p, config.number("top_p", 1e-6, 1));
  SUBBYTE_TRY(wishes.min_p, config.number("min_p", 0, 1));
  SUBBYTE_TRY(wishes.repetition_penalty, config.number("repetition_penalty", 0.01, 100));
  SUBBYTE_TRY(const auto do_sample, config.boolean("do_sample"));
  if (do_sample && !*do_sample) wishes.temperature = 0;
  if (do_sample && *do_sample && !says_how(wishes)) {
    wishes.temperature = neutral_sampling().temperature;
  }
  return wishes;
}

Result<SamplingDefaults> read_sampling_defaults(const std::filesystem::path& model,
                                                const Sampling& wishes) {
  SUBBYTE_TRY(const Sampling others, read_generation_config(model));
  SamplingDefaults defaults = SamplingDefaults::of(wishes, others);
  SUBBYTE_CHECK(check_sampling(defaults.alone));
  return defaults;
}

}  // namespace subbyte
