#include "models/checkpoint_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "base/quote.h"
#include "checkpoints/expert_names.h"
#include "checkpoints/import_parts.h"
#include "checkpoints/unread_parts.h"
#include "models/latent_weights.h"
#include "models/unread_layouts.h"

namespace subbyte {
namespace {

struct Prefix {
  std::string_view body;
  std::string_view head = kHead;
  std::string_view table = kTable;
};

constexpr std::string_view kBias = ".bias";
constexpr std::array<Prefix, 5> kPrefixes = {{{"model."},
                                              {"model.language_model."},
                                              {"language_model.model.", "language_model.lm_head"},
                                              {"backbone.", kHead, "embeddings"},
                                              {""}}};
constexpr std::string_view kPublishedBlock = ".block_sparse_moe.";
constexpr std::pair<std::string_view, std::string_view> kModuleNames[] = {
    {kPublishedBlock, ".mlp."},
    {".experts.w1", ".experts.gate_proj"},
    {".experts.w3", ".experts.up_proj"},
    {".experts.w2", ".experts.down_proj"}};

/// What follows a prefix, the most telling first.
constexpr std::array<std::string_view, 3> kFirstParts = {"embed_tokens.", "layers.0.", "norm."};

bool has_name_with(const TensorSource& tensors, const std::string& beginning) {
  const auto at = tensors.tensors().lower_bound(beginning);
  return at != tensors.tensors().end() && at->first.starts_with(beginning);
}

bool has_prefix(const TensorSource& tensors, std::string_view prefix) {
  return std::ranges::any_of(kFirstParts, [&](std::string_view first) {
    return has_name_with(tensors, std::string(prefix) + std::string(first));
  });
}

/// The first tensor that would be one of a model but for what stands in front.
const FileTensor* find_with_other_prefix(const TensorSource& tensors) {
  for (const std::string_view first : kFirstParts) {
    for (const auto& [name, tensor] : tensors.tensors()) {
      if (name.find("." + std::string(first)) != std::string::npos) return &tensor;
    }
  }
  return nullptr;
}

uint64_t size(int64_t value) {
  return static_cast<uint64_t>(value);
}

/// "model.layers..mlp.up_proj" of "model.layers.3.mlp.up_proj"
std::string without_layer(std::string_view module) {
  std::string name(module);
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

/// The bias of a module that is no stack.
FileVector bias_of(std::string_view module, int64_t rows) {
  return {fmt::format("{}.bias", module), {size(rows)}};
}

Status check_shape(const FileMatrix& matrix, const ModuleInfo& info) {
  if (info.experts != matrix.experts) {
    return Error{"model.weight_shape",
                 fmt::format("{} has {} experts, config.json asks for {}",
                             quote_name(matrix.module), info.experts, matrix.experts)};
  }
  if (info.rows == matrix.rows && info.cols == matrix.cols) return {};
  return Error{
      "model.weight_shape",
      fmt::format("{} has {} outputs and {} inputs, config.json asks for {} and {}",
                  quote_name(matrix.module), info.rows, info.cols, matrix.rows, matrix.cols)};
}

/// Walks over a list and keeps account of what of a checkpoint it has used.
class Finder {
 public:
  Finder(const ImportContext& context, const CheckpointNames& names, const ModelConfig& config)
      : context_(context), names_(names), left_(left_modules(names, config)) {}

  Result<FoundTensor> find(TensorSpec spec) {
    FoundTensor found;
    found.file = names_.tensors_of(spec);
    found.spec = std::move(spec);
    const bool may_be_absent = !found.spec.tied_to.empty();
    if (may_be_absent && !has_module(context_.tensors, found.file.matrices.front().module)) {
      found.file = {};
      return found;
    }
    if (found.spec.is_untied_if_there) found.spec.tied_to = {};
    for (const FileMatrix& matrix : found.file.matrices) {
      SUBBYTE_TRY(ModuleInfo info, describe(found.spec, matrix));
      found.infos.push_back(std::move(info));
    }
    for (const FileVector& vector : found.file.vectors) {
      SUBBYTE_TRY(const FileTensor* tensor, require_tensor(context_.tensors, vector.name, ""));
      SUBBYTE_CHECK(require_shape(*tensor, vector.shape));
      used_.insert(tensor->name);
    }
    return found;
  }

  Status check_rest() const {
    bool has_unread = false;  // which may be all that is quantized
    for (const auto& [name, tensor] : context_.tensors.tensors()) {
      if (is_in_unread_part(context_.tensors, name)) {
        has_unread = true;
        continue;
      }
      if (used_.contains(name) || is_ignored_tensor(name) || is_zero_bias(tensor)) continue;
      if (left_.contains(name.substr(0, name.rfind('.')))) continue;
      return Error{"model.surplus",
                   fmt::format("{}: tensor {}: not part of the model that config.json describes",
                               tensor.file->path().string(), quote_name(name))};
    }
    const QuantizationConfig& config = context_.config;
    if (config.flavour == nullptr || is_quantized_ || has_unread) return {};
    return Error{"import.config", fmt::format("{}: the method is {}, but no weight is quantized",
                                              config.where, quote(config.method_name()))};
  }

 private:
  Result<ModuleInfo> describe(const TensorSpec& spec, const FileMatrix& matrix) {
    SUBBYTE_TRY(ModuleInfo info, describe_matrix(context_, spec, matrix));
    SUBBYTE_CHECK(check_shape(matrix, info));
    const bool is_gate = spec.is_of_experts() && spec.parts.size() > 1 &&
                         names_.experts() == ExpertLayout::kAlternatingStacks &&
                         matrix.rows < spec.rows;
    if (is_gate) SUBBYTE_CHECK(check_gate_of_expert(context_.config, matrix.module));
    is_quantized_ = is_quantized_ || !is_dense(info);
    for (const FileTensor* tensor : info.tensors) used_.insert(tensor->name);
    return info;
  }

  const ImportContext& context_;
  const CheckpointNames& names_;
  std::set<std::string, std::less<>> left_;  // modules
  std::set<std::string_view> used_;
  bool is_quantized_ = false;
};

}  // namespace

Result<CheckpointNames> CheckpointNames::find(const TensorSource& tensors, ExpertLayout experts,
                                              std::string_view usual) {
  CheckpointNames names(tensors, experts);
  bool is_published = false;
  for (const auto& [name, tensor] : tensors.tensors()) {
    const auto has = [&name = name](std::string_view part) { return name.find(part) != name.npos; };
    const bool is_of_experts = has(".mlp.experts.") || has(".feed_forward.experts.");
    is_published = is_published || has(kPublishedBlock) || (is_of_experts && has(".w1."));
    names.has_module_names_ = names.has_module_names_ || is_of_experts;
    if (!name.ends_with(kBias)) continue;
    names.biased_.insert(without_layer(name.substr(0, name.size() - kBias.size())));
  }
  names.has_module_names_ = names.has_module_names_ && !is_published;
  const auto take = [&](const Prefix& prefix) {
    names.prefix_ = prefix.body;
    names.head_ = prefix.head;
    names.table_ = prefix.table;
  };
  const auto found = std::ranges::find_if(
      kPrefixes, [&](const Prefix& prefix) { return has_prefix(tensors, prefix.body); });
  if (found != kPrefixes.end()) {
    take(*found);
    return names;
  }
  take(*std::ranges::find(kPrefixes, usual, &Prefix::body));
  const FileTensor* other = find_with_other_prefix(tensors);
  if (other == nullptr) return names;  // nothing that a prefix could be told by
  return tensor_error("model.names", *other,
                      "expected a name that begins with model., model.language_model., "
                      "language_model.model. or embed_tokens.: save the model itself, without what "
                      "is wrapped around it");
}

bool CheckpointNames::has_biases(const TensorSpec& spec, std::span<const PartSpec> parts) const {
  if (!spec.has_bias || spec.role != TensorRole::kLinear) return spec.has_bias;
  return std::ranges::any_of(
      parts, [&](const PartSpec& part) { return biased_.contains(without_layer(part.name)); });
}

std::string CheckpointNames::full(std::string_view name) const {
  if (name == kHead) return std::string(head_);
  if (name == kTable) name = table_;
  std::string full = std::string(prefix_) + std::string(name);
  if (!has_module_names_) return full;
  for (const auto& [published, module] : kModuleNames) {
    const std::size_t at = full.find(published);
    if (at != full.npos) full.replace(at, published.size(), module);
  }
  return full;
}

/// Seen by the sizes; of a square matrix by those of the other stack of the layer, which has one
/// side twice as long as the other then.
bool CheckpointNames::has_inputs_first(const TensorSpec& spec) const {
  const auto has = [&](const std::string& stack, int64_t first, int64_t second) {
    const FileTensor* tensor = tensors_->find(stack);
    return tensor != nullptr && tensor->shape.size() == 3 && tensor->shape[1] == size(first) &&
           tensor->shape[2] == size(second);
  };
  std::string stack = full(spec.name);
  int64_t rows = spec.rows;
  int64_t cols = spec.cols;
  if (rows == cols) {
    stack.erase(stack.rfind('.') + 1);
    const bool is_down = spec.role == TensorRole::kExpertsDown;
    stack += is_down ? "gate_up_proj" : "down_proj";
    (is_down ? rows : cols) = is_down ? 2 * rows : cols / 2;
  }
  if (has(stack, cols, rows)) return true;
  return experts_ == ExpertLayout::kAlternatingStacks && !has(stack, rows, cols);
}

/// Names of the stacks whose experts are modules of their own; none where a stack is one module.
std::vector<PartSpec> CheckpointNames::stacks_apart(const TensorSpec& spec) const {
  const std::vector<PartSpec> parts = parts_of(spec);
  const PartSpec joined = {full(spec.name), spec.rows};
  const auto is_apart = [&](const PartSpec& part) {
    return has_module(*tensors_, expert_name(part.name, 0));
  };
  if (is_apart(parts.front())) return parts;
  if (has_module(*tensors_, joined.name)) return {};
  if (is_apart(joined)) return {joined};
  // There is nothing: it should be as the layout says.
  if (experts_ == ExpertLayout::kAlternatingStacks) return {};
  return parts;
}

FileTensors CheckpointNames::experts_of(const TensorSpec& spec) const {
  const std::vector<PartSpec> apart = stacks_apart(spec);
  const std::string stack = full(spec.name);
  const std::string stack_bias = stack + "_bias";
  const bool has_stack_bias = apart.empty() || tensors_->find(stack_bias) != nullptr;
  FileTensors found;
  found.rows = found.biases =
      experts_ == ExpertLayout::kAlternatingStacks ? PartOrder::kAlternating : PartOrder::kOneByOne;
  if (apart.size() > 1) found.rows = PartOrder::kApart;
  if (apart.size() > 1 && !has_stack_bias) found.biases = PartOrder::kApart;
  if (apart.empty()) {
    found.matrices.push_back({stack, spec.experts, spec.rows, spec.cols, has_inputs_first(spec)});
  }
  if (spec.has_bias && has_stack_bias) {
    found.vectors.push_back({stack_bias, {size(spec.experts), size(spec.rows)}});
  }
  for (int64_t e = 0; e < spec.experts; ++e) {
    for (const PartSpec& part : apart) {
      std::string module = expert_name(part.name, e);
      if (spec.has_bias && !has_stack_bias) found.vectors.push_back(bias_of(module, part.rows));
      found.matrices.push_back({std::move(module), 1, part.rows, spec.cols});
    }
  }
  return found;
}

std::vector<PartSpec> CheckpointNames::parts_of(const TensorSpec& spec) const {
  std::vector<PartSpec> parts = spec.parts;
  for (PartSpec& part : parts) part.name = full(part.name);
  if (parts.empty()) parts.push_back({full(spec.name), spec.rows});
  return parts;
}

FileTensors CheckpointNames::tensors_of(const TensorSpec& spec) const {
  if (spec.is_of_experts()) return experts_of(spec);
  FileTensors found;
  const std::string name = full(spec.name);
  if (spec.is_vector()) {
    FileVector vector = {spec.is_plain() ? name : name + ".weight", {size(spec.rows)}};
    if (spec.is_row) vector.shape = {1, size(spec.rows)};
    if (spec.role == TensorRole::kFilters) vector.shape = {size(spec.rows), 1, size(spec.cols)};
    found.vectors.push_back(std::move(vector));
    return found;
  }
  if (spec.latent.count > 0 && !has_module(*tensors_, name)) {
    // GGUF has both sides apart.
    const std::string place = name.substr(0, name.rfind('.') + 1);
    const auto side = [&](const char* module, const LatentShape& shape) {
      return FileMatrix{place + module, 1, shape.rows, shape.cols};
    };
    if (has_module(*tensors_, place + kKeysApart)) {
      found.matrices = {side(kKeysApart, latent_keys_shape(spec)),
                        side(kValuesApart, latent_values_shape(spec))};
      return found;
    }
  }
  std::vector<PartSpec> parts = parts_of(spec);
  const bool is_whole = parts.size() == 1 ||
                        (!has_module(*tensors_, parts.front().name) && has_module(*tensors_, name));
  if (is_whole) {
    parts = {{name, spec.rows}};
    found.rows = found.biases = PartOrder::kOneByOne;
  }
  const bool has_bias = has_biases(spec, parts);
  for (const PartSpec& part : parts) {
    if (has_bias) found.vectors.push_back(bias_of(part.name, part.rows));
    found.matrices.push_back({part.name, 1, part.rows, spec.cols});
  }
  return found;
}

ImportContext context_of(const ImportContext& context, const FileMatrix& matrix) {
  ImportContext result = context;
  result.stacks_have_inputs_first = matrix.inputs_first;
  return result;
}

Result<ModuleInfo> describe_matrix(const ImportContext& context, const TensorSpec& spec,
                                   const FileMatrix& matrix) {
  SUBBYTE_TRY(ModuleInfo info, describe_module(context_of(context, matrix), matrix.module));
  // One with a dimension of 1 before it would be read as the stack of one expert.
  if (is_dense(info) && !spec.is_of_experts()) SUBBYTE_CHECK(require_rank(*info.tensors[0], 2));
  return info;
}

std::set<std::string, std::less<>> left_modules(const CheckpointNames& names,
                                                const ModelConfig& config) {
  std::set<std::string, std::less<>> modules;
  for (const std::string& module : left_modules_of(config)) modules.insert(names.full(module));
  return modules;
}

Result<std::vector<FoundTensor>> find_tensors(const ImportContext& context,
                                              const CheckpointNames& names,
                                              const ModelConfig& config) {
  Finder finder(context, names, config);
  std::vector<TensorSpec> specs = tensors_of(config);
  std::vector<FoundTensor> tensors;
  tensors.reserve(specs.size());
  for (TensorSpec& spec : specs) {
    auto found = finder.find(std::move(spec));
    if (!found.ok()) {
      return with_unread_layout(context.tensors, tensors_of(config), std::move(found).error());
    }
    tensors.push_back(std::move(found).value());
  }
  const Status rest = finder.check_rest();
  if (!rest.ok()) return with_unread_layout(context.tensors, tensors_of(config), rest.error());
  return tensors;
}

bool is_zero_bias(const FileTensor& tensor) {
  const Format format = float_format(tensor.dtype);
  if (format == Format::kNone || tensor.shape.size() != 1 || !tensor.name.ends_with(".bias")) {
    return false;
  }
  const std::size_t width = static_cast<std::size_t>(bits(tensor.dtype)) / 8;
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    // Little-endian: the sign is the top bit of the last byte of each number.
    const std::byte sign = i % width == width - 1 ? std::byte{0x80} : std::byte{0};
    if ((tensor.bytes[i] & ~sign) != std::byte{0}) return false;
  }
  return true;
}

bool is_ignored_tensor(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".k_scale") ||
         name.ends_with(".v_scale");
}

}  // namespace subbyte
