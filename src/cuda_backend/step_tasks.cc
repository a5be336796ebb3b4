#include "cuda_backend/step_tasks.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/attention/attend_batch.h"
#include "kernels/cuda/attention/paged_hopper.h"

namespace subbyte {
namespace {

using Parts = std::span<const cuda::AttentionPart>;

bool has_single_tokens(Parts parts) {
  return std::ranges::all_of(parts,
                             [](const cuda::AttentionPart& part) { return part.num_tokens == 1; });
}

/// Tasks of kPagedTokens lose more than they gain where most of their rows are nobody's. So the
/// kernel of a token follows from the others, which batch-invariant mode does not allow.
bool takes_wgmma(Parts parts, const AttentionKind& kind, const TaskRules& rules) {
  if (rules.batch_invariant || kind.has_sinks || !rules.gpu.has_wgmma ||
      rules.cache != rules.activations ||
      !cuda::serves_paged_hopper(kind.layers, kind.head_dim, rules.cache)) {
    return false;
  }
  int64_t tokens = 0;
  int64_t of_tasks = 0;
  for (const cuda::AttentionPart& part : parts) {
    if (part.num_tokens == 1) continue;
    tokens += part.num_tokens;
    of_tasks += static_cast<int64_t>(round_up(part.num_tokens, cuda::kPagedTokens));
  }
  return of_tasks <= 2 * tokens;
}

cuda::AttentionTasks divide(Parts parts, const AttentionKind& kind, bool has_wgmma,
                            const TaskRules& rules) {
  cuda::AttentionLayers layers = kind.layers;
  if (has_wgmma) layers.prompt_rows = cuda::kPagedTokens * layers.q_per_kv;
  if (rules.batch_invariant) {
    cuda::AttentionTasks tasks = cuda::invariant_attention_tasks(parts, layers);
    if (has_single_tokens(parts)) cuda::round_up_tasks(tasks);
    return tasks;
  }
  if (!has_single_tokens(parts)) return cuda::attention_tasks(parts, layers, rules.split_ctas);
  // The kernel of a batch has one CTA of more warps where they are few.
  const bool are_few = cuda::serves_batch_heads(layers.q_per_kv, kind.head_dim) &&
                       std::ssize(parts) * layers.kv_heads <= rules.gpu.multiprocessors;
  cuda::AttentionTasks tasks =
      cuda::attention_tasks(parts, layers, are_few ? rules.gpu.multiprocessors : rules.split_ctas);
  cuda::round_up_tasks(tasks);
  return tasks;
}

}  // namespace

DividedAttention divide_attention(const PartsOfGroup& of, const AttentionKind& kind,
                                  const TaskRules& rules) {
  const bool may_expand = !rules.batch_invariant && !rules.is_observed;
  DividedAttention divided;
  divided.prompts = cuda::expanded_parts(
      of.parts, may_expand ? kind.latents : cuda::ExpandedSizes(), of.pages, rules.gpu);
  const Parts cached = divided.prompts.cached;
  divided.has_wgmma = takes_wgmma(cached, kind, rules);
  divided.tasks = divide(cached, kind, divided.has_wgmma, rules);
  return divided;
}

}  // namespace subbyte
