#include "transform/convert_orin.h"

#include <fmt/format.h>

#include "base/quote.h"
#include "checkpoints/containers/orin_model.h"
#include "json/strict_json.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

/// What readers of the file take for the config.
Result<ModelConfig> config_of(const OrinHeader& header) {
  const json::Value value = orin_config(header);
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "ak48"));
  return parse_model_config(object);
}

Status check_same_model(const ModelFiles& model, const std::string& where,
                        const ModelConfig& expected, ModelConfig found) {
  // Where there is no generation_config.json, one is written that has the tokens of end.
  const bool end_is_kept = !model.has(kGenerationFile) || expected.eos_tokens == found.eos_tokens;
  found.eos_tokens = expected.eos_tokens;
  if (found.model_type != expected.model_type) {
    return Error{"export.format",
                 fmt::format("{}: ak48 is for models of the type {}, found {}", where,
                             quote(found.model_type), quote(expected.model_type))};
  }
  if (found != expected) {
    return Error{"export.format",
                 fmt::format("{}: ak48 has no place for what it says beside sizes, such as layers "
                             "with sliding windows",
                             where)};
  }
  if (end_is_kept) return {};
  // Read once more from a copy of generation_config.json alone.
  SUBBYTE_TRY(const SideFile generation, model.read(kGenerationFile));
  const json::Value& value = generation.value;
  if (value.is_object() && value.contains("eos_token_id") && !value["eos_token_id"].is_null()) {
    return {};
  }
  return Error{"export.format", fmt::format("{}: ak48 has no place for its eos_token_id, and {} "
                                            "does not name it",
                                            where, generation.where)};
}

}  // namespace

Result<WeightFiles> lay_out_orin_model(const ModelFiles& model, const SideFile& config,
                                       std::span<const WriteStep> steps) {
  SUBBYTE_TRY(const json::Object object, config.object());
  SUBBYTE_TRY(const OrinHeader header, orin_header(object));
  SUBBYTE_TRY(const ModelConfig expected, read_model_config(model));
  SUBBYTE_TRY(const ModelConfig found, config_of(header));
  SUBBYTE_CHECK(check_same_model(model, config.where, expected, found));
  SUBBYTE_TRY(WeightFiles weights, lay_out_orin(header, steps));
  if (!model.has(kGenerationFile) && expected.eos_tokens != found.eos_tokens) {
    const json::Value tokens = {{"eos_token_id", expected.eos_tokens}};
    weights.texts.push_back({kGenerationFile, json::to_text(tokens, 2) + "\n"});
  }
  return weights;
}

}  // namespace subbyte
