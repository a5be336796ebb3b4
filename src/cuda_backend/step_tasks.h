#pragma once
// How attention of a step is divided into tasks, and by which kernels: what follows from the batch
// and needs no GPU.

#include <cstdint>
#include <span>

#include "kernels/cuda/attention/expansion.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte {

/// Attention of one kind, in a group of the cache.
struct AttentionKind {
  int32_t group = 0;
  cuda::AttentionLayers layers;
  int64_t head_dim = 0;
  cuda::ExpandedSizes latents = {};  // that may be expanded
  bool has_sinks = false;

  bool operator==(const AttentionKind&) const = default;
};

/// The parts of a step in a group of the cache, with their page table.
struct PartsOfGroup {
  std::span<const cuda::AttentionPart> parts;
  std::span<const int32_t> pages;
};

/// Rules beside the parts. In batch-invariant mode the kernels of a token follow from its own text.
struct TaskRules {
  bool batch_invariant = false;
  bool is_observed = false;  // latents are results of operations, too
  Element activations = Element::kF16;
  Element cache = Element::kF16;
  int64_t split_ctas = 1;  // attention_tasks()
  cuda::ExpansionGpu gpu = {};
};

struct DividedAttention {
  bool has_wgmma = false;       // prompt tasks are those of kernels/cuda/attention/paged_hopper.h
  cuda::AttentionTasks tasks;   // of prompts.cached
  cuda::ExpandedParts prompts;  // all parts, by whether their latents are expanded
};

DividedAttention divide_attention(const PartsOfGroup& of, const AttentionKind& kind,
                                  const TaskRules& rules);

}  // namespace subbyte
