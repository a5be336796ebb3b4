#pragma once
// Keys and values of every head made of latents again, for the prompts of a step: with the matrices
// absorbed into queries and results (latent.h) a query and a key of a head are 2 * rank + turning
// products, so made ones take nope + turning + value. For each layer:
//
//   gather    latents [positions] of the cache, page after page, as 16-bit numbers
//   turn      matrices of keys [rank][nope] of some heads into [nope][rank]
//   products  keys [positions][heads][nope], values [positions][heads][value] (dense_16bit.h)
//   attend    a head of keys for each head of queries (attention_kernel.cuh)
//
// As many heads at a time as kMaxExpansion has room for. What turns is the same for all heads and
// stays where gather leaves it.
//
// Queries lie at the end of the rank of each head of their row, before what turns, and results at
// the beginning of the rank: move_heads() puts them there and takes them from there.

#include <span>
#include <vector>

#include "base/host_device.h"
#include "kernels/cuda/attention/attention.h"

namespace subbyte::cuda {

inline constexpr int64_t kMaxExpansion = int64_t{256} << 20;  // bytes

/// The GPU, as far as it decides what pays.
struct ExpansionGpu {
  bool has_wgmma = false;
  int64_t multiprocessors = 1;
};

/// Sizes of latents and of what is made of them; without heads there are none.
struct ExpandedSizes {
  int64_t heads = 0;
  int64_t rank = 0;
  int64_t turning = 0;
  int64_t nope = 0;
  int64_t value = 0;
  int64_t top = 0;                      // AttentionLayers::top
  int64_t most_memory = kMaxExpansion;  // bytes at a time

  bool operator==(const ExpandedSizes&) const = default;
  int64_t head_dim() const { return nope + turning; }
  /// Says whether kernels have such heads.
  bool is_supported() const;

  /// Bytes of some heads of so many positions, a multiple of 256.
  int64_t bytes(int64_t some_heads, int64_t positions) const;
  /// Heads at a time, about as many each time. 0: not even one fits.
  int64_t heads_at_a_time(int64_t positions) const;
  /// Bytes of a step of at most so many positions.
  int64_t most_bytes(int64_t positions) const;

  /// Says whether that takes less time than latents do, for some tokens of a sequence after
  /// `cached` ones.
  bool pays(int64_t tokens, int64_t cached, const ExpansionGpu& gpu) const;
};

/// Neighbouring tokens of a step.
struct ExpandedRows {
  int64_t first = 0;
  int64_t count = 0;
  bool are_expanded = false;
};

/// A page of the cache, and how many of its positions are there.
struct ExpandedPage {
  int32_t page = 0;
  int32_t positions = 0;
};

/// The parts of a step with latents in the cache, and those whose latents are expanded.
struct ExpandedParts {
  std::vector<AttentionPart> cached;
  std::vector<AttentionPart> expanded;  // of which pages_begin is a page of what is made
  std::vector<ExpandedPage> pages;      // of the expanded parts one after the other
  std::vector<ExpandedRows> rows;

  int64_t positions() const { return std::ssize(pages) * kPagePositions; }
};

/// `pages`: the page table of all parts.
ExpandedParts expanded_parts(std::span<const AttentionPart> parts, const ExpandedSizes& sizes,
                             std::span<const int32_t> pages, const ExpansionGpu& gpu);

/// Prompt tasks of expanded parts, of every head.
AttentionTasks expanded_tasks(const ExpandedParts& parts, const ExpandedSizes& sizes);

/// Attention of expanded parts. The numbers that are made have the type of the cache, or of
/// activations where that has codes.
struct ExpansionCall {
  AttentionCall attention;  // over the latents; `prompt` are the tasks of expanded parts
  ExpandedSizes sizes;
  int64_t num_tokens = 0;               // rows of qkv
  const ExpandedPage* pages = nullptr;  // ExpandedParts::pages, in device memory
  int64_t num_pages = 0;
  const void* keys = nullptr;    // [heads][rank][nope]
  const void* values = nullptr;  // [heads][value][rank]
  Element keys_element = Element::kF16;
  Element values_element = Element::kF16;
  std::byte* memory = nullptr;  // sizes.most_bytes()
  bool has_wgmma = false;       // ExpansionGpu::has_wgmma
};

/// Errors are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_expanded_attention(const ExpansionCall& call, Stream stream);

/// Copies of numbers of 16 bits: of every head so many, then a rest.
struct MoveHeadsCall {
  const void* x = nullptr;     // rows of heads of x_step numbers
  const void* rest = nullptr;  // rows of rest_cols, or nullptr
  void* y = nullptr;           // rows of heads of y_step numbers, then rest_cols
  int64_t rows = 0;
  int32_t heads = 0;
  int32_t count = 0;  // all numbers are multiples of 8
  int32_t x_step = 0;
  int32_t y_step = 0;
  int32_t y_first = 0;  // of a head
  int32_t rest_cols = 0;
};
SUBBYTE_BY_NVCC void run_move_heads(const MoveHeadsCall& call, Stream stream);

}  // namespace subbyte::cuda
