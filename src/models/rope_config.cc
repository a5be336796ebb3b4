#include "models/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/quote.h"
#include "checkpoints/config/agreement.h"
#include "models/config_keys.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

constexpr double kMinTheta = 1.0 + 1e-9;
constexpr double kMaxTheta = 1e15;

/// A factor that is null follows from the positions.
Status read_factor(const json::Object& rope, const ModelConfig& model, RopeScaling& scaling) {
  SUBBYTE_TRY(const auto factor, rope.number("factor", 1, 1e6));
  const bool follows = scaling.type == RopeScaling::Type::kYarn && rope.find("factor") != nullptr;
  if (!factor && !follows) return rope.error("json.missing", "factor", "a number");
  const double ratio =
      static_cast<double>(model.max_positions) / std::max(scaling.original_max_positions, 1.0);
  scaling.factor = factor.value_or(ratio);
  if (scaling.factor >= 1) return {};
  return rope.error("config.rope", "factor", "a number, as the positions do not become more");
}

/// mscale and mscale_all_dim say what the attention factor is where it is not given: the ratio of
/// what each makes of the factor.
Status read_mscale(const json::Object& rope, RopeScaling& scaling) {
  SUBBYTE_TRY(const auto mscale, rope.number("mscale", 0, 1e6));
  SUBBYTE_TRY(const auto all_dim, rope.number("mscale_all_dim", 0, 1e6));
  if (scaling.attention_factor != 0 || mscale.value_or(0) == 0 || all_dim.value_or(0) == 0) {
    return {};
  }
  const auto scale = [&](double by) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * by * std::log(scaling.factor) + 1.0;
  };
  scaling.attention_factor = scale(*mscale) / scale(*all_dim);
  return {};
}

/// The original positions stand in the section, or beside it, where they count.
Result<double> read_original(const json::Object& config, const json::Object& rope,
                             const ModelConfig& model) {
  constexpr const char* kKey = "original_max_position_embeddings";
  SUBBYTE_TRY(const auto inside, rope.number(kKey, 1, kMaxPositions));
  SUBBYTE_TRY(const auto beside, config.number(kKey, 1, kMaxPositions));
  if (inside && beside && *inside != *beside) {
    return config.error("config.rope", kKey, fmt::format("the {} of the section", *inside));
  }
  return beside.value_or(inside.value_or(static_cast<double>(model.max_positions)));
}

Status read_yarn(const json::Object& config, const json::Object& rope, ModelConfig& model) {
  RopeScaling& scaling = model.rope_scaling;
  scaling.type = RopeScaling::Type::kYarn;
  SUBBYTE_TRY(scaling.original_max_positions, read_original(config, rope, model));
  SUBBYTE_CHECK(read_factor(rope, model, scaling));
  SUBBYTE_TRY(const auto fast, rope.number("beta_fast", 1e-6, 1e6));
  SUBBYTE_TRY(const auto slow, rope.number("beta_slow", 1e-6, 1e6));
  SUBBYTE_TRY(const auto truncate, rope.boolean("truncate"));
  SUBBYTE_TRY(const auto attention, rope.number("attention_factor", 1e-6, 1e6));
  scaling.beta_fast = fast.value_or(32);
  scaling.beta_slow = slow.value_or(1);
  scaling.truncate = truncate.value_or(true);
  scaling.attention_factor = attention.value_or(0);
  return read_mscale(rope, scaling);
}

/// Of a section without a type: rope_parameters may hold rope_theta alone. Whoever wrote anything
/// else meant positions to be scaled, and did not say how.
Status require_nothing_to_scale(const json::Object& rope, const ModelConfig& model) {
  const auto rules = rope_rules(model.model_type);
  for (const auto& [key, value] : rope.members()) {
    if (key == "rope_theta" || key == "partial_rotary_factor" || value.is_null()) continue;
    const json::KeyRule* const rule = json::find_rule(rules, key);
    if (rule != nullptr && rule->use == json::KeyUse::kIgnored) continue;
    return rope.error("json.missing", "rope_type", "a string, as " + quote(key) + " is there");
  }
  return {};
}

Status read_scaling(const json::Object& config, const json::Object& rope, ModelConfig& model) {
  SUBBYTE_CHECK(json::check_keys(rope, rope_rules(model.model_type), "config.rope"));
  SUBBYTE_TRY(const auto key, one_name(rope, {"rope_type", "type"}, "config.rope"));
  SUBBYTE_TRY(const auto type, rope.string(key));
  if (!type) return require_nothing_to_scale(rope, model);
  if (*type == "default") return {};
  if (*type == "yarn") return read_yarn(config, rope, model);
  if (*type == "linear") {
    model.rope_scaling.type = RopeScaling::Type::kLinear;
    return read_factor(rope, model, model.rope_scaling);
  }
  std::string known = "\"default\", \"linear\"";
  for (const RopeKind& kind : family_of(model).rope_kinds) {
    if (*type == kind.name) {
      SUBBYTE_CHECK(read_factor(rope, model, model.rope_scaling));
      return kind.read(rope, model.rope_scaling);
    }
    known += ", " + quote(kind.name);
  }
  return rope.error("config.rope", key, known + " or \"yarn\"");
}

/// The sections that say something. One that is empty is none, unless it is the newer one, which
/// then says that nothing is scaled.
struct RopeSections {
  std::optional<json::Object> newer, older;
};

Result<RopeSections> find_sections(const json::Object& config) {
  RopeSections sections;
  SUBBYTE_TRY(sections.newer, config.object("rope_parameters"));
  SUBBYTE_TRY(sections.older, config.object("rope_scaling"));
  if (sections.older && sections.older->members().empty()) sections.older.reset();
  return sections;
}

/// The part of a head that turns: what the sections say, or what stands beside them, where null
/// means a whole head. Of two sections the reference reads the older one alone.
Status read_rotary_dim(const json::Object& config, const ConfigDefaults& defaults,
                       ModelConfig& model) {
  constexpr const char* kKey = "partial_rotary_factor";
  SUBBYTE_TRY(const RopeSections sections, find_sections(config));
  SUBBYTE_TRY(auto fraction, config.number(kKey, 0, 1));
  if (!fraction && config.find(kKey) != nullptr) fraction = 1;
  const double beside = fraction.value_or(defaults.rotary_fraction);
  const auto part_of = [&](const std::optional<json::Object>& section) -> Result<double> {
    if (!section) return beside;
    SUBBYTE_TRY(const auto own, section->number(kKey, 0, 1));
    return own.value_or(beside);
  };
  SUBBYTE_TRY(const double older, part_of(sections.older));
  SUBBYTE_TRY(const double newer, part_of(sections.newer));
  if (sections.older && sections.newer && older != newer) {
    return sections.older->error("config.rope", kKey,
                                 fmt::format("the {} of rope_parameters", newer));
  }
  const double part = sections.newer ? newer : older;
  model.rotary_dim = static_cast<int64_t>(part * static_cast<double>(model.head_dim));
  if (model.rotary_dim >= 2 && model.rotary_dim % 2 == 0) return {};
  return config.error(
      "config.rope", kKey,
      fmt::format("a part of head_dim ({}) that is an even number above 0", model.head_dim));
}

/// The base that a section says, which must not be another than what was said before.
Status read_theta(const json::Object& section, std::optional<double>& said) {
  SUBBYTE_TRY(const auto theta, section.number("rope_theta", kMinTheta, kMaxTheta));
  if (theta && said && *theta != *said) {
    return section.error("config.rope", "rope_theta", fmt::format("the {} said elsewhere", *said));
  }
  if (theta) said = theta;
  return {};
}

/// Newer: rope_parameters {rope_theta, rope_type, ...}. Older: rope_theta beside rope_scaling. Both
/// may be there when they agree.
Status read_sections(const json::Object& config, const ConfigDefaults& defaults,
                     ModelConfig& model) {
  SUBBYTE_TRY(const RopeSections sections, find_sections(config));
  std::optional<double> theta;
  SUBBYTE_CHECK(read_theta(config, theta));
  if (sections.older) SUBBYTE_CHECK(read_theta(*sections.older, theta));
  const double without_newer = theta.value_or(defaults.rope_theta);
  if (sections.newer) SUBBYTE_CHECK(read_theta(*sections.newer, theta));
  model.rope_theta = theta.value_or(defaults.rope_theta);
  if (sections.older && model.rope_theta != without_newer) {
    return sections.older->error("config.rope", "rope_theta",
                                 fmt::format("the {} of rope_parameters", model.rope_theta));
  }
  if (!sections.newer && !sections.older) model.rope_scaling = defaults.rope_scaling;
  if (sections.older) SUBBYTE_CHECK(read_scaling(config, *sections.older, model));
  if (!sections.newer) return {};
  const RopeScaling older = std::exchange(model.rope_scaling, RopeScaling{});
  SUBBYTE_CHECK(read_scaling(config, *sections.newer, model));
  if (sections.older && older != model.rope_scaling) {
    return config.error("config.rope", "rope_scaling", "the same as rope_parameters");
  }
  return {};
}

}  // namespace

Status read_rope(const json::Object& config, ModelConfig& model) {
  SUBBYTE_CHECK(read_sections(config, type_of(model).defaults, model));
  SUBBYTE_CHECK(read_rotary_dim(config, type_of(model).defaults, model));
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.type != RopeScaling::Type::kYarn) return {};
  // Qwen3's way to 131,072 positions: 32,768 times 4, beside max_position_embeddings of 40,960.
  const double longer = scaling.original_max_positions * scaling.factor;
  const double positions = std::min(longer, static_cast<double>(kMaxPositions));
  model.max_positions = std::max(model.max_positions, static_cast<int64_t>(positions));
  return {};
}

}  // namespace subbyte
