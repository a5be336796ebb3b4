#include "verify/inspect.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/model_file.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/modules.h"
#include "models/checkpoint_names.h"
#include "models/model.h"
#include "models/model_family.h"
#include "verify/refusals.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualStepTokens = 512;  // of a prompt, on CPUs

/// What importers recognize, and stacks of floats: which tensors those are, the list of the family
/// knows. Counts what is not read.
std::vector<FoundModule> modules_of(const ImportContext& context, Inspection& inspection) {
  std::vector<FoundModule> modules = find_modules(context);
  if (!inspection.model) return modules;
  const ModelFamily& family = family_of(*inspection.model);
  const auto names = CheckpointNames::find(context.tensors, family.experts, family.unread);
  if (!names.ok()) return modules;
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    if (names->is_unread(name)) ++inspection.unread;
  }
  for (const TensorSpec& spec : family.tensors(*inspection.model)) {
    if (!spec.is_of_experts() || names->has_experts_apart(spec)) continue;
    const FileMatrix stack = names->tensors_of(spec).matrices.front();
    if (context.tensors.find(stack.module) == nullptr) continue;
    modules.push_back({stack.module, describe_module(context_of(context, stack), stack.module)});
  }
  return modules;
}

void add_modules(const ImportContext& context, std::set<std::string, std::less<>>& used,
                 Inspection& inspection) {
  for (const FoundModule& module : modules_of(context, inspection)) {
    if (!module.info.ok()) {
      inspection.problems.push_back(module.info.error().message);
      continue;
    }
    const ModuleInfo& info = *module.info;
    InspectedWeight weight;
    weight.name = module.name;
    weight.importer = info.importer;
    weight.format = to_string(info.format);
    weight.shape = {static_cast<uint64_t>(info.rows), static_cast<uint64_t>(info.cols)};
    if (info.experts > 1) weight.shape.insert(weight.shape.begin(), info.experts);
    weight.parameters = info.experts * info.rows * info.cols;
    weight.bytes = info.bytes();
    weight.act_order = info.act_order;
    for (const FileTensor* part : info.tensors) used.insert(part->name);
    if (info.scales != nullptr) inspection.scale_bytes += info.scales->bytes.size();
    inspection.weights.push_back(std::move(weight));
  }
}

void add_plain_tensors(const TensorSource& tensors, const std::set<std::string, std::less<>>& used,
                       Inspection& inspection) {
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (used.contains(name)) continue;
    InspectedWeight weight;
    weight.name = name;
    weight.importer = "tensor";
    weight.format = std::string(subbyte::name(tensor.dtype));
    std::ranges::transform(weight.format, weight.format.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
    weight.shape = tensor.shape;
    weight.parameters = tensor.bytes.size() * 8 / bits(tensor.dtype);
    weight.bytes = tensor.bytes.size();
    inspection.weights.push_back(std::move(weight));
  }
}

/// The config of a directory or a model file. What this version cannot run is a problem, and no
/// error here.
Result<QuantizationConfig> read_configs(const fs::path& path, Inspection& inspection) {
  SUBBYTE_TRY(const ConfigFile file, read_config_file(path));
  SUBBYTE_TRY(const json::Object config, file.object());
  SUBBYTE_TRY(const auto type, config.string("model_type"));
  inspection.architecture = type.value_or("unknown");
  auto model = read_model_config(path);
  if (model.ok()) {
    inspection.architecture = model->model_type;  // a container has none
    inspection.model = *std::move(model);
  } else {
    inspection.problems.push_back(model.error().message);
  }
  auto quantization = read_quantization_config(config, path);
  if (quantization.ok()) {
    inspection.quantization = quantization->method_name();
    return quantization;
  }
  inspection.quantization = "unsupported";
  inspection.problems.push_back(quantization.error().message);
  return QuantizationConfig{};
}

}  // namespace

double InspectedWeight::bits_per_weight() const {
  return parameters == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

double Inspection::bits_per_weight() const {
  return parameters == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

bool Inspection::knows_weights() const {
  const bool is_understood = !architecture.empty() && quantization != "unsupported";
  return is_understood || std::ranges::all_of(weights, [](const InspectedWeight& weight) {
           return weight.format.starts_with('f') || weight.format.starts_with("bf");
         });
}

CacheLayout cache_of(const ModelConfig& model) {
  auto plan = plan_of(model);
  return plan.ok() ? std::move(plan->cache) : CacheLayout{};
}

uint64_t full_context_bytes(const Inspection& inspection, const ModelConfig& model) {
  const CacheSize full = {.positions = model.max_positions, .step_tokens = kUsualStepTokens};
  return inspection.bytes +
         static_cast<uint64_t>(cache_bytes(cache_of(model), Element::kF16, full));
}

Result<Inspection> inspect(const fs::path& path, Executor& pool, Backend* backend) {
  Inspection inspection;
  QuantizationConfig quantization;
  std::error_code ignored;
  const bool has_config = is_there(path / "config.json");
  if ((has_config && fs::is_directory(path, ignored)) || is_orin_model(path)) {
    SUBBYTE_TRY(quantization, read_configs(path, inspection));
  }
  SUBBYTE_TRY(const TensorSource tensors, TensorSource::open(path));
  for (const fs::path& file : tensors.files()) inspection.files.push_back(file.string());
  std::set<std::string, std::less<>> used;
  const bool understood =
      !inspection.architecture.empty() && inspection.quantization != "unsupported";
  if (understood) add_modules({tensors, quantization, pool}, used, inspection);
  add_plain_tensors(tensors, used, inspection);
  std::ranges::sort(inspection.weights, {}, &InspectedWeight::name);
  for (const InspectedWeight& weight : inspection.weights) {
    inspection.parameters += weight.parameters;
    inspection.bytes += weight.bytes;
  }
  if (backend != nullptr && (fs::is_directory(path, ignored) || is_orin_model(path))) {
    inspection.reads_scales = inspection.scale_bytes <= kMaxScaleBytes;
    const Reads reads = inspection.reads_scales ? Reads::kScales : Reads::kHeaders;
    for (const Refusal& refusal : find_refusals(path, *backend, reads)) {
      const std::string& message = refusal.error.message;
      const bool known =
          std::ranges::find(inspection.problems, message) != inspection.problems.end();
      if (!known) inspection.problems.push_back(message);
    }
  }
  return inspection;
}

}  // namespace subbyte
