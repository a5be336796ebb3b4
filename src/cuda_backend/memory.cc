#include "cuda_backend/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "cuda_backend/attention.h"
#include "cuda_backend/step_programs.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/gpu/packed_weights.h"
#include "kernels/gpu/supported_format.h"
#include "ops/token_choice.h"

namespace subbyte {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kPacketArrays =
    16;                              // of a step, besides values, each at a multiple of kAlignment
constexpr int64_t kPromptRows = 16;  // of a task of attention, at least

int64_t up(int64_t a, int64_t b) {
  return static_cast<int64_t>(ceil_div(a, b));
}

/// What attention of a kind does with split keys.
struct SplitTasks {
  int64_t merges = 0;
  int64_t splits = 0;
};

/// Of one token of each sequence, or in batch-invariant mode, where prompts have split keys too, of
/// every token, as if none shared a task.
SplitTasks max_splits(const cuda::AttentionLayers& layers, const StepSize& size,
                      bool batch_invariant) {
  const int64_t row_tiles = up(layers.q_per_kv, cuda::kSplitRows);
  const bool is_by_token = batch_invariant || layers.top > 0;
  const int64_t tiles = row_tiles * (is_by_token ? size.tokens : size.sequences);
  return {tiles, tiles * cuda::kMaxSplits};
}

/// Pages of all sequences.
int64_t max_pages(const StepSize& size) {
  return up(size.positions, kPagePositions) + size.sequences;
}

/// Tasks of prompts, of split keys and of their merges, and pages of latents that are expanded.
int64_t task_bytes(const AttentionKind& kind, const StepSize& size, const SplitTasks& split) {
  const int64_t prompt = up(size.tokens * kind.layers.q_per_kv, kPromptRows) + size.sequences;
  const int64_t of_expanded =
      kind.latents.heads == 0
          ? 0
          : max_pages(size) * static_cast<int64_t>(sizeof(cuda::ExpandedPage)) + kAlignment;
  return (prompt + up(9 * (split.splits + split.merges), 8)) *
             static_cast<int64_t>(sizeof(cuda::AttentionTask)) +
         of_expanded;
}

/// Choices with all that they may have: penalties, biases, and all positions as history, in a
/// packet that grows by doubling. Ranks choose in two steps.
int64_t choice_bytes(int64_t vocabulary, const StepSize& size) {
  cuda::SampleCall call;
  call.vocabulary = vocabulary;
  call.num_choices = size.sequences;
  call.has_changes = true;
  const int64_t rows = 2 * size.sequences * static_cast<int64_t>(sizeof(cuda::ChoiceRow));
  const int64_t biases = size.sequences * kMaxBiases * static_cast<int64_t>(sizeof(LogitBias));
  return cuda::sample_scratch_bytes(call) + 2 * (rows + biases + size.positions * 4);
}

/// Floats of activations that other stages have sent or are sent.
int64_t exchanged_bytes(const StepPlan& plan, const StepSize& size) {
  int64_t bytes = 0;
  for (const ReceiveOp* op : ops_of<ReceiveOp>(plan))
    bytes += size.tokens * op->cols * 4 + kAlignment;
  for (const SendOp* op : ops_of<SendOp>(plan)) {
    bytes += size.tokens * plan.value(op->x).cols * 4 + kAlignment;
  }
  return bytes;
}

int64_t value_bytes(const StepPlan& plan, const StepSize& size) {
  int64_t bytes = 0;
  for (const ValueSlot& slot : assign_slots(plan).slots) {
    const int64_t rows = slot.rows == ValueRows::kTokens ? size.tokens : size.logits;
    bytes += rows * slot.cols * (slot.type == ValueType::kFloat ? 4 : 2) + kAlignment;
  }
  return bytes + exchanged_bytes(plan, size);
}

/// Tokens and rows of the head; for each group of the cache the places of tokens and a table of
/// pages that grows by doubling, or states.
int64_t packet_bytes(const StepPlan& plan, const StepSize& size) {
  const int64_t place = size.tokens * static_cast<int64_t>(sizeof(cuda::RowPlace));
  const int64_t table = 2 * (up(size.positions, kPagePositions) + size.sequences) * 4;
  const int64_t states = size.sequences * static_cast<int64_t>(sizeof(cuda::StatePart));
  const int64_t of_group = place + table + states + 3 * kAlignment;
  const int64_t are_long = plan.cache.long_after > 0 ? up(size.tokens, kAlignment) : 0;
  return (size.tokens + size.logits + size.sequences) * 4 + are_long + kPacketArrays * kAlignment +
         std::ssize(plan.cache.groups) * of_group;
}

/// What single operations work in.
void add_operations(const StepPlan& plan, const StepSize& size, CudaWorkspace& workspace) {
  const auto raise = [](int64_t& to, int64_t bytes) { to = std::max(to, bytes); };
  for (const Op& op : plan.ops) {
    if (const auto* linear = std::get_if<LinearOp>(&op.what)) {
      const StepValue& y = plan.value(linear->y);
      const int64_t rows = y.rows == ValueRows::kTokens ? size.tokens : size.logits;
      raise(workspace.products, rows * up(linear->weight.cols, 8) * 16);
      if (y.type == ValueType::kFloat) raise(workspace.results, rows * y.cols * 2);
    } else if (const auto* gated = std::get_if<GatedLinearOp>(&op.what)) {
      raise(workspace.products, size.tokens * up(gated->gate_up.cols, 8) * 16);
      raise(workspace.results, size.tokens * gated->gate_up.rows * 2);
    }
  }
}

/// What attention works in.
int64_t partial_bytes(const Op& op, const StepSize& size, const StepRunnerOptions& options) {
  if (std::holds_alternative<SelectOp>(op.what)) {
    const int64_t pages = 2 * (up(size.positions, kPagePositions) + size.sequences);
    return CudaAttention::select_bytes(size.tokens, pages * kPagePositions);
  }
  const auto* const attend = std::get_if<AttendOp>(&op.what);
  if (attend == nullptr) return 0;
  const AttentionShape& shape = attend->shape;
  const SplitTasks split =
      max_splits(kind_of(*attend, false).layers, size, options.batch_invariant);
  const int64_t partials = std::min(split.splits, cuda::kMaxPartials) * 4 *
                           cuda::attention_partial_floats(shape.kv_heads, shape.value_dim());
  if (shape.values_in_keys > 0) return partials;  // which programs do not have
  return std::max(partials,
                  StepPrograms::partial_bytes(shape.heads, shape.kv_heads, shape.head_dim));
}

std::string mib(int64_t bytes) {
  return std::to_string(up(bytes, int64_t{1} << 20));
}

}  // namespace

CudaWorkspace CudaStepRunner::workspace(const StepPlan& plan, const StepSize& size) const {
  CudaWorkspace workspace;
  workspace.tensors =
      value_bytes(plan, size) + packet_bytes(plan, size) + choice_bytes(plan.vocab_size(), size);
  for (const Op& op : plan.ops) {
    if (const auto* angles = std::get_if<AnglesOp>(&op.what)) {
      const Rope& rope = *angles->rope;
      workspace.tensors += std::ssize(rope.inv_freq()) * 8 + kAlignment;
      if (rope.long_after() > 0) workspace.tensors += std::ssize(rope.inv_freq()) * 8 + kAlignment;
    } else if (const auto* experts = std::get_if<ExpertsOp>(&op.what)) {
      workspace.experts =
          std::max(workspace.experts, moe_.memory_bytes(experts->experts, size.tokens));
    } else if (const auto* net = std::get_if<DeltaNetOp>(&op.what)) {
      workspace.delta_nets =
          std::max(workspace.delta_nets, delta_nets_.memory_bytes(net->shape, size));
    }
  }
  for (const AttentionKind& kind : attention_kinds(plan)) {
    const SplitTasks split = max_splits(kind.layers, size, options_.batch_invariant);
    workspace.tensors += task_bytes(kind, size, split) + 4 * kAlignment;
    if (kind.latents.heads == 0 || options_.batch_invariant) continue;
    workspace.expansion =
        std::max(workspace.expansion, kind.latents.most_bytes(max_pages(size) * kPagePositions));
  }
  for (const Op& op : plan.ops) {
    workspace.partials = std::max(workspace.partials, partial_bytes(op, size, options_));
  }
  add_operations(plan, size, workspace);
  workspace.programs = StepPrograms::kMemoryBytes;
  return workspace;
}

Result<int64_t> CudaMemory::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaError_t error = cudaSetDevice(gpu_);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) return cuda_error("cuda.device", name(), error);
  return static_cast<int64_t>(free);
}

Status CudaMemory::check_free(const MemoryNeed& need) const {
  SUBBYTE_TRY(const int64_t free, free_bytes());
  if (need.peak() - held().workspace <= free) return {};
  std::string message = "the model needs " + mib(need.peak()) + " MiB (weights " +
                        mib(need.weights) + " + cache " + mib(need.cache) + " + workspace " +
                        mib(need.workspace);
  if (need.peak() > need.sum()) {
    message += ", + " + mib(need.staging) + " instead of a cache while it is loaded";
  }
  return Error{"memory.device", message + "), and " + mib(free) + " MiB are free on " + name()};
}

Status CudaMemory::reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) {
  MemoryNeed all = need;
  // Small experts are staged some at a time.
  if (need.staging > 0) all.staging = std::max(need.staging, device::Uploader::kSlotBytes);
  SUBBYTE_CHECK(check_free(all));
  SUBBYTE_CHECK(arena_.reserve(all.weights));
  SUBBYTE_CHECK(runner_.reserve(runner_.workspace(plan, size)));
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(gpu_, stream_));
  SUBBYTE_CHECK(uploader_.staging(all.staging, gpu));
  return {};
}

Status CudaMemory::finish_loading() {
  arena_.close();
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(gpu_, stream_));
  return uploader_.finish(gpu);
}

MemoryNeed CudaMemory::held() const {
  MemoryNeed held;
  held.weights = arena_.held();
  held.workspace = runner_.device_bytes();
  held.staging = uploader_.staging_bytes();
  return held;
}

}  // namespace subbyte
