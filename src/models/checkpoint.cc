#include "models/checkpoint.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "base/model_file.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/orin_model.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

Result<ConfigFile> config_of(const fs::path& path) {
  SUBBYTE_TRY(const bool is_folder, is_folder(path));
  if (is_folder || is_orin_model(path) || !is_there(path)) return read_config_file(path);
  return Error{"model.not_found",
               fmt::format("{}: one file of a model; its directory is the model", path.string())};
}

}  // namespace

std::string Checkpoint::kind() const {
  if (model.ok()) return model->model_type;  // a container has none of its own
  if (!config.ok() || !config->value.is_object()) return "unknown";
  const auto type = config->value.find("model_type");
  return type != config->value.end() && type->is_string() ? type->get<std::string>() : "unknown";
}

Status Checkpoint::check_weights() const {
  SUBBYTE_CHECK(beside);
  if (!config.ok()) return config.error();
  if (!quantization.ok()) return quantization.error();
  return tensors.ok() ? Status() : Status(tensors.error());
}

Status Checkpoint::check_model() const {
  SUBBYTE_CHECK(beside);
  if (!model.ok()) return model.error();
  return check_weights();
}

Result<std::vector<FoundTensor>> Checkpoint::find_tensors(const ImportContext& context) const {
  SUBBYTE_CHECK(check_model());
  const ModelFamily& family = family_of(*model);
  SUBBYTE_TRY(const auto names, CheckpointNames::find(*tensors, family.experts));
  return subbyte::find_tensors(context, names, tensors_of(*model));
}

std::vector<FoundModule> Checkpoint::find_modules(const ImportContext& context) const {
  std::vector<FoundModule> modules = subbyte::find_modules(context);
  if (!model.ok()) return modules;
  const ModelFamily& family = family_of(*model);
  const auto names = CheckpointNames::find(*tensors, family.experts);
  if (!names.ok()) return modules;
  std::set<std::string> found;  // those of ModelOpt carry the name of their stack
  for (const FoundModule& module : modules) found.insert(module.name);
  for (const TensorSpec& spec : tensors_of(*model)) {
    if (!spec.is_of_experts() || names->has_experts_apart(spec)) continue;
    const FileMatrix stack = names->tensors_of(spec).matrices.front();
    if (tensors->find(stack.module) == nullptr || found.contains(stack.module)) continue;
    modules.push_back({stack.module, describe_module(context_of(context, stack), stack.module)});
  }
  return modules;
}

Checkpoint open_checkpoint(const fs::path& path, std::vector<Error>* problems) {
  Result<ConfigFile> config = config_of(path);
  Result<ModelConfig> model = config.ok() ? model_config_of(*config, path) : config.error();
  const auto object = config.ok() ? config->object() : config.error();
  Result<QuantizationConfig> quantization =
      object.ok() ? read_quantization_config(*object, path) : object.error();
  return {path,
          check_model_files(path),
          std::move(config),
          std::move(model),
          std::move(quantization),
          TensorSource::open(path, problems)};
}

Result<Checkpoint> open_weights(const fs::path& path) {
  Checkpoint checkpoint = open_checkpoint(path);
  SUBBYTE_CHECK(checkpoint.check_weights());
  return checkpoint;
}

Result<Checkpoint> open_matrices(const fs::path& path) {
  if (is_there(path / "config.json") || is_orin_model(path)) return open_weights(path);
  Checkpoint checkpoint = open_checkpoint(path);
  SUBBYTE_CHECK(checkpoint.beside);
  checkpoint.quantization = QuantizationConfig{};
  if (!checkpoint.tensors.ok()) return checkpoint.tensors.error();
  return checkpoint;
}

CheckpointSummary summarize(const Checkpoint& checkpoint, Executor& pool) {
  CheckpointSummary summary = {checkpoint.kind(), {}, checkpoint.check_model()};
  if (!checkpoint.quantization.ok() || !checkpoint.tensors.ok()) return summary;
  const ImportContext context = checkpoint.context(pool);
  if (summary.verdict.ok()) {
    const auto found = checkpoint.find_tensors(context);
    if (!found.ok()) summary.verdict = found.error();
  }
  for (const FoundModule& module : checkpoint.find_modules(context)) {
    if (!module.is_read || !module.info.ok()) continue;
    summary.formats[to_string(module.info->format)] += module.info->experts;
  }
  return summary;
}

json::Value to_json(const CheckpointSummary& summary) {
  json::Value formats = json::Value::array();
  for (const auto& [format, count] : summary.formats) {
    formats.push_back({{"format", format}, {"matrices", count}});
  }
  return {{"kind", summary.kind},
          {"formats", std::move(formats)},
          {"verdict", summary.verdict.ok() ? "ok" : summary.verdict.error().code}};
}

}  // namespace subbyte
