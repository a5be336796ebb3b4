#include "models/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "checkpoints/config/agreement.h"
#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/ropes/rope_kind.h"

namespace subbyte {
namespace {

constexpr double kMinTheta = 1.0 + 1e-9;
constexpr double kMaxTheta = 1e15;

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

/// rope_type, or type, which is older. transformers writes "default" beside the "mrope" that a file
/// had, and they are the same: of a text all its positions are.
Result<std::optional<std::string>> type_of_rope(const json::Object& rope) {
  SUBBYTE_TRY(const auto newer, rope.string("rope_type"));
  SUBBYTE_TRY(const auto older, rope.string("type"));
  if (newer == "default" && older == "mrope") return newer;
  SUBBYTE_TRY(const auto key, one_name(rope, {"rope_type", "type"}, "config.rope"));
  return rope.string(key);
}

/// The kinds that all families have, and those of one.
Result<ScaledRope> read_kind(const RopeInput& input, const ModelConfig& model) {
  const json::Object& rope = input.section;
  SUBBYTE_CHECK(json::check_keys(rope, rope_rules(model.model_type), "config.rope"));
  SUBBYTE_TRY(const auto type, type_of_rope(rope));
  if (!type) SUBBYTE_CHECK(require_nothing_to_scale(rope, model));
  if (!type) return read_plain_rope(input);
  std::vector<RopeKind> kinds = {{"default", read_plain_rope}, {"linear", read_linear_rope}};
  const auto own = family_of(model).rope_kinds;
  kinds.insert(kinds.end(), own.begin(), own.end());
  if (std::ranges::find(own, "yarn", &RopeKind::name) == own.end()) {
    kinds.push_back({"yarn", read_yarn_rope});
  }
  std::string known;
  for (const RopeKind& kind : kinds) {
    if (*type == kind.name) return kind.read(input);
    if (!known.empty()) known += &kind == &kinds.back() ? " or " : ", ";
    known += quote(kind.name);
  }
  const char* const key = rope.has("rope_type") ? "rope_type" : "type";
  return rope.error("config.rope", key, known);
}

/// rope_parameters may hold a section for each type of layers.
bool is_by_layer_type(const json::Object& rope) {
  return rope.find(kFullLayers) != nullptr || rope.find(kSlidingLayers) != nullptr;
}

/// The sections that say something. One that is empty is none, unless it is the newer one, which
/// then says that nothing is scaled.
struct RopeSections {
  std::optional<json::Object> newer, older;
};

Result<RopeSections> find_sections(const json::Object& config, const ConfigDefaults& defaults) {
  RopeSections sections;
  SUBBYTE_TRY(sections.newer, config.object("rope_parameters"));
  if (defaults.has_sliding_rope && sections.newer && is_by_layer_type(*sections.newer)) {
    SUBBYTE_TRY(sections.newer, sections.newer->object(kFullLayers));
  }
  SUBBYTE_TRY(sections.older, config.object("rope_scaling"));
  if (sections.older && sections.older->members().empty()) sections.older.reset();
  return sections;
}

/// The part of a head that turns: what the sections say, or what stands beside them, where null
/// means a whole head. Of two sections the reference reads the older one alone. Where the key says
/// nothing, another one says what turns.
Result<int64_t> read_rotary_dim(const json::Object& config, const RopeSections& sections,
                                const ModelConfig& model) {
  constexpr const char* kKey = "partial_rotary_factor";
  const auto rules = rope_rules(model.model_type);
  const json::KeyRule* const rule = json::find_rule(rules, kKey);
  if (rule != nullptr && rule->use == json::KeyUse::kIgnored) return model.head_dim;
  SUBBYTE_TRY(auto fraction, config.number(kKey, 0, 1));
  if (!fraction && config.find(kKey) != nullptr) fraction = 1;
  const ConfigDefaults& defaults = type_of(model).defaults;
  if (!fraction && defaults.rotary_dim_key != nullptr) {
    SUBBYTE_TRY(const auto dim, config.integer(defaults.rotary_dim_key, 2, model.head_dim));
    if (dim) fraction = static_cast<double>(*dim) / static_cast<double>(model.head_dim);
  }
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
  const auto dim = static_cast<int64_t>(part * static_cast<double>(model.head_dim));
  if (dim >= 2 && dim % 2 == 0) return dim;
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

/// rope_theta of the sections or beside them; of two the older one counts without the newer.
Result<double> read_base(const json::Object& config, const RopeSections& sections, double absent) {
  std::optional<double> theta;
  SUBBYTE_CHECK(read_theta(config, theta));
  if (sections.older) SUBBYTE_CHECK(read_theta(*sections.older, theta));
  const double without_newer = theta.value_or(absent);
  if (sections.newer) SUBBYTE_CHECK(read_theta(*sections.newer, theta));
  const double base = theta.value_or(absent);
  if (!sections.older || base == without_newer) return base;
  return sections.older->error("config.rope", "rope_theta",
                               fmt::format("the {} of rope_parameters", base));
}

/// What a family has where config.json has no section.
Result<ScaledRope> absent_rope(RopeInput input, const ModelConfig& model) {
  const char* const text = type_of(model).defaults.rope_section;
  if (text == nullptr) return read_plain_rope(input);
  SUBBYTE_TRY(const json::Value value, json::parse(text, "rope_parameters"));
  SUBBYTE_TRY(const json::Object section, json::Object::of(value, "rope_parameters"));
  SUBBYTE_TRY(const auto theta, section.number("rope_theta", kMinTheta, kMaxTheta));
  SUBBYTE_TRY(const auto part, section.number("partial_rotary_factor", 0, 1));
  if (part) input.dim = static_cast<int64_t>(*part * static_cast<double>(input.head_dim));
  return read_kind({input.config, section, input.dim, theta.value_or(input.theta),
                    input.max_positions, input.head_dim},
                   model);
}

}  // namespace

/// Newer: rope_parameters {rope_theta, rope_type, ...}. Older: rope_theta beside rope_scaling. Both
/// may be there when they agree.
Status read_rope(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(const RopeSections sections, find_sections(config, type_of(model).defaults));
  SUBBYTE_TRY(const double theta, read_base(config, sections, type_of(model).defaults.rope_theta));
  SUBBYTE_TRY(const int64_t dim, read_rotary_dim(config, sections, model));
  const auto read = [&](const json::Object& section) {
    return read_kind({config, section, dim, theta, model.max_positions, model.head_dim}, model);
  };
  ScaledRope scaled;
  if (!sections.newer && !sections.older) {
    SUBBYTE_TRY(
        scaled,
        absent_rope({config, config, dim, theta, model.max_positions, model.head_dim}, model));
  }
  if (sections.older) {
    SUBBYTE_TRY(scaled, read(*sections.older));
  }
  if (sections.newer) {
    const ScaledRope older = scaled;
    SUBBYTE_TRY(scaled, read(*sections.newer));
    if (sections.older && older != scaled) {
      return config.error("config.rope", "rope_scaling", "the same as rope_parameters");
    }
  }
  model.rope = std::move(scaled.rope);
  model.max_positions = std::max(model.max_positions, scaled.positions);
  return {};
}

Result<Rope> read_sliding_rope(const json::Object& config, const ModelConfig& model, double theta) {
  SUBBYTE_TRY(const auto all, config.object("rope_parameters"));
  std::optional<json::Object> own;
  if (all && is_by_layer_type(*all)) {
    SUBBYTE_TRY(own, all->object(kSlidingLayers));
  }
  if (!own) return Rope(model.rope.dim(), theta);
  std::optional<double> said;
  SUBBYTE_CHECK(read_theta(*own, said));
  SUBBYTE_TRY(const ScaledRope scaled,
              read_kind({config, *own, model.rope.dim(), said.value_or(theta), model.max_positions,
                         model.head_dim},
                        model));
  return scaled.rope;
}

Result<SaidRope> said_rope(const json::Object& config, const ModelConfig& model) {
  const ConfigDefaults& defaults = type_of(model).defaults;
  SUBBYTE_TRY(const RopeSections sections, find_sections(config, defaults));
  SaidRope said;
  SUBBYTE_TRY(said.theta, read_base(config, sections, defaults.rope_theta));
  if (sections.newer || sections.older) {
    said.section = JsonMaker::object((sections.newer ? sections.newer : sections.older)->members());
  } else if (defaults.rope_section != nullptr) {
    SUBBYTE_TRY(said.section, json::parse(defaults.rope_section, "rope_parameters"));
    if (said.section.contains("rope_theta")) said.theta = said.section["rope_theta"].get<double>();
  }
  return said;
}

Result<std::vector<bool>> read_turning_layers(const json::Object& config, int64_t num_layers) {
  constexpr const char* kLayers = "no_rope_layers";
  SUBBYTE_TRY(const auto interval, config.integer("no_rope_layer_interval", 1, kMaxPositions));
  std::vector<bool> turning;
  for (int64_t i = 1; i <= num_layers; ++i) turning.push_back(i % interval.value_or(4) != 0);
  const json::Value* const said = config.has(kLayers) ? config.find(kLayers) : nullptr;
  if (said == nullptr || (said->is_array() && said->empty())) return turning;
  if (!said->is_array() || said->size() < turning.size()) {
    return config.error("config.no_rope_layers", kLayers,
                        fmt::format("an array of at least {} numbers", num_layers));
  }
  for (std::size_t i = 0; i < turning.size(); ++i) {
    if ((*said)[i] != 0 && (*said)[i] != 1) {
      return config.error("config.no_rope_layers", kLayers, "numbers 0 and 1");
    }
    turning[i] = (*said)[i] == 1;
  }
  return turning;
}

Result<double> rope_score_factor(const json::Object& config, const ModelConfig& model) {
  SUBBYTE_TRY(const SaidRope said, said_rope(config, model));
  if (said.section.is_null()) return 1.0;
  SUBBYTE_TRY(const json::Object section, json::Object::of(said.section, "rope_parameters"));
  SUBBYTE_TRY(const auto key, one_name(section, {"rope_type", "type"}, "config.rope"));
  SUBBYTE_TRY(const auto type, section.string(key));
  SUBBYTE_TRY(const auto all_dim, section.number("mscale_all_dim", 0, 1e6));
  SUBBYTE_TRY(const auto factor, section.number("factor", 1, 1e6));
  const bool is_scaled = type && *type != "default" && factor.value_or(1) > 1;
  if (!is_scaled || all_dim.value_or(0) == 0) return 1.0;
  const double scale = 0.1 * *all_dim * std::log(*factor) + 1;
  return scale * scale;
}

Result<QueryScale> read_query_scale(const json::Object& config, const ModelConfig& model) {
  SUBBYTE_TRY(const SaidRope said, said_rope(config, model));
  SUBBYTE_TRY(const json::Object section, json::Object::of(said.section, "rope_parameters"));
  constexpr const char* kBeta = "llama_4_scaling_beta";
  SUBBYTE_TRY(const auto beta, section.number(kBeta, 0, 1e3));
  if (!beta) return section.error("json.missing", kBeta, "a number");
  QueryScale scale = {.beta = static_cast<float>(*beta)};
  SUBBYTE_TRY(scale.step,
              section.required_integer("original_max_position_embeddings", 1, kMaxPositions));
  return scale;
}

Result<double> required_rope_factor(const json::Object& section) {
  SUBBYTE_TRY(const auto factor, section.number("factor", 1, 1e6));
  if (factor) return *factor;
  return section.error("json.missing", "factor", "a number");
}

Result<std::optional<double>> original_positions(const RopeInput& input) {
  constexpr const char* kKey = "original_max_position_embeddings";
  SUBBYTE_TRY(const auto inside, input.section.number(kKey, 1, kMaxPositions));
  SUBBYTE_TRY(const auto beside, input.config.number(kKey, 1, kMaxPositions));
  if (inside && beside && *inside != *beside) {
    return input.config.error("config.rope", kKey, fmt::format("the {} of the section", *inside));
  }
  return beside ? beside : inside;
}

}  // namespace subbyte
