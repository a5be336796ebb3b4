#include "verify/inspect.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/model_file.h"
#include "checkpoints/config/model_files.h"
#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/modules.h"
#include "checkpoints/unread_parts.h"
#include "foreign_layouts/ggml_types.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "verify/refusals.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualStepTokens = 512;  // of a prompt, on CPUs

/// Bytes of the matrices as they are in memory, not in blocks of the file.
uint64_t host_bytes(const ModuleInfo& info) {
  if (is_dense(info.format)) return info.bytes();
  MatrixView view;
  view.format = info.format;
  view.cols = info.cols;
  const int64_t bytes = view.row_bytes() + view.scale_row_bytes() + view.zero_row_bytes();
  return static_cast<uint64_t>(info.experts * info.rows * bytes);
}

void add_modules(std::span<const FoundModule> modules, std::set<std::string, std::less<>>& used,
                 Inspection& inspection) {
  for (const FoundModule& module : modules) {
    if (!module.info.ok()) {  // its tensors are listed as they are
      if (module.is_read) inspection.problems.push_back(module.info.error().message);
      continue;
    }
    const ModuleInfo& info = *module.info;
    InspectedWeight weight;
    weight.name = module.name;
    weight.flavour = info.importer;
    weight.format = to_string(info.format);
    weight.shape = {static_cast<uint64_t>(info.rows), static_cast<uint64_t>(info.cols)};
    if (info.experts > 1) weight.shape.insert(weight.shape.begin(), info.experts);
    weight.parameters = info.experts * info.rows * info.cols;
    weight.bytes = info.bytes();
    weight.act_order = info.act_order;
    if (inspection.gguf) inspection.gguf->memory_bytes += host_bytes(info);
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
    weight.flavour = "tensor";
    weight.format = std::string(type_name(tensor));
    std::ranges::transform(weight.format, weight.format.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
    weight.shape = tensor.shape;
    weight.parameters = number_count(tensor);
    weight.bytes = tensor.bytes.size();
    if (inspection.gguf) inspection.gguf->memory_bytes += weight.bytes;
    inspection.weights.push_back(std::move(weight));
  }
}

/// The config of a directory or a model file. What this version cannot run is a problem, and no
/// error here.
Status add_configs(const CheckpointParts& checkpoint, Inspection& inspection) {
  if (!checkpoint.config.ok()) return checkpoint.config.error();
  SUBBYTE_TRY(const json::Object config, checkpoint.config->object());
  SUBBYTE_CHECK(config.string("model_type"));
  inspection.architecture = checkpoint.kind();
  if (!checkpoint.beside.ok()) inspection.problems.push_back(checkpoint.beside.error().message);
  if (checkpoint.model.ok()) {
    inspection.model = std::make_shared<const ModelConfig>(*checkpoint.model);
  } else {
    inspection.problems.push_back(checkpoint.model.error().message);
  }
  if (checkpoint.quantization.ok()) {
    inspection.quantization = checkpoint.quantization->method_name();
  } else {
    inspection.quantization = "unsupported";
    inspection.problems.push_back(checkpoint.quantization.error().message);
  }
  return {};
}

/// Of a file that opened before.
InspectedGguf describe_gguf(const GgufModel& model) {
  const auto text = [&](std::string_view key) {
    const GgufValue* const value = model.keys().find(key);
    return std::string(value == nullptr ? "" : value->string().value_or(""));
  };
  InspectedGguf gguf = {.architecture = text("general.architecture"),
                        .tokenizer = text("tokenizer.ggml.model"),
                        .pre_tokenizer = text("tokenizer.ggml.pre")};
  const GgufValue* const tokens = model.keys().find("tokenizer.ggml.tokens");
  if (tokens != nullptr) gguf.tokens = tokens->size();
  std::map<uint32_t, InspectedGguf::Type> types;
  for (const GgufFile& part : model.parts()) {
    for (const GgufTensor& tensor : part.tensors()) {
      InspectedGguf::Type& type = types[tensor.type];
      type.name = find_ggml_type(tensor.type)->name;
      ++type.tensors;
      type.bytes += tensor.bytes.size();
    }
  }
  for (const auto& [number, type] : types) gguf.types.push_back(type);
  std::ranges::stable_sort(gguf.types, std::greater(), &InspectedGguf::Type::bytes);
  return gguf;
}

void add_refusals(const ModelFiles& files, Backend& backend, Inspection& inspection) {
  inspection.reads_scales = inspection.scale_bytes <= kMaxScaleBytes;
  const Reads reads = inspection.reads_scales ? Reads::kScales : Reads::kHeaders;
  for (const Refusal& refusal : find_refusals(files, backend, reads)) {
    const std::string& message = refusal.error.message;
    const bool known = std::ranges::find(inspection.problems, message) != inspection.problems.end();
    if (!known) inspection.problems.push_back(message);
  }
}

}  // namespace

double InspectedWeight::bits_per_weight() const {
  return parameters == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

double Inspection::bits_per_weight() const {
  return parameters == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

bool Inspection::is_run_here() const {
  return model != nullptr && problems.empty() && notes.empty();
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

uint64_t weight_bytes(const Inspection& inspection) {
  return inspection.gguf ? inspection.gguf->memory_bytes : inspection.bytes;
}

uint64_t full_context_bytes(const Inspection& inspection, const ModelConfig& model) {
  const CacheSize full = {.positions = model.max_positions, .step_tokens = kUsualStepTokens};
  return weight_bytes(inspection) +
         static_cast<uint64_t>(cache_bytes(cache_of(model), Element::kF16, full));
}

Result<Inspection> inspect(const ModelFiles& files, Executor& pool, Backend* backend) {
  Inspection inspection;
  SUBBYTE_TRY(const bool is_directory, is_folder(files.path()));
  const bool is_model = is_directory || is_model_file(files.path());
  const CheckpointParts checkpoint = open_checkpoint(files);
  const bool has_config = is_model && (!is_directory || files.has(kConfigFile));
  if (has_config) {
    SUBBYTE_CHECK(add_configs(checkpoint, inspection));
    const Status tokenizer = check_tokenizer_file(files);
    if (!tokenizer.ok()) inspection.notes.push_back(tokenizer.error().message);
  }
  if (!checkpoint.tensors.ok()) return checkpoint.tensors.error();
  const TensorSource& tensors = *checkpoint.tensors;
  if (is_gguf(files.path())) {
    SUBBYTE_TRY(const GgufModel model, GgufModel::open(files.path()));
    inspection.gguf = describe_gguf(model);
    if (inspection.quantization == "none") inspection.quantization = "gguf";
  }
  for (const fs::path& file : tensors.files()) inspection.files.push_back(file.string());
  inspection.unread = std::ranges::count_if(tensors.tensors(), [&](const auto& tensor) {
    return is_in_unread_part(tensors, tensor.first);
  });
  std::set<std::string, std::less<>> used;
  if (has_config && checkpoint.quantization.ok()) {
    ImportContext context = checkpoint.context(pool);
    context.keeps_cols = true;
    add_modules(checkpoint.find_modules(context), used, inspection);
  }
  add_plain_tensors(tensors, used, inspection);
  std::ranges::sort(inspection.weights, {}, &InspectedWeight::name);
  for (const InspectedWeight& weight : inspection.weights) {
    inspection.parameters += weight.parameters;
    inspection.bytes += weight.bytes;
  }
  if (backend != nullptr && is_model) add_refusals(files, *backend, inspection);
  return inspection;
}

}  // namespace subbyte
