#include "cuda_backend/attention.h"

#include <algorithm>
#include <tuple>

#include "cuda_backend/kv_memory.h"
#include "cuda_backend/weights.h"
#include "kernels/cuda/attention/attend_batch.h"
#include "kernels/cuda/attention/latent.h"
#include "kernels/cuda/attention/paged_hopper.h"
#include "kernels/cuda/attention/rotate.h"
#include "kernels/cuda/attention/select.h"

namespace subbyte {
namespace {

cuda::QueryGrowth growth_of(const QueryScale& scale) {
  return {scale.beta, static_cast<int32_t>(scale.first), static_cast<int32_t>(scale.step)};
}

constexpr int64_t kMaxScores = int64_t{64} << 20;  // bytes at a time, unless a row has more

int64_t rows_at_a_time(int64_t tokens, int64_t positions) {
  return std::clamp<int64_t>(kMaxScores / (positions * 4), 1, tokens);
}

}  // namespace

cuda::ExpandedSizes expanded_sizes(const LatentSizes& latent, bool are_16bit) {
  const cuda::ExpandedSizes sizes = {latent.heads, latent.rank,  latent.turning,
                                     latent.nope,  latent.value, latent.top};
  return are_16bit && sizes.is_supported() ? sizes : cuda::ExpandedSizes();
}

bool has_16bit_latents(const StepPlan& plan) {
  const auto is_wide = [](const Weight& weight) {
    if (weight.storage == nullptr) return false;
    return !is_one_dense(weight) ||
           cuda_weight(weight).parts.front().weights->element() == Element::kF32;
  };
  return std::ranges::none_of(plan.ops, [&](const Op& op) {
    const auto* const attend = std::get_if<AttendOp>(&op.what);
    return attend != nullptr && attend->latent.heads > 0 &&
           (is_wide(attend->latent_keys) || is_wide(attend->latent_values));
  });
}

AttentionKind kind_of(const AttendOp& op, bool are_16bit) {
  const AttentionShape& shape = op.shape;
  AttentionKind kind = {
      op.cache.group,
      {shape.heads / shape.kv_heads, shape.kv_heads, shape.window, shape.in_chunks, shape.top},
      shape.values_in_keys > 0 ? 0 : shape.head_dim};
  kind.latents = expanded_sizes(op.latent, are_16bit);
  kind.has_sinks = op.sinks.size > 0;
  return kind;
}

std::vector<AttentionKind> attention_kinds(const StepPlan& plan) {
  const bool are_16bit = has_16bit_latents(plan);
  std::vector<AttentionKind> kinds;
  for (const Op& op : plan.ops) {
    const auto* const attend = std::get_if<AttendOp>(&op.what);
    if (attend == nullptr) continue;
    const AttentionKind kind = kind_of(*attend, are_16bit);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

bool CudaAttention::supports(const SelectOp& op) {
  const AttentionShape& shape = op.shape;
  return shape.heads <= cuda::kMaxSelectHeads && shape.head_dim % 16 == 0 &&
         shape.head_dim <= cuda::kMaxSelectHead;
}

Status CudaAttention::find_angles(float* cos, float* sin, const Rope& rope) {
  cuda::AnglesCall call = {.cos = cos,
                           .sin = sin,
                           .places = step_.positions(),
                           .num_rows = step_.num_tokens(),
                           .half = std::ssize(rope.inv_freq()),
                           .factor = rope.attention_factor()};
  SUBBYTE_TRY(call.inv_freq, step_.frequencies(rope.inv_freq()));
  if (rope.long_after() > 0) {
    call.are_long = step_.are_long();
    SUBBYTE_TRY(call.long_inv_freq, step_.frequencies(rope.long_inv_freq()));
  }
  cuda::run_angles(call, stream_);
  return {};
}

KvLayer CudaAttention::cache(const CacheSlot& slot) const {
  return static_cast<const CudaKvMemory&>(step_.memory(slot.group)).layer(slot.layer);
}

cuda::StepAttention CudaAttention::of_program(const RotateOp& op, const float* cos,
                                              const float* sin, int64_t turning) const {
  const auto& [shape, norms] = std::tie(op.shape, op.norms);
  cuda::StepAttention a = {};
  a.heads = static_cast<int32_t>(shape.heads);
  a.kv_heads = static_cast<int32_t>(shape.kv_heads);
  a.head_dim = static_cast<int32_t>(shape.head_dim);
  a.turning = static_cast<int32_t>(turning);
  a.window = static_cast<int32_t>(shape.window);
  a.scale = shape.scale;
  a.eps = norms.eps;
  a.q_norm = floats_of(norms.q);
  a.k_norm = floats_of(norms.k);
  a.cos = cos;
  a.sin = sin;
  a.cache = cache(op.cache);
  return a;
}

void CudaAttention::rotate_latent(const RotateOp& op, const CudaRows& qkv, const float* cos,
                                  const float* sin, int64_t turning) {
  cuda::LatentRotateCall call;
  call.qkv = qkv.data;
  call.element = element_;
  call.num_rows = qkv.rows;
  call.heads = static_cast<int32_t>(op.shape.heads);
  call.head_dim = static_cast<int32_t>(op.shape.head_dim);
  call.first_turning = static_cast<int32_t>(op.shape.first_turning);
  call.turning = static_cast<int32_t>(turning);
  call.are_neighbours = op.pairs == RopePairs::kNeighbours;
  call.cos = cos;
  call.sin = sin;
  call.query_growth = growth_of(op.query_scale);
  call.places = step_.places(op.cache.group);
  call.cache = cache(op.cache);
  cuda::run_latent_rotate(call, stream_);
}

cuda::RotateCall CudaAttention::rotate_call(const RotateOp& op, const CudaRows& qkv,
                                            const float* cos, const float* sin,
                                            int64_t turning) const {
  const auto& [shape, norms] = std::tie(op.shape, op.norms);
  cuda::RotateCall call;
  call.qkv = qkv.data;
  call.element = element_;
  call.num_rows = qkv.rows;
  call.heads = static_cast<int32_t>(shape.heads);
  call.kv_heads = static_cast<int32_t>(shape.has_keys ? shape.kv_heads : 0);
  call.head_dim = static_cast<int32_t>(shape.head_dim);
  call.q_norm = floats_of(norms.q);
  call.k_norm = floats_of(norms.k);
  call.eps = norms.eps;
  call.norms_by_ones = norms.are_plain;
  call.norms_after_turn = norms.are_after_rope;
  call.normalises_values = norms.has_values;
  call.cos = cos;
  call.sin = sin;
  call.turning = static_cast<int32_t>(turning);
  call.are_neighbours = op.pairs == RopePairs::kNeighbours;
  call.query_growth = growth_of(op.query_scale);
  call.places = step_.places(op.cache.group);
  call.cache = cache(op.cache);
  return call;
}

void CudaAttention::rotate(const RotateOp& op, const CudaRows& qkv, const float* cos,
                           const float* sin, int64_t turning) {
  if (op.shape.values_in_keys > 0) return rotate_latent(op, qkv, cos, sin, turning);
  cuda::run_rotate(rotate_call(op, qkv, cos, sin, turning), stream_);
}

int64_t CudaAttention::select_bytes(int64_t tokens, int64_t positions) {
  const int64_t row = positions * 4;
  return std::clamp(tokens * row, row, std::max(kMaxScores, row));
}

Status CudaAttention::select(const SelectOp& op, float* y, const CudaRows& q,
                             const float* weights) {
  const int64_t positions = step_.longest_table(op.cache.group) * kPagePositions;
  SUBBYTE_CHECK(partials_.grow(select_bytes(q.rows, positions)));
  cuda::SelectCall call;
  call.q = q.data;
  call.element = element_;
  call.weights = weights;
  call.out = y;
  call.num_rows = q.rows;
  call.heads = static_cast<int32_t>(op.shape.heads);
  call.head_dim = static_cast<int32_t>(op.shape.head_dim);
  call.top = static_cast<int32_t>(op.shape.top);
  call.places = step_.places(op.cache.group);
  call.pages = step_.pages(op.cache.group);
  call.cache = cache(op.cache);
  call.scores = reinterpret_cast<float*>(partials_.data());
  call.positions = positions;
  call.rows_at_a_time = rows_at_a_time(q.rows, positions);
  cuda::run_select(call, stream_);
  return {};
}

Result<cuda::AttentionCall> CudaAttention::attention_call(const AttendOp& op,
                                                          const StepTasks& tasks, const CudaRows& y,
                                                          const CudaRows& qkv,
                                                          const float* selected) {
  const AttentionShape& shape = op.shape;
  SUBBYTE_CHECK(partials_.grow(tasks.num_partials * 4 *
                               cuda::attention_partial_floats(shape.kv_heads, shape.value_dim())));
  cuda::AttentionCall call;
  call.qkv = qkv.data;
  call.y = y.data;
  call.element = element_;
  call.qkv_stride = qkv.cols;
  call.heads = static_cast<int32_t>(shape.heads);
  call.kv_heads = static_cast<int32_t>(shape.kv_heads);
  call.head_dim = static_cast<int32_t>(shape.head_dim);
  call.values_in_keys = static_cast<int32_t>(shape.values_in_keys);
  call.window = static_cast<int32_t>(shape.window);
  call.in_chunks = shape.in_chunks;
  call.scale = shape.scale;
  call.cap = shape.cap;
  call.sinks = floats_of(op.sinks);
  call.pages = step_.pages(op.cache.group);
  call.selected = selected;
  call.top = static_cast<int32_t>(shape.top);
  call.cache = cache(op.cache);
  call.partials = reinterpret_cast<float*>(partials_.data());
  call.prompt = tasks.prompt;
  call.split = tasks.split;
  call.merge = tasks.merge;
  call.num_prompt = tasks.num_prompt;
  call.slices = tasks.slices;
  return call;
}

Status CudaAttention::attend(const AttendOp& op, const AttentionKind& kind, const CudaRows& y,
                             const CudaRows& qkv, const float* selected) {
  const StepTasks& tasks = step_.tasks(kind);
  SUBBYTE_TRY(cuda::AttentionCall call, attention_call(op, tasks, y, qkv, selected));
  if (tasks.has_wgmma) {
    SUBBYTE_CHECK(cuda::run_paged_hopper(call, qkv.rows, stream_));
    call.num_prompt = 0;
  }
  cuda::run_attention(call, stream_);
  if (tasks.expansion.num_tasks == 0) return {};
  return attend_expanded(op, tasks, call, qkv.rows);
}

Result<bool> CudaAttention::attend_batch(const RotateOp& rotate, const AttendOp& op,
                                         const AttentionKind& kind, const CudaRows& y,
                                         const CudaRows& qkv, const float* cos, const float* sin,
                                         int64_t turning) {
  SUBBYTE_TRY(const cuda::AttentionCall attention,
              attention_call(op, step_.tasks(kind), y, qkv, nullptr));
  const cuda::RotateCall turned = rotate_call(rotate, qkv, cos, sin, turning);
  if (!cuda::serves_batch(turned, attention)) return false;
  cuda::run_batch_attention(turned, attention, step_.gpu().multiprocessors, stream_);
  return true;
}

Status CudaAttention::attend_expanded(const AttendOp& op, const StepTasks& tasks,
                                      const cuda::AttentionCall& attention, int64_t num_tokens) {
  const StepExpansion& expansion = tasks.expansion;
  cuda::ExpansionCall call;
  call.attention = attention;
  call.attention.prompt = expansion.tasks;
  call.attention.num_prompt = expansion.num_tasks;
  call.sizes = tasks.kind.latents;
  call.num_tokens = num_tokens;
  call.pages = expansion.pages;
  call.num_pages = expansion.num_pages;
  SUBBYTE_CHECK(expansion_.grow(call.sizes.most_bytes(call.num_pages * kPagePositions)));
  call.memory = expansion_.data();
  call.has_wgmma = step_.gpu().has_wgmma;
  const device::PackedMatrix& keys = *cuda_weight(op.latent_keys).parts.front().weights;
  const device::PackedMatrix& values = *cuda_weight(op.latent_values).parts.front().weights;
  call.keys = keys.memory().data();
  call.keys_element = keys.element();
  call.values = values.memory().data();
  call.values_element = values.element();
  cuda::run_expanded_attention(call, stream_);
  return {};
}

}  // namespace subbyte
