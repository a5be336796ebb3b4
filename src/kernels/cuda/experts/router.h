#pragma once
// The way of one token to its experts as one kernel: the norm before them, the products of the
// router and of the gate of a shared expert, and the choice.
//
//   CTA r of a cluster of eight   normalises the whole row for itself,
//                                 multiplies rows 32 r .. 32 r + 31 of the router, and 256 after
//                                 those, a sixteenth of the rows and an eighth of K in each warp
//   CTA 7                         multiplies the gate, too
//   CTA 0                         writes sum and norm, has all logits, chooses

#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/experts/route.h"

namespace subbyte::cuda {

inline constexpr int64_t kMaxRouterCols = 8192;
inline constexpr int64_t kMaxRouterExperts = 1024;

/// A dense matrix of 16 bits [rows][cols], at 16-byte aligned addresses.
struct RouterMatrix {
  const void* weights = nullptr;
  Element element = Element::kBF16;
  const float* bias = nullptr;  // [rows] or nullptr
};

struct RouterCall {
  RouteCall route;          // of one token; it has no logits, and no gate but `gate`
  AddNormCall norm;         // of one row, which is the input; y nullptr: `x` is
  const void* x = nullptr;  // [cols], or
  Element x_element = Element::kF16;
  RouterMatrix router;  // [experts][cols]
  RouterMatrix gate;    // [1][cols], where route.shared_gate is not nullptr
  int64_t cols = 0;
};

/// Says whether run_router() has this: clusters (compute capability 9.0), types whose products are
/// exact, sizes and addresses. `compute_capability`: as Device has it.
bool serves_router(const RouterCall& call, int compute_capability);

/// Products are summed in float32, in one order. Errors are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_router(const RouterCall& call, Stream stream);

}  // namespace subbyte::cuda
