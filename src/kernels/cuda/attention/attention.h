#pragma once
// Causal attention over the pages of the cache, for prompts and for single tokens, with grouped
// queries, a window and sinks.
//
// The rows of a part for one head of keys are its tokens times the q_per_kv heads that read it:
// row r is token r / q_per_kv, head kv_head * q_per_kv + r % q_per_kv. Rows are the outputs and
// keys the tokens of an mma, so the heads of a group cost one read of the cache:
//
//   kPrompt   a CTA has 64 rows, 16 for each of its four warps, and all keys that they see
//   kSplit    a CTA has 16 rows and a part of the keys; its warps have every fourth run of 16
//             keys and add their softmax partials in order. Where a row has several such parts,
//             a second kernel adds their partials in order.
//
// The values of heads of more than 256 elements are divided between two CTAs, each of which has all
// scores.
//
// Products are mma in the 16 bits of the cache: queries of another type and the weights of the
// softmax are rounded to them. Codes of e4m3 are numbers of the type of the activations, exactly,
// and their scales are factors of scores and weights. Sums are in float32.

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

inline constexpr int kPromptRows = 64;
inline constexpr int kExpandedRows = 128;  // of a task over expanded keys: two of kPromptRows
inline constexpr int kSplitRows = 16;
inline constexpr int kMaxSplits = 32;          // of the keys of a row
inline constexpr int64_t kLeastSplit = 256;    // keys
inline constexpr int64_t kMaxPartials = 1024;  // in memory at a time, of every head of keys
inline constexpr int kMaxValues = 256;         // of a head, that a CTA has

/// Task of one CTA for each head of keys. Its rows and keys are those of one part. Without tokens:
/// nothing.
struct AttentionTask {
  int32_t first_token;  // of the part: a row of qkv
  int32_t num_tokens;   // of the part
  int32_t position;     // of its first token
  int32_t pages_begin;  // of the part, in the page table
  int32_t first_row;    // of the CTA
  int32_t begin, end;   // keys; begin is the first of a page, those before the window are masked
  int32_t partial;      // index of its softmax partials; -1: it writes the results
};

/// Adds the partials of `num_splits` tasks that follow each other. Without tokens: nothing.
struct MergeTask {
  int32_t first_token;
  int32_t num_tokens;
  int32_t first_row;
  int32_t partial;  // the first
  int32_t num_splits;
};

/// Tasks of kSplit whose partials are in memory at a time, and their merge tasks: as many of both
/// lists, after those of the slices before.
struct AttentionSlice {
  int64_t num_split = 0;
  int64_t num_merge = 0;
};

struct AttentionTasks {
  std::vector<AttentionTask> prompt;
  std::vector<AttentionTask> split;
  std::vector<MergeTask> merge;
  std::vector<AttentionSlice> slices;
  int64_t used_partials = 0;  // of the last slice
  int64_t num_partials = 0;   // of the slice that has most of them, at most kMaxPartials
};

/// One part of a step.
struct AttentionPart {
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t position = 0;
  int32_t pages_begin = 0;
};

/// Properties that the division into tasks depends on besides the parts.
struct AttentionLayers {
  int64_t q_per_kv = 1;
  int64_t kv_heads = 1;
  int64_t window = 0;  // 0: none
  bool in_chunks = false;
  int64_t top = 0;  // keys that a token sees at most, as they were selected; 0: all
  int64_t prompt_rows = kPromptRows;  // of a prompt task
  bool operator==(const AttentionLayers&) const = default;

  /// The first key that a token sees, cut to a multiple of `step`.
  int64_t first_key(int64_t position, int64_t step) const {
    if (window == 0) return 0;
    const int64_t first =
        in_chunks ? position / window * window : std::max<int64_t>(0, position - window + 1);
    return first / step * step;
  }
};

/// Where keys are selected those of a task are places in the list of its token, and a task has one
/// token.
///
/// The split tasks of all heads of keys are about `ctas` CTAs, if that leaves them kLeastSplit
/// keys: many sequences are not split, so nothing is merged. Prompt tasks are in order of their
/// keys, the most first, so that the last CTAs to run are short ones.
AttentionTasks attention_tasks(std::span<const AttentionPart> parts, const AttentionLayers& layers,
                               int64_t ctas);

/// All tasks are kSplit, and splits begin at multiples of a size that follows from the position of
/// a token alone: so the order of additions of a row does, too, whatever its neighbours and however
/// a prompt is cut. Tokens share tasks where they have the same splits.
AttentionTasks invariant_attention_tasks(std::span<const AttentionPart> parts,
                                         const AttentionLayers& layers);

/// Adds split and merge tasks that do nothing and partials that nobody needs, an eighth at most, so
/// that their numbers are the same in many steps as sequences grow; where tasks are of one slice.
void round_up_tasks(AttentionTasks& tasks);

/// CTAs that have values of a head of keys beside values.
SUBBYTE_HOST_DEVICE constexpr int value_parts(int64_t head_dim) {
  return head_dim > kMaxValues ? 2 : 1;
}

/// Keys and values of every head, as they were made of latents (expansion.h), for attention of
/// prompt tasks. `pages_begin` of a task is its first page of 128 positions.
struct ExpandedKeys {
  const void* keys = nullptr;    // [positions][kv_heads][key_dim], the first numbers of a key
  const void* turned = nullptr;  // [positions][head_dim - key_dim], the others, of all heads
  const void* values = nullptr;  // [positions][kv_heads][value_dim]
  int64_t positions = 0;         // of whole pages
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t q_step = 0;    // numbers from a head of qkv to the next
  int32_t y_step = 0;    // and of y
  int64_t y_stride = 0;  // from a token to the next
};

struct AttentionCall {
  const void* qkv = nullptr;  // [tokens][qkv_stride]
  void* y = nullptr;          // [tokens][heads * value_dim()]
  Element element = Element::kF16;
  int64_t qkv_stride = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // a multiple of 16, at most 256; of 32, at most 512; of latents 576
  /// Values are the first so many numbers of keys, of which there is one head; 0: they are apart.
  int32_t values_in_keys = 0;
  int32_t window = 0;      // 0: none
  bool in_chunks = false;  // a row sees keys from the last multiple of `window` on
  float scale = 1;
  float cap = 0;                    // scores s become cap * tanh(s / cap); 0: they stay
  const float* sinks = nullptr;     // [heads] or nullptr
  const int32_t* pages = nullptr;   // page table of all parts
  const float* selected = nullptr;  // [tokens][top] positions, or nullptr; of latents alone
  int32_t top = 0;
  KvLayer cache = {};                     // f16, bf16 or e4m3
  ExpandedKeys expanded = {};             // instead of it, in f16 or bf16 as cache.element says
  float* partials = nullptr;              // attention_partial_floats() for each one
  const AttentionTask* prompt = nullptr;  // in device memory
  const AttentionTask* split = nullptr;
  const MergeTask* merge = nullptr;
  int64_t num_prompt = 0;
  std::span<const AttentionSlice> slices;  // in host memory; not read by kernels

  SUBBYTE_HOST_DEVICE bool is_expanded() const { return expanded.keys != nullptr; }
  SUBBYTE_HOST_DEVICE int value_dim() const {
    if (is_expanded()) return expanded.value_dim;
    return values_in_keys > 0 ? values_in_keys : head_dim;
  }
  SUBBYTE_HOST_DEVICE int q_step() const { return is_expanded() ? expanded.q_step : head_dim; }
  SUBBYTE_HOST_DEVICE int y_step() const { return is_expanded() ? expanded.y_step : value_dim(); }
  SUBBYTE_HOST_DEVICE int64_t y_stride() const {
    return is_expanded() ? expanded.y_stride : int64_t{heads} * value_dim();
  }
  /// CTAs that have values of a head.
  SUBBYTE_HOST_DEVICE int value_parts() const {
    return values_in_keys > 0 || is_expanded() ? 1 : cuda::value_parts(head_dim);
  }
};

/// Floats of one partial of all heads of keys, at most.
constexpr int64_t attention_partial_floats(int64_t kv_heads, int64_t value_dim) {
  return kv_heads * kSplitRows * (value_dim + 2 * value_parts(value_dim));
}

/// Shared memory of a CTA for heads of that size and a cache of that type, at most.
int attention_cta_bytes(Element cache, int head_dim);

/// Errors, such as too little shared memory for the head on this device, are left to
/// cudaGetLastError().
void run_attention(const AttentionCall& call, Stream stream);

}  // namespace subbyte::cuda
