#pragma once
// How a model fits on GPUs that need not be there, and how fast it is expected to be: its sizes by
// the headers of its files, what one GPU of that kind measured, and what links between them did.
//
//   a step of n sequences on R GPUs
//     fixed time of its layers
//   + bytes of weights (of experts those that n tokens use) and caches, a GPU's share, as read
//   + products of n tokens, a GPU's share
//   + two sums over the GPUs for each layer
//
// Of stages each has the same of its layers and of n / R sequences, all at once, and a step is as
// long as R times the longest; fewer sequences wait for each stage, and for what goes between them.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/config/model_files.h"
#include "models/memory_need.h"
#include "ops/cache_layout.h"
#include "subbyte/executor.h"

namespace subbyte {

/// A kind of GPU, as whole models were measured on one of them (docs/benchmarks/README.md).
struct CardFigures {
  std::string_view name;      // "H200"
  std::string_view date;      // of the newest figure that these follow
  double memory_bytes = 0;    // that programs can have
  double read_bandwidth = 0;  // bytes per second
  double read_share = 0;      // of that, which the bytes of a step reach
  double layer_seconds = 0;   // of a step, beside its bytes
  double flops = 0;           // per second, of products of prompts
  double expert_flops = 0;    // the same with experts
};

std::span<const CardFigures> measured_cards();
/// nullptr for one that was not measured. Upper and lower case are alike.
const CardFigures* find_card(std::string_view name);

/// One of several stages.
struct PlannedStage {
  double weight_bytes = 0;
  CacheLayout cache;
};

/// Bytes and products of a model.
struct ModelSizes {
  double whole_bytes = 0;    // of weights that each GPU has: vectors, the table, routers
  double divided_bytes = 0;  // of those that GPUs divide, but for experts
  double expert_bytes = 0;   // of all experts
  double table_bytes = 0;    // of whole_bytes: a token reads a row of it
  double experts = 0;        // of a layer
  double used_experts = 0;   // by a token
  double linear_flops = 0;   // of a token, without the head
  double expert_flops = 0;   // the same of experts that it uses
  int64_t widest = 0;        // numbers of a value of a step, of one token
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  CacheLayout cache;
  std::vector<PlannedStage> stages{};  // where it is divided by layers
};

/// Reads headers alone. Bytes are as `matrix_bytes` says. Codes: those of
/// CheckpointParts::find_tensors, of plan_of and of `matrix_bytes`.
Result<ModelSizes> sizes_of(const ModelFiles& files, Executor& pool,
                            const MatrixBytes& matrix_bytes);
/// Divides a model into so many stages. Code device.stages.
Status add_stages(ModelSizes& sizes, const StepPlan& plan, int stages);

struct GpuPlanRequest {
  const CardFigures* card = nullptr;
  int gpus = 1;
  int64_t context = 0;  // tokens of each client: cache that it has, and that a step reads
  int64_t clients = 1;
  Element cache_type = Element::kF16;
};

/// Replicas of the model, each on the same number of GPUs.
struct GpuPlan {
  int gpus = 1;  // of a replica
  int replicas = 1;
  double weight_bytes = 0;  // of one GPU, as the others
  double cache_bytes = 0;
  double workspace_bytes = 0;
  int64_t at_once = 0;  // clients that all replicas answer at the same time; 0: there is no room
  double step_seconds = 0;
  double exchange_seconds = 0;   // of these
  double tokens_per_second = 0;  // of all clients
  double prompt_per_second = 0;  // tokens of prompts that one replica reads
};

/// One plan for each number of GPUs that divides theirs, leaves each a head, and is not above
/// kMaxGpuRanks. Of a model in stages one alone, whose replicas are as many GPUs as there are
/// stages.
std::vector<GpuPlan> gpu_plans(const ModelSizes& sizes, const GpuPlanRequest& request);

/// The last layers, of which the head is one, for which one GPU has room with all caches of the
/// request; 0: not even for the head.
int64_t layers_that_fit(const ModelSizes& sizes, const StepPlan& plan,
                        const GpuPlanRequest& request);

/// Seconds that a sum of so many bytes over GPUs that NVLink joins adds to a step. Those over two
/// were measured.
double sum_seconds(double bytes, int gpus);

}  // namespace subbyte
