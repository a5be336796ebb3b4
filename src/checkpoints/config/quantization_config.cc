#include "checkpoints/config/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "base/small_letters.h"
#include "checkpoints/config/quantization_sections.h"
#include "checkpoints/flavour.h"
#include "checkpoints/foreign_software.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// {"meta": {"quantizer": ["gptqmodel:7.7.0"]}}, or one string; other software leaves it out.
bool is_by_gptqmodel(const json::Object& object) {
  const json::Value* meta = object.find("meta");
  if (meta == nullptr || !meta->is_object() || !meta->contains("quantizer")) return false;
  const json::Value& value = (*meta)["quantizer"];
  const json::Value list = value.is_array() ? value : json::Value::array({value});
  return std::ranges::any_of(list, [](const json::Value& name) {
    return name.is_string() && small_letters(name.get<std::string>()).starts_with("gptqmodel");
  });
}

/// AutoRound names itself in the configs that it writes for others.
bool is_by_auto_round(const json::Object& object) {
  const auto provider = object.word("provider");
  return object.has("autoround_version") || (provider.ok() && *provider == "auto-round");
}

Error unknown_method(const json::Object& object, std::string_view method) {
  if (const auto name = foreign_method(method); !name.empty()) {
    return foreign_error("quantization.method",
                         fmt::format("{}: quant_method is {}", object.where(), quote(method)),
                         name);
  }
  std::vector<std::string> names;
  for (const Flavour* const flavour : all_flavours()) {
    if (flavour->read != nullptr) names.push_back(quote(flavour->name));
  }
  const std::string last = std::exchange(names.back(), {});
  names.pop_back();
  return object.error(
      "quantization.method", "quant_method",
      fmt::format("{} or {} (what this version supports)", fmt::join(names, ", "), last));
}

Result<QuantizationConfig> read_section(const json::Object& object, std::string_view method) {
  QuantizationConfig config;
  config.where = object.where();
  config.flavour = find_flavour(method);
  const std::string_view scope = config.flavour == nullptr ? method : config.flavour->name;
  SUBBYTE_CHECK(json::check_keys(object, flavour_rules(scope), "config.not_computed"));
  SUBBYTE_CHECK(config.kept.add_lists(object));
  if (config.flavour == nullptr) return unknown_method(object, method);
  config.by_gptqmodel = is_by_gptqmodel(object);
  config.by_auto_round = is_by_auto_round(object);
  SUBBYTE_CHECK(config.flavour->read(object, config));
  return config;
}

/// MLX says {"quantization": {"group_size": 64, "bits": 4}}, and no method.
Status refuse_mlx(const json::Object& config) {
  const json::Value* section = config.find("quantization");
  if (section == nullptr || !section->is_object() || !section->contains("group_size") ||
      !section->contains("bits")) {
    return {};
  }
  return foreign_error("quantization.method", config.where() + ": quantization",
                       foreign_method("mlx"));
}

}  // namespace

Status read_kv_cache_scheme(const json::Object& object, KvCacheScheme& scheme) {
  SUBBYTE_TRY(const auto said, object.object("kv_cache_scheme"));
  if (!said) return {};
  SUBBYTE_TRY(const auto bits, said->integer("num_bits", 0, int64_t{1} << 24));
  SUBBYTE_TRY(const auto type, said->word("type"));
  SUBBYTE_TRY(const auto strategy, said->word("strategy"));
  SUBBYTE_TRY(const auto dynamic, said->boolean("dynamic"));
  SUBBYTE_TRY(const auto symmetric, said->boolean("symmetric"));
  const bool fp8 = bits.value_or(8) == 8 && type.value_or("int") == "float" &&
                   strategy.value_or("tensor") == "tensor" && !dynamic.value_or(false) &&
                   symmetric.value_or(true);
  scheme = {fp8 ? KvCacheScheme::Form::kFp8 : KvCacheScheme::Form::kOther,
            json::to_text(*object.find("kv_cache_scheme"))};
  return {};
}

std::string without_wrapper(std::string_view module) {
  constexpr std::string_view kWrapper = "language_model.";
  std::string name(module);
  if (const auto found = name.find(kWrapper); found != name.npos) {
    name.erase(found, kWrapper.size());
  }
  return name;
}

Status QuantizationConfig::check_named(std::string_view module) const {
  if (refused.empty()) return {};
  const auto found = refused.find(without_wrapper(module));
  return found == refused.end() ? Status() : Status(found->second);
}

void QuantizationConfig::refuse(std::string_view module, Error error) {
  refused.emplace(without_wrapper(module), std::move(error));
}

std::string QuantizationConfig::method_name() const {
  return flavour == nullptr ? "none" : std::string(flavour->name);
}

Result<QuantizationConfig> read_quantization_config(const json::Object& config,
                                                    const SideFiles& files) {
  SUBBYTE_CHECK(refuse_mlx(config));
  SUBBYTE_TRY(const auto found, find_quantization_section(config));
  if (found) {
    SUBBYTE_TRY(const auto method, found->section.required_word("quant_method"));
    SUBBYTE_TRY(QuantizationConfig quantization, read_section(found->section, method));
    find_named_twice(found->section, quantization.kept, quantization.differs);
    SUBBYTE_CHECK(compare_other_sections(config, found->section, files, quantization.differs));
    return quantization;
  }
  if (const Flavour* const flavour = flavour_of_side_file(files)) {
    SUBBYTE_TRY(const SideFile file, files.read(flavour->side_file));
    SUBBYTE_TRY(const json::Object object, file.object());
    return read_section(object, flavour->name);
  }
  QuantizationConfig none;
  none.where = config.where();
  return none;
}

}  // namespace subbyte
