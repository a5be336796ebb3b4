#include "models/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/quote.h"
#include "checkpoints/modules.h"
#include "models/head_bits.h"
#include "models/weight_loader.h"

namespace subbyte {
namespace {

constexpr int64_t kMostJoined = 3;  // q, k and v

/// A tied head that the file has all the same is not loaded.
bool is_left_out(std::string_view module, const ModelConfig& config) {
  return config.tie_word_embeddings && module == kHeadModule;
}

Result<MatrixShape> shape_of(const FoundModule& module, const ModelConfig& config, int head_bits) {
  SUBBYTE_TRY(const ModuleInfo info, module.info);
  MatrixShape shape = {info.format, info.rows, info.cols, info.experts, info.act_order};
  const bool is_table =
      module.name == kTableModule || (module.name == kHeadModule && !config.tie_word_embeddings);
  if (is_table && head_bits != 16 && is_dense(info.format)) {
    SUBBYTE_TRY(shape.format, head_format(head_bits, info.cols, *info.tensors.front()));
  }
  return shape;
}

int64_t elements_of(const FileTensor& tensor) {
  return static_cast<int64_t>(tensor.bytes.size()) * 8 / bits(tensor.dtype);
}

}  // namespace

StepShape step_shape(const ModelConfig& config, const LoadOptions& options) {
  StepShape shape;
  shape.tokens = options.step_tokens;
  shape.sequences = options.step_sequences;
  shape.logits = options.step_logits;
  shape.positions = kv_pages(options.cache_positions) * kKvPagePositions;
  shape.hidden = config.hidden_size;
  shape.intermediate = config.intermediate_size;
  shape.vocab = config.vocab_size;
  shape.heads = config.num_heads;
  shape.kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.experts = config.num_experts;
  shape.experts_per_token = config.experts_per_token;
  shape.expert_size = config.expert_size;
  return shape;
}

Result<MemoryNeed> memory_need(const ImportContext& context, const ModelConfig& config,
                               const LoadOptions& options, const MachineMemory& memory) {
  MemoryNeed need;
  std::set<std::string_view> in_modules;
  for (const FoundModule& module : find_modules(context)) {
    SUBBYTE_TRY(const MatrixShape shape, shape_of(module, config, options.head_bits));
    for (const FileTensor* tensor : module.info->tensors) in_modules.insert(tensor->name);
    if (is_left_out(module.name, config)) continue;
    const auto bytes = memory.matrix_bytes(shape);
    if (!bytes.ok()) {
      return Error{bytes.error().code,
                   fmt::format("{}: {}", quote_name(module.name), bytes.error().message)};
    }
    need.weights += *bytes;
    if (is_dense(shape.format)) continue;
    // Experts are packed one after the other.
    const int64_t at_once = shape.experts > 1 ? *bytes / shape.experts : kMostJoined * *bytes;
    need.staging = std::max(need.staging, at_once);
  }
  for (const auto& [name, tensor] : context.tensors.tensors()) {
    if (in_modules.contains(name) || is_ignored_tensor(name)) continue;
    need.weights += memory.vector_bytes(elements_of(tensor));
  }
  const KvShape cache = {config.num_layers, config.num_kv_heads, config.head_dim,
                         options.cache_type};
  need.cache = kv_pages(options.cache_positions) * cache.page_bytes();
  need.workspace = memory.workspace_bytes(step_shape(config, options));
  return need;
}

}  // namespace subbyte
