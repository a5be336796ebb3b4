#include "cuda_backend/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/sample.h"
#include "kernels/gpu/packed_weights.h"
#include "kernels/gpu/served_format.h"
#include "ops/token_choice.h"

namespace subbyte {
namespace {

constexpr int64_t kTensorElementBytes = 4;
constexpr int64_t kTensors = 64;  // of a step, each at a multiple of kAlignment
constexpr int64_t kAlignment = 256;
constexpr int64_t kKindsOfLayers = 2;  // with a window and without: each has tasks of its own
constexpr int64_t kPromptRows = 16;    // of a task of attention, at least

int64_t up(int64_t a, int64_t b) {
  return static_cast<int64_t>(ceil_div(a, b));
}

/// What attention does with split keys.
struct SplitTasks {
  int64_t merges = 0;
  int64_t splits = 0;
};

/// Of one token of each sequence, or in batch-invariant mode, where prompts have split keys too, of
/// every token, as if none shared a task.
SplitTasks most_splits(const StepShape& s, bool batch_invariant) {
  const int64_t row_tiles = up(s.heads, s.kv_heads * cuda::kSplitRows);
  const int64_t tiles = row_tiles * (batch_invariant ? s.tokens : s.sequences);
  return {tiles, tiles * cuda::kMostSplits};
}

/// Choices with all that they may have: penalties, biases, and all positions as history, in a
/// packet that grows by doubling.
int64_t choice_bytes(const StepShape& s) {
  cuda::SampleCall call;
  call.vocabulary = s.vocab;
  call.num_choices = s.sequences;
  call.has_changes = true;
  const int64_t rows = s.sequences * static_cast<int64_t>(sizeof(cuda::ChoiceRow));
  const int64_t biases = s.sequences * kMostBiases * static_cast<int64_t>(sizeof(TokenBias));
  return cuda::sample_scratch_bytes(call) + 2 * (rows + biases + s.positions * 4);
}

/// Tensors of the models, angles, tokens with their places and pages, tasks, logits, choices.
int64_t tensor_bytes(const StepShape& s, const SplitTasks& split) {
  const int64_t qkv = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const int64_t cols = 3 * s.hidden + s.intermediate + qkv + s.heads * s.head_dim + s.experts;
  const int64_t angles = s.head_dim * (s.tokens + 1) * 4;
  const int64_t packet = s.tokens * static_cast<int64_t>(4 + sizeof(cuda::RowPlace)) +
                         2 * (up(s.positions, kKvPagePositions) + s.sequences) * 4 + s.logits * 4 +
                         s.sequences * 4;
  const int64_t prompt_tasks = up(s.tokens * s.heads, s.kv_heads * kPromptRows) + s.sequences;
  const int64_t tasks = kKindsOfLayers * (prompt_tasks + up(9 * (split.splits + split.merges), 8)) *
                        static_cast<int64_t>(sizeof(cuda::AttentionTask));
  const int64_t logits = s.logits * (s.vocab * 4 + s.hidden * kTensorElementBytes);
  return s.tokens * cols * kTensorElementBytes + angles + packet + tasks + logits +
         choice_bytes(s) + kTensors * kAlignment;
}

std::string mib(int64_t bytes) {
  return std::to_string(up(bytes, int64_t{1} << 20));
}

}  // namespace

CudaWorkspace workspace_of(const StepShape& s, const CudaStepRunner& runner) {
  const int64_t most_cols = std::max({s.hidden, s.intermediate, s.heads * s.head_dim});
  const SplitTasks split = most_splits(s, runner.batch_invariant());
  const int64_t partials = std::min(split.splits, cuda::kMostPartials);
  CudaWorkspace workspace;
  workspace.tensors = tensor_bytes(s, split);
  workspace.products = s.tokens * up(most_cols, 8) * 16;
  workspace.results = std::max(s.tokens * 2 * s.intermediate, s.logits * s.vocab) * 2;
  workspace.partials =
      std::max(partials * 4 * cuda::attention_partial_floats(s.kv_heads, s.head_dim),
               StepPrograms::partial_bytes(s.heads, s.kv_heads, s.head_dim));
  workspace.programs = StepPrograms::kMemoryBytes;
  workspace.experts = runner.expert_bytes(s);
  return workspace;
}

Result<int64_t> cuda_matrix_bytes(const MatrixShape& shape) {
  if (shape.experts != 1) return expert_matrix_bytes(shape);
  const WeightFormat served = gpu::served_format(shape.format, shape.rows, shape.cols);
  if (is_dense(served)) {
    return WeightArena::aligned(shape.rows * shape.cols * (info(served.element).bits / 8));
  }
  auto bytes = gpu::packed_bytes(served, shape.rows, shape.cols, shape.act_order);
  if (!bytes.ok()) return Error{"linear.unsupported", std::move(bytes).error().message};
  return WeightArena::aligned(*bytes);
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

Status CudaMemory::reserve(const MemoryNeed& need, const StepShape& shape) {
  SUBBYTE_CHECK(check_free(need));
  const CudaWorkspace workspace = workspace_of(shape, runner_);
  SUBBYTE_CHECK(arena_.reserve(need.weights));
  SUBBYTE_CHECK(runner_.reserve(workspace, shape));
  return uploader_.reserve(need.staging);
}

Status CudaMemory::finish_loading() {
  arena_.close();
  return uploader_.finish();
}

MemoryNeed CudaMemory::held() const {
  MemoryNeed held;
  held.weights = arena_.held();
  held.workspace = runner_.device_bytes();
  held.staging = uploader_.staging_bytes();
  return held;
}

}  // namespace subbyte
