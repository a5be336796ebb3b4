#include "transform/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/quote.h"
#include "base/small_letters.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/gguf_file.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/flavour.h"
#include "checkpoints/unread_parts.h"
#include "json/strict_json.h"
#include "models/checkpoint.h"
#include "models/latent_weights.h"
#include "models/model_config.h"
#include "models/model_family.h"
#include "transform/config_texts.h"
#include "transform/convert_gguf.h"
#include "transform/convert_plan.h"
#include "transform/format_hints.h"
#include "transform/rewrite.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

// Of the bytes that are written: to be raised when the same source becomes other bytes.
constexpr int kResumeRevision = 4;
constexpr std::string_view kOrin = "ak48";
constexpr std::pair<std::string_view, DType> kDense[] = {
    {"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}};

/// What a model file of OrinMLLM has to say for a config.json, and what readers of that ask for in
/// addition.
Status complete_config(json::Value& config, const json::Object& object) {
  SUBBYTE_TRY(const auto theta, object.number("rope_theta", 0, 1e300));
  if (!theta) {
    return object.error("convert.config", "rope_theta",
                        "a number, which config.json needs and versions 1 to 3 do not have");
  }
  config["torch_dtype"] = "float16";
  return {};
}

/// nullptr when this version does not know the model.
const ModelFamily* family_of(const json::Value& config) {
  const auto type = config.find("model_type");
  return type != nullptr && type->is_string() ? find_family(type->get<std::string>()) : nullptr;
}

/// What a container does not say, readers of config.json ask for.
void name_model(json::Value& config) {
  const ModelFamily* family = family_of(config);
  if (family == nullptr || config.contains("architectures")) return;
  const auto& names = family->containers;
  if (std::ranges::find(names, config["model_type"].get<std::string>()) == names.end()) return;
  const ModelType& type = family->model_types.front();
  config["model_type"] = type.name;
  config["architectures"] = json::Value::array({type.architecture});
}

Result<CheckpointParts> open_source(const fs::path& model, Executor& pool) {
  SUBBYTE_TRY(CheckpointParts source, open_weights(model));
  json::Value& config = source.config->value;
  SUBBYTE_TRY(const json::Object object, source.config->object());
  if (is_orin_model(model)) SUBBYTE_CHECK(complete_config(config, object));
  name_model(config);
  SUBBYTE_TRY(source.tensors, with_joined_latents(source.context(pool)));
  return source;
}

/// The exporter of a flavour that chooses one itself.
const Exporter* choose_in(const Flavour& flavour, const ImportContext& context) {
  std::vector<WeightFormat> formats;
  for (const FoundModule& module : find_modules(context)) {
    if (!module.is_read || !module.info.ok() || is_dense(*module.info)) continue;
    formats.push_back(module.info->format);
  }
  return flavour.choose(formats);
}

Result<ConvertTarget> choose_target(const ImportContext& context, const std::string& typed) {
  std::string name = typed;
  for (const auto& [dense, dtype] : kDense) {
    if (name == dense) return ConvertTarget{nullptr, dtype};
  }
  if (name == kOrin) return ConvertTarget{&orin_exporter(), DType::kF16, true};
  for (const Flavour* const flavour : all_flavours()) {
    if (flavour->choose == nullptr || name != flavour->name) continue;
    return ConvertTarget{choose_in(*flavour, context)};
  }
  name = small_letters(name);
  std::ranges::replace(name, '-', '_');
  for (const Exporter* const exporter : all_exporters()) {
    if (name == exporter->name || name == exporter->other_name) return ConvertTarget{exporter};
  }
  return unknown_format("convert.format", typed, conversion_formats());
}

std::string_view name_of(const ConvertTarget& target) {
  if (target.orin) return kOrin;
  if (target.exporter != nullptr) return target.exporter->name;
  return std::ranges::find(kDense, target.dense, [](const auto& entry) { return entry.second; })
      ->first;
}

/// Versions of transformers differ in which layers slide where a config leaves that to them, and
/// the one that wrote it is not the one that will read it: so it is said.
void state_layer_types(json::Value& config) {
  if (!config.at("use_sliding_window").is_boolean() || !config["use_sliding_window"].get<bool>() ||
      !config.at("layer_types").is_null()) {
    return;
  }
  const auto object = json::Object::of(config, "config.json");
  if (!object.ok()) return;
  const auto model = parse_model_config(*object);
  if (!model.ok()) return;  // of no family that slides here
  json::Value types = json::Value::array();
  for (const int64_t window : model->windows) {
    types.push_back(window > 0 ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

/// config.json, and what stands beside it for other readers. Floats have no quantization_config,
/// and a dtype.
std::vector<TextFile> texts_of(json::Value config, const ConvertTarget& target,
                               const ConvertPlan& plan) {
  state_layer_types(config);
  erase_other_sections(config);
  if (target.exporter != nullptr) return config_texts(config, *target.exporter, plan.exported);
  config.erase("quantization_config");
  const char* dtype = target.dense == DType::kF32    ? "float32"
                      : target.dense == DType::kBF16 ? "bfloat16"
                                                     : "float16";
  set_dtype(config, dtype);
  return {{"config.json", json::to_text(config, 2) + "\n"}};
}

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

/// The file for a model with that config, which has the quantization_config of AWQ. `model` is
/// where it comes from: readers of the file must see the same ModelConfig. Where the model has no
/// generation_config.json, one beside the file has the tokens of end that it does not name.
/// Codes: those of orin_header, lay_out_orin and read_model_config; export.format when config.json
/// says what the file cannot.
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

/// Shards with a config.json, or one file of OrinMLLM that stands for both.
Status lay_out(const CheckpointParts& source, const ConvertTarget& target, const ConvertPlan& plan,
               uint64_t shard_bytes, Rewrite& rewrite) {
  if (!target.orin) {
    rewrite.texts = texts_of(source.config->value, target, plan);
    SUBBYTE_TRY(rewrite.weights, lay_out_shards(plan.steps, shard_bytes));
    return {};
  }
  SideFile config = *source.config;
  config.value["quantization_config"] = target.exporter->config(plan.exported).section;
  SUBBYTE_TRY(rewrite.weights, lay_out_orin_model(source.files, config, plan.steps));
  return {};
}

/// What the format does not hold as it is, in the words that it was asked for with.
Error not_held(const Error& error, const CheckpointParts& source, const ConvertTarget& target) {
  if (error.code != "export.format" || target.exporter == nullptr) return error;
  const QuantizeFormat* const format = quantize_format_of(target.exporter->name);
  return {error.code,
          fmt::format("the model is in {}, whose weights {} does not hold as they are; `subbyte "
                      "convert --to f32`, then `subbyte quantize{}` rounds them ({})",
                      is_gguf(source.files.path()) ? "GGUF" : source.quantization->method_name(),
                      name_of(target),
                      format == nullptr ? "" : fmt::format(" --format {}", format->name),
                      error.message)};
}

}  // namespace

Result<ConvertReport> convert_model(const fs::path& model, const fs::path& destination,
                                    const ConvertOptions& options, Executor& pool,
                                    const ByteProgress& progress) {
  SUBBYTE_TRY(const CheckpointParts source, open_source(model, pool));
  if (options.format == kGgufFormat) {
    return convert_to_gguf(model, source, destination, options, pool, progress);
  }
  const ImportContext context = source.context(pool);
  SUBBYTE_TRY(ConvertTarget target, choose_target(context, options.format));
  if (const ModelFamily* family = family_of(source.config->value)) target.experts = family->experts;
  target.expert_count = ExpertCount::of(source.config, source.model);
  ConvertLoss loss = {options.allow_lossy};
  Result<ConvertPlan> planned = plan_conversion(context, target, loss);
  if (!planned.ok()) return not_held(planned.error(), source, target);
  ConvertPlan& plan = *planned;
  Rewrite rewrite = {.source = model,
                     .tensors = *source.tensors,
                     .notice = options.notice,
                     .check = options.check,
                     .progress = progress};
  SUBBYTE_CHECK(lay_out(source, target, plan, options.shard_bytes, rewrite));
  // Only what is exact goes on where it was stopped: the loss of a finished shard is not known.
  if (!options.allow_lossy) {
    SUBBYTE_CHECK(check_left_out(context, target, plan));
    rewrite.resumes = {{"revision", kResumeRevision},
                       {"format", name_of(target)},
                       {"shard_bytes", options.shard_bytes}};
  }
  const std::vector<std::string> unread = unread_quantized(plan.modules);
  if (!unread.empty()) rewrite.notices.push_back(describe_unread(source.files.path(), unread));
  rewrite.steps = std::move(plan.steps);
  SUBBYTE_CHECK(write_rewrite(rewrite, destination));
  return ConvertReport{.format = std::string(name_of(target)),
                       .converted_matrices = plan.converted,
                       .kept_tensors = plan.kept,
                       .source_bytes = source.tensors->total_bytes(),
                       .result_bytes = count_bytes(rewrite.steps),
                       .rounded_matrices = loss.rounded,
                       .loss = loss.all,
                       .worst = loss.worst,
                       .dropped_activation_scales = plan.activation_scales};
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::vector<std::string> conversion_formats() {
  std::vector<std::string> names;
  for (const Flavour* const flavour : all_flavours()) {
    if (flavour->choose != nullptr) names.emplace_back(flavour->name);
  }
  for (const Exporter* const exporter : all_exporters()) {
    if (exporter->is_listed) names.emplace_back(exporter->name);
  }
  names.emplace_back(kOrin);
  names.emplace_back(kGgufFormat);
  for (const auto& [name, dtype] : kDense) names.emplace_back(name);
  return names;
}

SUBBYTE_END_NAMESPACE
