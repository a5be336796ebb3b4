#include "engine/generation_config.h"

#include <algorithm>
#include <array>
#include <string>

namespace subbyte {
namespace {

using json::KeyUse;

constexpr std::array kRules = {
#define SUBBYTE_KEY(key, use, neutral, note) json::KeyRule{key, KeyUse::use, neutral},
#include "engine/generation_config_keys.def"
#undef SUBBYTE_KEY
};

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

const char* generation_file(const SideFiles& files) {
  return files.has(kGenerationFile) ? kGenerationFile : kConfigFile;
}

std::span<const json::KeyRule> generation_config_rules() {
  return kRules;
}

Result<Sampling> read_generation_config(const SideFiles& files) {
  Sampling wishes;
  if (!files.has(generation_file(files))) return wishes;
  SUBBYTE_TRY(SideFile file, files.read(generation_file(files)));
  if (!files.has(kGenerationFile)) {
    SUBBYTE_TRY(const json::Object config, file.object());
    file.value = generation_part_of(config);
  }
  SUBBYTE_TRY(const json::Object config, file.object());
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

Result<SamplingDefaults> read_sampling_defaults(const SideFiles& files, const Sampling& wishes) {
  SUBBYTE_TRY(const Sampling others, read_generation_config(files));
  SamplingDefaults defaults = SamplingDefaults::of(wishes, others);
  SUBBYTE_CHECK(check_sampling(defaults.alone));
  return defaults;
}

}  // namespace subbyte
