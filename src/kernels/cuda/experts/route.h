#pragma once
// Which experts the tokens of a step go to, found on the device, and the sum of what these return.
//
//   routes   [tokens][top_k]: the i-th best expert of a token, and its weight; one more for an
//            expert that every token goes to
//   order    the routes sorted by expert, those of one expert by token: a stable counting sort
//   tiles    runs of at most so many routes of one expert, in that order; the rest is empty
//
// Nothing depends on the order in which threads run: results are the same bits each time.

#include "base/routing.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/cuda/experts/arguments.h"

namespace subbyte::cuda {

inline constexpr int64_t kMaxTopK = 32;
inline constexpr int64_t kMaxExperts = 4096;

/// How the experts of a token are chosen by its logits.
struct ExpertChoice {
  int64_t experts = 0;  // at most kMaxExperts
  int64_t top_k = 0;    // at most experts and kMaxTopK, less than that beside a shared expert
  Routing rule = {};
  const float* biases = nullptr;   // [experts], that only choose, or nullptr
  const float* factors = nullptr;  // the same, of the weights
};

struct RouteCall : ExpertChoice {
  const float* logits = nullptr;  // [tokens][experts]
  int64_t tokens = 0;
  int tile_tokens = 8;  // routes of a tile, at most
  int64_t num_tiles = 0;
  bool has_clusters = false;  // the kernels are those of compute capability 9.0
  /// Each token goes to one expert more, whose number is `experts`, and whose weight is the sigmoid
  /// of its gate [tokens], or 1 without one.
  bool has_shared = false;
  const float* shared_gate = nullptr;
  // Results.
  int32_t* expert_of = nullptr;  // [tokens * routes_of_token()], by route
  float* weights = nullptr;      // the same; 1 where
  float* of_inputs = nullptr;    // the same, is no nullptr, which are the weights of inputs then
  int32_t* order = nullptr;      // the same, the route of each place
  int32_t* token_of = nullptr;   // the same, the token of each place
  ExpertTile* tiles = nullptr;   // [num_tiles]

  SUBBYTE_DEVICE constexpr int64_t num_shared() const { return has_shared ? 1 : 0; }
  SUBBYTE_DEVICE constexpr int64_t routes_of_token() const { return top_k + num_shared(); }
};

/// The top_k best experts of each token by the rule, NaN before all, and their weights. Errors are
/// left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_route(const RouteCall& call, Stream stream);

/// The same for experts that were chosen elsewhere, numbers of 32 or 64 bits [tokens][top_k], with
/// their weights. A number that no expert has is that of expert 0 with a weight of NaN. Errors are
/// left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_chosen_routes(const RouteCall& call, const void* chosen, bool is_64_bits,
                                       const float* weights, Stream stream);

struct GatherRowsCall {
  void* to = nullptr;             // [count][cols]
  const void* from = nullptr;     // [..][cols]
  const int32_t* rows = nullptr;  // [count], of `from`
  int64_t count = 0;
  int64_t cols = 0;  // elements of 2 bytes, a multiple of 8; both are 16-byte aligned
  /// Row i is multiplied by factors[factor_of[i]], and rounded; nullptr: by nothing.
  const float* factors = nullptr;
  const int32_t* factor_of = nullptr;
  Element element = Element::kF16;
};

/// Errors are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_gather_rows(const GatherRowsCall& call, Stream stream);

/// The results of the experts of all tokens of a step, to be added: those of a token in their
/// order, in float32, rounded once to their type.
struct RoutedSum {
  const void* outputs = nullptr;   // [tokens][top_k][cols]
  const float* weights = nullptr;  // [tokens][top_k]
  int64_t top_k = 0;
};

struct AddRoutesCall {
  void* y = nullptr;  // [tokens][cols]
  RoutedSum routes;
  Element element = Element::kF16;  // of y and outputs
  int64_t tokens = 0;
  int64_t cols = 0;
};

/// y = the sums. Errors are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_add_routes(const AddRoutesCall& call, Stream stream);

}  // namespace subbyte::cuda
