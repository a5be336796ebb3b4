#pragma once
// Attention whose values are the first numbers of its keys, of which all query heads share one
// head: latents (AttentionCall::values_in_keys). A key is read once for its score and its value.
//
// A CTA has the 16 rows of a split task, or the 64 of a prompt task, and tiles of 32 keys in shared
// memory. Its eight warps share all of it: in a tile's scores each has 16 rows and 16 keys, or a
// quarter of the numbers of these; then some threads have the softmax of a row; then each warp has
// every eighth run of 16 numbers of the values of all rows.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/rotate.h"

namespace subbyte::cuda {

inline constexpr int kMaxLatentHead = 576;
inline constexpr int kMaxLatentValue = 512;  // both are multiples of 16

/// Shared memory of a CTA of the larger kind for heads of that size.
int latent_attention_shared_bytes(int head_dim);

/// The tasks of one kind. Errors are left to cudaGetLastError().
void run_latent_tasks(const AttentionCall& call, bool is_split, int64_t num_tasks, Stream stream);

/// RotateCall with keys alone, heads of any even size and numbers that turn anywhere.
struct LatentRotateCall {
  void* qkv = nullptr;  // [num_rows][(heads + 1) * head_dim]
  Element element = Element::kF16;
  int64_t num_rows = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;         // at most kMaxLatentHead
  int32_t first_turning = 0;    // number of a head
  int32_t turning = 0;          // numbers
  bool are_neighbours = false;  // that turn together
  const float* cos = nullptr;   // [num_rows][turning / 2]
  const float* sin = nullptr;
  QueryGrowth query_growth = {};
  const RowPlace* places = nullptr;  // [num_rows]
  KvLayer cache = {};
};
void run_latent_rotate(const LatentRotateCall& call, Stream stream);

}  // namespace subbyte::cuda
