#include "models/memory_need.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "models/head_bits.h"
#include "models/latent_weights.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxJoined = 3;  // q, k and v
constexpr int64_t kMaxPages = int64_t{1} << 28;

/// Elements of a tensor whose sizes are those of config.json, which are limited.
int64_t elements_of(const Shape& shape) {
  int64_t elements = 1;
  for (const uint64_t size : shape) elements *= static_cast<int64_t>(size);
  return elements;
}

Result<MatrixShape> shape_of(const TensorSpec& spec, const ModuleInfo& info, int head_bits) {
  MatrixShape shape = {info.format,  info.rows,      info.cols,
                       info.experts, info.act_order, spec.is_of_experts()};
  const bool is_table = spec.role == TensorRole::kTable || spec.role == TensorRole::kHead;
  if (is_table && head_bits != 16 && is_dense(info.format)) {
    SUBBYTE_TRY(shape.format, head_format(head_bits, info.cols, *info.tensors.front()));
  }
  return shape;
}

/// Both sides of a matrix with LatentHeads, which lie in the memory of the host until they are
/// there.
Result<int64_t> latent_bytes(const FoundTensor& tensor, const MatrixBytes& matrix_bytes) {
  int64_t both = 0;
  for (const LatentShape& side :
       {latent_keys_shape(tensor.spec), latent_values_shape(tensor.spec)}) {
    SUBBYTE_TRY(const int64_t bytes,
                matrix_bytes({.format = latent_format(tensor.infos.front().format, false),
                              .rows = side.rows,
                              .cols = side.cols}));
    both += bytes;
  }
  return both;
}

}  // namespace

StepSize step_size(const LoadOptions& options) {
  return {options.step_tokens, options.step_sequences, options.step_logits,
          kv_pages(options.cache_positions) * kPagePositions};
}

CacheSize cache_size(const LoadOptions& options, const CacheLayout& layout) {
  CacheSize size = {options.cache_positions, options.step_sequences, options.step_tokens,
                    options.keeps_prefixes};
  if (!size.keeps_prefixes) return size;
  size.checkpoints = checkpoints_in(layout, options.cache_type, size, options.state_cache_bytes);
  return size;
}

int64_t positions_within(LoadOptions options, const CacheLayout& layout, int64_t bytes) {
  const auto takes = [&](int64_t pages) {
    options.cache_positions = pages * kPagePositions;
    return cache_bytes(layout, options.cache_type, cache_size(options, layout));
  };
  int64_t most = 0;
  for (int64_t more = kMaxPages; more > 0; more /= 2) {
    if (takes(most + more) <= bytes) most += more;
  }
  return most * kPagePositions;
}

Result<WeightNeed> weight_need(std::span<const FoundTensor> tensors, int head_bits,
                               const MatrixBytes& matrix_bytes) {
  WeightNeed need;
  for (const FoundTensor& tensor : tensors) {
    if (!tensor.spec.tied_to.empty()) continue;  // not loaded, though a file may have it
    if (tensor.spec.is_far) continue;            // in the memory of the host
    for (std::size_t i = 0; i < tensor.infos.size(); ++i) {
      int64_t& sum = need.bytes[tensor.spec.name];
      if (tensor.spec.latent.count > 0) {
        SUBBYTE_TRY(sum, latent_bytes(tensor, matrix_bytes));
        need.staging = std::max(need.staging, sum);
        continue;
      }
      SUBBYTE_TRY(const MatrixShape shape, shape_of(tensor.spec, tensor.infos[i], head_bits));
      const auto bytes = matrix_bytes(shape);
      if (!bytes.ok()) {
        return Error{bytes.error().code,
                     fmt::format("{}: {}", quote_name(tensor.file.matrices[i].module),
                                 bytes.error().message)};
      }
      sum += *bytes;
      // Floats are used where they lie, unless codes become them (factors of inputs).
      if (is_dense(shape.format) && is_dense(tensor.infos[i]) && !shape.is_of_moe) continue;
      // Experts are packed one after the other.
      const int64_t at_once = shape.experts > 1 ? *bytes / shape.experts : kMaxJoined * *bytes;
      need.staging = std::max(need.staging, at_once);
    }
  }
  return need;
}

MemoryNeed memory_need(std::span<const FoundTensor> tensors, const WeightNeed& weights,
                       const StepPlan& plan, const LoadOptions& options,
                       const MachineMemory& memory) {
  MemoryNeed need = {.staging = weights.staging};
  for (const auto& [name, bytes] : weights.bytes) need.weights += bytes;
  for (const FoundTensor& tensor : tensors) {
    if (!tensor.spec.tied_to.empty() || tensor.spec.is_far) continue;
    for (const FileVector& vector : tensor.file.vectors) {
      need.weights += memory.vector_bytes(elements_of(vector.shape));
    }
  }
  need.cache = cache_bytes(plan.cache, options.cache_type, cache_size(options, plan.cache));
  need.workspace = memory.workspace_bytes(plan, step_size(options));
  return need;
}

}  // namespace subbyte
