#include "models/gpu_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/gpu_ranks.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "ops/kv_pool.h"
#include "parallel/stages.h"
#include "subbyte/format.h"

namespace subbyte {
namespace {

// Whole models of docs/benchmarks/README.md: 8b and 0.6b say share and seconds, prompts of 8b the
// products, those of 20b and 30b-a3b the products with experts (of the H200 scaled with them).
constexpr std::array kCards = {
    CardFigures{"H100", "2026-11-25", 84e9, 3.17e12, 0.86, 21e-6, 480e12, 290e12},
    CardFigures{"H200", "2026-11-29", 149e9, 4.57e12, 0.86, 22e-6, 500e12, 300e12},
};

struct Measured {
  double bytes;
  double seconds;
};

// Sums over two H200 that NVLink joins, in one kernel through peer memory, within a CUDA graph
// (2026-11-29).
constexpr std::array kSums = {
    Measured{4 << 10, 2.06e-6},   Measured{16 << 10, 2.18e-6}, Measured{64 << 10, 2.48e-6},
    Measured{256 << 10, 4.07e-6}, Measured{1 << 20, 9.02e-6},  Measured{4 << 20, 18.9e-6},
    Measured{16 << 20, 68.3e-6},  Measured{64 << 20, 272e-6},
};
// What the smallest one adds to a step, where the norm after it is in the same kernel. Over four
// twice as much follows from the rate of a 32b there.
constexpr double kExposedSum = 1.6e-6;

// A token over a border of two stages on H200s, beside the time of both, and bytes of a prompt a
// second (8b, 2026-11-30): the residual stream and what is added to it, in f32.
constexpr double kBorderSeconds = 0.24e-3;
constexpr double kBorderRate = 1e9;
constexpr double kBorderBytes = 8;

constexpr int64_t kStepTokens = 2048;  // of prompts
constexpr double kLeastPiece = 128;    // of them, that goes through stages by itself
constexpr double kValueBytes = 2;
constexpr double kValues = 6;  // of the widest, that a step holds at a time

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

/// What a rank keeps: its heads, but at least one, and all latents.
CacheLayout share_of(CacheLayout cache, int gpus) {
  const auto share = [gpus](int64_t count) { return (count + gpus - 1) / gpus; };
  for (CacheGroup& group : cache.groups) {
    if (group.is_state()) {
      group.state_size = share(group.state_size);
    } else if (!group.keys_alone) {
      group.kv_heads = share(group.kv_heads);
    }
  }
  return cache;
}

/// Adds the matrices of one tensor, which have so many bytes.
void add(const FoundTensor& tensor, int64_t all_bytes, ModelSizes& sizes) {
  const double bytes = static_cast<double>(all_bytes) / static_cast<double>(tensor.infos.size());
  for (const ModuleInfo& info : tensor.infos) {
    const double flops = 2.0 * static_cast<double>(info.rows) * static_cast<double>(info.cols);
    switch (tensor.spec.role) {
      case TensorRole::kTable:
        sizes.table_bytes += bytes;
        [[fallthrough]];
      case TensorRole::kRouter:
        sizes.whole_bytes += bytes;
        break;
      case TensorRole::kHead:
        sizes.divided_bytes += bytes;
        break;
      case TensorRole::kExpertsGateUp:
      case TensorRole::kExpertsDown:
        sizes.expert_bytes += bytes;
        sizes.experts = static_cast<double>(tensor.spec.experts);
        sizes.used_experts = static_cast<double>(tensor.spec.use.per_token);
        sizes.expert_flops +=
            flops * static_cast<double>(info.experts) * sizes.used_experts / sizes.experts;
        break;
      default:
        sizes.divided_bytes += bytes;
        sizes.linear_flops += flops;
        sizes.widest = std::max(sizes.widest, tensor.spec.rows);
    }
  }
}

class Planner {
 public:
  Planner(const ModelSizes& sizes, const GpuPlanRequest& request)
      : sizes_(sizes), request_(request), card_(*request.card) {}

  GpuPlan plan_stages() {
    plan_ = {};
    plan_.gpus = static_cast<int>(std::ssize(sizes_.stages));
    plan_.replicas = request_.gpus / plan_.gpus;
    const int64_t clients = (request_.clients + plan_.replicas - 1) / plan_.replicas;
    int64_t fitting = clients;
    for (const PlannedStage& stage : sizes_.stages)
      fitting = std::min(fitting, fit(stage, clients));
    for (const PlannedStage& stage : sizes_.stages) {
      fit(stage, clients);  // its weights and its cache
      const double cache = bytes_of_cache(std::max<int64_t>(fitting, 1));
      most_.weight_bytes = std::max(most_.weight_bytes, plan_.weight_bytes);
      most_.cache_bytes = std::max(most_.cache_bytes, cache);
    }
    plan_.weight_bytes = most_.weight_bytes;
    plan_.cache_bytes = most_.cache_bytes;
    plan_.at_once = std::min(request_.clients, fitting * plan_.replicas);
    if (fitting > 0) add_speeds_of_stages(static_cast<double>(fitting));
    return plan_;
  }

  GpuPlan plan(int gpus) {
    plan_ = {};
    plan_.gpus = gpus;
    plan_.replicas = request_.gpus / gpus;
    cache_ = share_of(sizes_.cache, gpus);
    const int64_t clients = (request_.clients + plan_.replicas - 1) / plan_.replicas;
    const double mine = (sizes_.divided_bytes + sizes_.expert_bytes) / gpus;
    const int64_t fitting = fit({sizes_.whole_bytes + mine, cache_}, clients);
    plan_.cache_bytes = bytes_of_cache(std::max<int64_t>(fitting, 1));
    plan_.at_once = std::min(request_.clients, fitting * plan_.replicas);
    if (fitting > 0) add_speeds(static_cast<double>(fitting));
    return plan_;
  }

  /// Clients that a GPU has room for that holds so much.
  int64_t fit(const PlannedStage& part, int64_t clients) {
    plan_.weight_bytes = part.weight_bytes;
    plan_.workspace_bytes = workspace_bytes(clients);
    cache_ = part.cache;
    return clients_that_fit(clients);
  }

 private:
  double bytes_of_cache(int64_t clients) const {
    const CacheSize size = {.positions = clients * kv_pages(request_.context) * kPagePositions,
                            .sequences = clients,
                            .step_tokens = kStepTokens};
    return static_cast<double>(cache_bytes(cache_, request_.cache_type, size));
  }

  double workspace_bytes(int64_t clients) const {
    const auto values =
        static_cast<double>(kStepTokens * std::max(sizes_.widest, sizes_.hidden_size));
    const auto logits = static_cast<double>(clients * sizes_.vocab_size);
    return kValues * kValueBytes * values + 2 * sizeof(float) * logits;
  }

  int64_t clients_that_fit(int64_t clients) const {
    const double room = card_.memory_bytes - plan_.weight_bytes - plan_.workspace_bytes;
    int64_t fitting = 0;
    for (int64_t more = int64_t{1} << 30; more > 0; more /= 2) {
      if (fitting + more <= clients && bytes_of_cache(fitting + more) <= room) fitting += more;
    }
    return fitting;
  }

  /// Bytes of experts that so many tokens use, if each takes any of them.
  double used_expert_bytes(double tokens) const {
    if (sizes_.experts == 0) return 0;
    const double unused = std::pow(1 - sizes_.used_experts / sizes_.experts, tokens);
    return sizes_.expert_bytes * (1 - unused);
  }

  double exchange_seconds(double tokens) const {
    if (plan_.gpus == 1) return 0;
    const double bytes = tokens * static_cast<double>(sizes_.hidden_size) * kValueBytes;
    return 2 * static_cast<double>(sizes_.layers) * sum_seconds(bytes, plan_.gpus);
  }

  /// Bytes of a stage's weights that a step of so many tokens reads.
  double read_of_stage(const PlannedStage& stage, bool is_first, double tokens) const {
    const double all = sizes_.whole_bytes + sizes_.divided_bytes + sizes_.expert_bytes;
    const double unread = sizes_.expert_bytes - used_expert_bytes(tokens);
    return stage.weight_bytes * (1 - unread / all) - (is_first ? sizes_.table_bytes : 0);
  }

  void add_speeds_of_stages(double clients) {
    const auto stages = static_cast<double>(sizes_.stages.size());
    const double tokens = std::max(1.0, clients / stages);  // of a step, of which each has one
    const double fixed = static_cast<double>(sizes_.layers) * card_.layer_seconds / stages;
    double sum = 0;
    double longest = 0;
    for (const PlannedStage& stage : sizes_.stages) {
      const double cache = tokens * static_cast<double>(cache_read_bytes(
                                        stage.cache, request_.cache_type, request_.context));
      const double read = read_of_stage(stage, &stage == sizes_.stages.data(), tokens) + cache;
      const double seconds =
          fixed + read / (card_.read_bandwidth * card_.read_share) + tokens * product_seconds(0);
      sum += seconds;
      longest = std::max(longest, seconds);
    }
    plan_.exchange_seconds = (stages - 1) * kBorderSeconds;
    const double at_once = std::min(stages, clients);  // steps
    plan_.step_seconds = std::max(sum + plan_.exchange_seconds, at_once * longest);
    plan_.tokens_per_second = static_cast<double>(plan_.at_once) / plan_.step_seconds;
    const auto context = static_cast<double>(request_.context);
    const double prompt = std::min(context, static_cast<double>(kStepTokens));
    const double pieces = std::clamp(prompt / kLeastPiece, 1.0, 2 * stages);
    const double over = prompt * kBorderBytes * static_cast<double>(sizes_.hidden_size);
    plan_.prompt_per_second =
        prompt / ((prompt * product_seconds(context / 2) + fixed) * (pieces + stages - 1) / pieces +
                  plan_.exchange_seconds + (stages > 1 ? over / kBorderRate : 0));
  }

  /// Products of one token on one GPU; attention reads `positions`.
  double product_seconds(double positions) const {
    double attention = 0;
    for (const CacheGroup& group : sizes_.cache.groups) {
      if (group.is_state()) continue;
      const auto window = static_cast<double>(group.window);
      attention += static_cast<double>(group.layers + group.readers) *
                   (group.window > 0 ? std::min(positions, window) : positions);
    }
    attention *= 4.0 * static_cast<double>(sizes_.heads * sizes_.head_dim);
    const double seconds =
        (sizes_.linear_flops + attention) / card_.flops + sizes_.expert_flops / card_.expert_flops;
    return seconds / plan_.gpus;
  }

  void add_speeds(double clients) {
    const double fixed = static_cast<double>(sizes_.layers) * card_.layer_seconds;
    const auto context = static_cast<double>(request_.context);
    const double cache = clients * static_cast<double>(cache_read_bytes(cache_, request_.cache_type,
                                                                        request_.context));
    const double weights = sizes_.whole_bytes - sizes_.table_bytes +
                           (sizes_.divided_bytes + used_expert_bytes(clients)) / plan_.gpus;
    plan_.exchange_seconds = exchange_seconds(clients);
    plan_.step_seconds = fixed + (weights + cache) / (card_.read_bandwidth * card_.read_share) +
                         clients * product_seconds(0) + plan_.exchange_seconds;
    const double answered = static_cast<double>(plan_.at_once);
    plan_.tokens_per_second = answered / plan_.step_seconds;
    const double tokens = std::min(context, static_cast<double>(kStepTokens));
    plan_.prompt_per_second =
        tokens / (tokens * product_seconds(context / 2) + fixed + exchange_seconds(tokens));
  }

  const ModelSizes& sizes_;
  const GpuPlanRequest& request_;
  const CardFigures& card_;
  CacheLayout cache_;  // of one GPU
  GpuPlan plan_;
  GpuPlan most_;  // of the stages
};

}  // namespace

std::span<const CardFigures> measured_cards() {
  return kCards;
}

const CardFigures* find_card(std::string_view name) {
  const auto is_it = [name](const CardFigures& card) {
    return std::ranges::equal(card.name, name, {}, lower, lower);
  };
  const auto found = std::ranges::find_if(kCards, is_it);
  return found == kCards.end() ? nullptr : &*found;
}

Result<ModelSizes> sizes_of(const ModelFiles& files, Executor& pool,
                            const MatrixBytes& matrix_bytes) {
  const CheckpointParts checkpoint = open_checkpoint(files);
  SUBBYTE_CHECK(checkpoint.check_model());
  const ModelConfig& config = *checkpoint.model;
  SUBBYTE_TRY(const auto tensors, checkpoint.find_tensors(checkpoint.context(pool)));
  SUBBYTE_TRY(const WeightNeed weights, weight_need(tensors, 16, matrix_bytes));
  SUBBYTE_TRY(const StepPlan step, plan_of(config));
  ModelSizes sizes = {.layers = config.num_layers,
                      .hidden_size = config.hidden_size,
                      .vocab_size = config.vocab_size,
                      .heads = config.num_heads,
                      .head_dim = config.head_dim,
                      .cache = step.cache};
  bool has_head = false;
  for (const FoundTensor& tensor : tensors) {
    if (!tensor.spec.tied_to.empty() || tensor.spec.is_far) continue;
    has_head = has_head || tensor.spec.role == TensorRole::kHead;
    if (!tensor.infos.empty()) add(tensor, weights.bytes.at(tensor.spec.name), sizes);
  }
  if (!has_head) sizes.table_bytes = 0;  // a step reads it as its head
  return sizes;
}

Status add_stages(ModelSizes& sizes, const StepPlan& plan, int stages) {
  SUBBYTE_TRY(const std::vector<Stage> all, even_stages(plan, stages));
  for (const Stage& stage : all) {
    const StageParts parts = parts_of(plan, stage);
    sizes.stages.push_back({static_cast<double>(parts.weight_bytes), parts.cache});
  }
  return {};
}

int64_t layers_that_fit(const ModelSizes& sizes, const StepPlan& plan,
                        const GpuPlanRequest& request) {
  for (int64_t layers = sizes.layers; layers > 0; --layers) {
    const auto stages = stages_with_last(plan, layers);
    if (!stages.ok()) continue;
    const StageParts parts = parts_of(plan, stages->back());
    const PlannedStage last = {static_cast<double>(parts.weight_bytes), parts.cache};
    if (Planner(sizes, request).fit(last, request.clients) == request.clients) return layers;
  }
  return 0;
}

std::vector<GpuPlan> gpu_plans(const ModelSizes& sizes, const GpuPlanRequest& request) {
  std::vector<GpuPlan> plans;
  Planner planner(sizes, request);
  if (!sizes.stages.empty()) {
    if (request.gpus >= std::ssize(sizes.stages)) plans.push_back(planner.plan_stages());
    return plans;
  }
  const int64_t most = std::min<int64_t>({request.gpus, sizes.heads, kMaxGpuRanks});
  for (int gpus = 1; gpus <= most; ++gpus) {
    if (request.gpus % gpus == 0) plans.push_back(planner.plan(gpus));
  }
  return plans;
}

double sum_seconds(double bytes, int gpus) {
  // Each GPU sends and receives 2 (R - 1) / R of them; the way takes longer, the more there are.
  const double moved = bytes * 2 * (gpus - 1) / gpus;
  const double exposed = kExposedSum * std::log2(gpus);
  if (moved <= kSums.front().bytes) return exposed;
  std::size_t last = 1;
  while (last + 1 < kSums.size() && moved > kSums[last].bytes) ++last;
  const Measured& a = kSums[last - 1];
  const Measured& b = kSums[last];
  const double seconds =
      a.seconds + (b.seconds - a.seconds) * (moved - a.bytes) / (b.bytes - a.bytes);
  return exposed + seconds - kSums.front().seconds;
}

}  // namespace subbyte
