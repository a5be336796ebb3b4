#include "models/checkpoint.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "base/model_file.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/model_path.h"
#include "models/gguf_model.h"
#include "models/model_family.h"
#include "subbyte/checkpoint.h"

namespace subbyte {
namespace fs = std::filesystem;

std::string CheckpointParts::kind() const {
  if (model.ok()) return model->model_type;  // a container has none of its own
  if (!config.ok() || !config->value.is_object()) return "unknown";
  const auto type = config->value.find("model_type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "unknown";
}

Status CheckpointParts::check_weights() const {
  SUBBYTE_CHECK(beside);
  if (!config.ok()) return config.error();
  if (!quantization.ok()) return quantization.error();
  return tensors.ok() ? Status() : Status(tensors.error());
}

Status CheckpointParts::check_model() const {
  SUBBYTE_CHECK(beside);
  if (!model.ok()) return model.error();
  return check_weights();
}

Result<std::vector<FoundTensor>> CheckpointParts::find_tensors(const ImportContext& context) const {
  SUBBYTE_CHECK(check_model());
  const ModelFamily& family = family_of(*model);
  SUBBYTE_TRY(const auto names, CheckpointNames::find(*tensors, family.experts));
  return subbyte::find_tensors(context, names, *model);
}

std::vector<FoundModule> CheckpointParts::find_modules(const ImportContext& context) const {
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
    if (!has_module(*tensors, stack.module) || found.contains(stack.module)) continue;
    modules.push_back({stack.module, describe_module(context_of(context, stack), stack.module)});
  }
  return modules;
}

CheckpointParts open_checkpoint(const ModelFiles& files, std::vector<Error>* problems) {
  fill_config(files);
  Result<SideFile> config = files.config();
  const auto object = config.ok() ? config->object() : config.error();
  Result<QuantizationConfig> quantization =
      object.ok() ? read_quantization_config(*object, files.beside_weights()) : object.error();
  return {files,
          check_model_files(files.path()),
          std::move(config),
          model_config_of(files),
          std::move(quantization),
          open_tensors(files, problems)};
}

Result<CheckpointParts> open_weights(const ModelFiles& files) {
  CheckpointParts checkpoint = open_checkpoint(files);
  SUBBYTE_CHECK(checkpoint.check_weights());
  return checkpoint;
}

Result<CheckpointParts> open_matrices(const ModelFiles& files) {
  if (files.beside_weights().has(kConfigFile) || is_model_file(files.path())) {
    return open_weights(files);
  }
  CheckpointParts checkpoint = open_checkpoint(files);
  SUBBYTE_CHECK(checkpoint.beside);
  checkpoint.quantization = QuantizationConfig{};
  if (!checkpoint.tensors.ok()) return checkpoint.tensors.error();
  return checkpoint;
}

CheckpointSummary summarize(const CheckpointParts& checkpoint, Executor& pool) {
  CheckpointSummary summary = {checkpoint.kind(), {}, checkpoint.check_model()};
  if (!checkpoint.quantization.ok() || !checkpoint.tensors.ok()) return summary;
  ImportContext context = checkpoint.context(pool);
  context.keeps_cols = true;
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

SUBBYTE_BEGIN_NAMESPACE

namespace {

Error missing(std::string_view name) {
  return Error{"import.missing",
               "expected a tensor " + quote_name(name) + ", found none of that name"};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& model, std::shared_ptr<Executor> threads) {
  SUBBYTE_TRY(const fs::path path, find_checkpoint(model.string()));
  SUBBYTE_TRY(CheckpointParts files, open_matrices(path));
  return Checkpoint(std::make_shared<const CheckpointParts>(std::move(files)),
                    threads_or_own(std::move(threads)));
}

const std::vector<fs::path>& Checkpoint::files() const {
  return files_->tensors->files();
}

const TensorMap& Checkpoint::tensors() const {
  return files_->tensors->tensors();
}

Result<FileTensor> Checkpoint::tensor(std::string_view name) const {
  const FileTensor* const found = files_->tensors->find(name);
  if (found == nullptr) return missing(name);
  return *found;
}

Result<std::vector<float>> Checkpoint::numbers(std::string_view name) const {
  const FileTensor* const found = files_->tensors->find(name);
  if (found == nullptr) return missing(name);
  return import_vector(*files_->tensors, name, found->shape);
}

std::vector<FoundModule> Checkpoint::modules() const {
  return find_modules(files_->context(*threads_));
}

Result<Matrix> Checkpoint::matrix(std::string_view module) const {
  return import_matrix(files_->context(*threads_), module);
}

Result<std::vector<Matrix>> Checkpoint::experts(std::string_view module) const {
  return import_experts(files_->context(*threads_), module);
}

Status Checkpoint::verify_unchanged() const {
  return files_->tensors->verify_unchanged();
}

SUBBYTE_END_NAMESPACE
