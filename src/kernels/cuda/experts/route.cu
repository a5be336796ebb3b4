#include "kernels/cuda/experts/route.h"

#include <algorithm>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/experts/routed_sum.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kSortThreads = 1024;
constexpr int64_t kMaxCtas = 1 << 16;
// One CTA compares each route with all others.
constexpr int64_t kFewTokens = kSortThreads / kLanes;
constexpr int64_t kFewRoutes = kLanes;
// A cluster has a warp for each token, then a warp for each expert. For more tokens than these two
// kernels take no longer.
constexpr int kClusterCtas = 8;
constexpr int kClusterThreads = 512;
constexpr int64_t kClusterTokens = 32;
static_assert(kClusterTokens * kLanes <= kClusterCtas * kClusterThreads);
constexpr int64_t kClusterRoutes = 1024;
constexpr int64_t kClusterExperts = 1024;

/// By a warp. Each lane that has one returns the expert of its route. kIsUsual: is_usual().
template <bool kIsUsual = false>
__device__ int choose_of_token(const RouteCall& a, int64_t token) {
  const float gate = a.shared_gate != nullptr ? a.shared_gate[token] : 0;  // loaded beside logits
  const float* const logits = a.logits + token * a.experts;
  ChosenExpert chosen;
  if constexpr (kIsUsual) {
    chosen = choose_usual_experts(a, logits);
  } else {
    chosen = choose_experts(a, logits);
  }
  return store_choice(a, token, chosen, gate);
}

/// A warp for a token.
template <bool kIsUsual>
__global__ void __launch_bounds__(kThreads) choose(const __grid_constant__ RouteCall a) {
  begin_operation();
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (token < a.tokens) choose_of_token<kIsUsual>(a, token);
}

/// A thread for a route.
__global__ void __launch_bounds__(kThreads)
    take_chosen(const __grid_constant__ RouteCall a, const void* chosen, bool is_64_bits,
                const float* weights) {
  begin_operation();
  const int64_t route = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (route >= a.tokens * a.top_k) return;
  const int64_t expert = is_64_bits ? static_cast<const int64_t*>(chosen)[route]
                                    : static_cast<const int32_t*>(chosen)[route];
  const bool is_there = expert >= 0 && expert < a.experts;
  a.expert_of[route] = is_there ? static_cast<int32_t>(expert) : 0;
  a.weights[route] = is_there ? weights[route] : NAN;
}

/// The whole of few tokens: a warp for each, then a thread for a route.
__global__ void __launch_bounds__(kSortThreads)
    choose_and_sort(const __grid_constant__ RouteCall a) {
  begin_operation();
  __shared__ int experts[kFewRoutes];
  __shared__ bool begins_tile[kFewRoutes];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int of_token = static_cast<int>(a.routes_of_token());
  const int chosen = choose_of_token(a, thread / kLanes);
  if (a.tokens == 1) return sort_of_one_token(a, chosen);
  if (lane < of_token) experts[thread / kLanes * of_token + lane] = chosen;
  __syncthreads();
  const int routes = static_cast<int>(a.tokens * of_token);
  const bool is_route = thread < routes;
  const int expert = is_route ? experts[thread] : 0;
  const auto is_before = [&](int other) {
    return experts[other] < expert || (experts[other] == expert && other < thread);
  };
  int place = 0;  // in the order of the experts
  int nth = 0;    // of its expert
  int count = 0;
#pragma unroll 4
  for (int other = 0; other < routes; ++other) {
    place += is_before(other);
    nth += experts[other] == expert && other < thread;
    count += experts[other] == expert;
  }
  const bool begins = is_route && nth % a.tile_tokens == 0;
  if (is_route) {
    a.order[place] = thread;
    a.token_of[place] = thread / of_token;
    begins_tile[thread] = begins;
  }
  const int tiles = __syncthreads_count(begins);
  int tile = 0;
  for (int other = 0; begins && other < routes; ++other) {
    tile += begins_tile[other] && is_before(other);
  }
  if (begins) a.tiles[tile] = {expert, place, min(a.tile_tokens, count - nth)};
  for (int64_t i = tiles + thread; i < a.num_tiles; i += blockDim.x) a.tiles[i] = {};
}

/// Says whether choose_of_lanes() has it: a softmax of the chosen logits of as many experts as a
/// warp has lanes at most, and nothing beside that.
bool has_expert_for_lane(const RouteCall& a) {
  const Routing& rule = a.rule;
  return a.tokens == 1 && a.experts <= kLanes && rule.scores == Routing::Scores::kSoftmax &&
         rule.has_ratios() && rule.groups == 1 && a.biases == nullptr && a.factors == nullptr &&
         !a.has_shared && a.of_inputs == nullptr;
}

/// One token, an expert for each lane: as choose_experts() and sort_of_one_token() in a fifth of
/// their instructions, since one warp waits until each of them is fetched.
__global__ void __launch_bounds__(kLanes) choose_of_lanes(const __grid_constant__ RouteCall a) {
  begin_operation();
  const int lane = static_cast<int>(threadIdx.x);
  const int top_k = static_cast<int>(a.top_k);
  const bool is_there = lane < static_cast<int>(a.experts);
  const float logit = is_there ? a.logits[lane] : 0;
  uint32_t left = is_there ? rank_of(logit) : 0;
  int nth = -1;  // of this lane's expert among the chosen
  int mine = 0;  // the lane-th of them
  for (int i = 0; i < top_k; ++i) {
    const unsigned best = __ballot_sync(~0u, left == __reduce_max_sync(~0u, left));
    const int expert = __ffs(static_cast<int>(best)) - 1;
    if (lane == i) mine = expert;
    if (lane == expert) nth = i, left = 0;
  }
  const float weight = expf(logit - __shfl_sync(~0u, logit, __shfl_sync(~0u, mine, 0)));
  double sum = 0;
  for (int i = 0; i < top_k; ++i) {
    sum += __shfl_sync(~0u, weight, __shfl_sync(~0u, mine, i));
  }
  const unsigned chosen = __ballot_sync(~0u, nth >= 0);
  if (nth >= 0) {
    const int place = __popc(chosen & ((1u << lane) - 1));
    a.expert_of[nth] = lane;
    a.weights[nth] = static_cast<float>(weight / sum) * a.rule.factor;
    a.order[place] = nth;
    a.token_of[place] = 0;
    a.tiles[place] = {lane, place, 1};
  }
  for (int64_t i = top_k + lane; i < a.num_tiles; i += kLanes) a.tiles[i] = {};
}

/// Where an expert's routes and tiles begin, and how many there are.
struct Share {
  int first;
  int count;
  int first_tile;
  int end_tile;  // of all experts
};

/// By one warp, of `counts` of all experts.
__device__ Share share_of(const int* counts, int64_t experts, int expert, int tile_tokens) {
  Share share = {};
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x) % kLanes; e < experts; e += kLanes) {
    const int tiles = (counts[e] + tile_tokens - 1) / tile_tokens;
    if (e < expert) share.first += counts[e];
    if (e < expert) share.first_tile += tiles;
    share.end_tile += tiles;
  }
  share.first = sum_of_warp(share.first);
  share.first_tile = sum_of_warp(share.first_tile);
  share.end_tile = sum_of_warp(share.end_tile);
  share.count = counts[expert];
  return share;
}

/// The tiles of an expert, by `lanes` threads; those of expert 0 also empty the rest.
__device__ void store_tiles(const RouteCall& a, int expert, const Share& share, int lane,
                            int lanes) {
#pragma unroll 1
  for (int i = lane; i * a.tile_tokens < share.count; i += lanes) {
    const int begin = i * a.tile_tokens;
    a.tiles[share.first_tile + i] = {expert, share.first + begin,
                                     min(a.tile_tokens, share.count - begin)};
  }
  if (expert != 0) return;
#pragma unroll 1
  for (int64_t i = share.end_tile + lane; i < a.num_tiles; i += lanes) a.tiles[i] = {};
}

/// By one warp: the places of the routes of an expert, whose first is `place`.
__device__ void store_places(const RouteCall& a, const int* chosen, int expert, int place) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int of_token = static_cast<int>(a.routes_of_token());
  const int routes = static_cast<int>(a.tokens) * of_token;
#pragma unroll 1
  for (int begin = 0; begin < routes; begin += kLanes) {
    const int route = begin + lane;
    const bool is_mine = route < routes && chosen[route] == expert;
    const unsigned mine = __ballot_sync(~0u, is_mine);
    if (is_mine) {
      const int at = place + __popc(mine & ((1u << lane) - 1));
      a.order[at] = route;
      a.token_of[at] = route / of_token;
    }
    place += __popc(mine);
  }
}

/// As choose() and sort(), by one cluster: every CTA has what all have chosen.
template <bool kIsUsual>
__global__ void __launch_bounds__(kClusterThreads)
    choose_and_sort_in_cluster(const __grid_constant__ RouteCall a) {
  __shared__ int chosen[kClusterRoutes];
  __shared__ int counts[kClusterExperts];
  constexpr int kClusterWarps = kClusterThreads / kLanes;
  const int rank = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int experts = static_cast<int>(a.experts + a.num_shared());
  const int of_token = static_cast<int>(a.routes_of_token());
#pragma unroll 1
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kClusterThreads) counts[e] = 0;
  cluster_arrive_relaxed();  // nobody writes to a CTA before it runs
  begin_operation();
  const int token = warp * kClusterCtas + rank;
  const int expert = token < a.tokens ? choose_of_token<kIsUsual>(a, token) : 0;
  cluster_wait();
  if (token < a.tokens && lane < of_token) {
    const uint32_t at = shared_address(&chosen[token * of_token + lane]);
#pragma unroll 1
    for (int cta = 0; cta < kClusterCtas; ++cta) st_dsmem(at, cta, __int_as_float(expert));
  }
  cluster_sync();
  const int routes = static_cast<int>(a.tokens) * of_token;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < routes; i += kClusterThreads) {
    atomicAdd(&counts[chosen[i]], 1);
  }
  __syncthreads();
#pragma unroll 1
  for (int e = warp * kClusterCtas + rank; e < experts; e += kClusterWarps * kClusterCtas) {
    const Share share = share_of(counts, experts, e, a.tile_tokens);
    store_tiles(a, e, share, lane, kLanes);
    if (share.count > 0) store_places(a, chosen, e, share.first);
  }
}

/// Puts the routes of a CTA's expert in their places, those of 1024 threads at a time.
__device__ void sort_routes(const RouteCall& a, int first) {
  __shared__ int matches[kSortThreads / kLanes];
  const int expert = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const unsigned lower_lanes = (1u << threadIdx.x % kLanes) - 1;
  const int64_t routes = a.tokens * a.routes_of_token();
  for (int64_t begin = 0; begin < routes; begin += kSortThreads) {
    const int64_t route = begin + threadIdx.x;
    const bool is_mine = route < routes && a.expert_of[route] == expert;
    const unsigned mine = __ballot_sync(~0u, is_mine);
    if (threadIdx.x % kLanes == 0) matches[warp] = __popc(mine);
    __syncthreads();
    int before = 0;
    int all = 0;
    for (int w = 0; w < kSortThreads / kLanes; ++w) {
      if (w < warp) before += matches[w];
      all += matches[w];
    }
    if (is_mine) {
      const int place = first + before + __popc(mine & lower_lanes);
      a.order[place] = static_cast<int32_t>(route);
      a.token_of[place] = static_cast<int32_t>(route / a.routes_of_token());
    }
    first += all;
    __syncthreads();
  }
}

/// A CTA for an expert. Each counts the routes of all experts; sums of integers have no order.
__global__ void __launch_bounds__(kSortThreads) sort(const __grid_constant__ RouteCall a) {
  begin_operation();
  extern __shared__ int counts[];  // [experts], the shared one too
  __shared__ Share shared_share;
  const int expert = static_cast<int>(blockIdx.x);
  const int64_t routes = a.tokens * a.routes_of_token();
  const int64_t experts = a.experts + a.num_shared();
  for (int64_t e = threadIdx.x; e < experts; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < routes; i += kSortThreads) {
    atomicAdd(&counts[a.expert_of[i]], 1);
  }
  __syncthreads();
  if (threadIdx.x < kLanes) {
    const Share found = share_of(counts, experts, expert, a.tile_tokens);
    if (threadIdx.x == 0) shared_share = found;
  }
  __syncthreads();
  const Share share = shared_share;
  store_tiles(a, expert, share, static_cast<int>(threadIdx.x), kSortThreads);
  if (share.count > 0) sort_routes(a, share.first);
}

/// A CTA for a row.
__global__ void __launch_bounds__(kThreads) gather_rows(const __grid_constant__ GatherRowsCall a) {
  begin_operation();
  const int64_t pieces = a.cols / 8;
  const auto* from = static_cast<const uint4*>(a.from) + a.rows[blockIdx.x] * pieces;
  auto* to = static_cast<uint4*>(a.to) + blockIdx.x * pieces;
  if (a.factors == nullptr) {
    for (int64_t i = threadIdx.x; i < pieces; i += kThreads) to[i] = from[i];
    return;
  }
  const float factor = a.factors[a.factor_of[blockIdx.x]];
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) {
    float values[8];
    load_8(a.element, from, i * 8, values);
#pragma unroll
    for (float& value : values) value *= factor;
    store_8(a.element, to, i * 8, values);
  }
}

/// Eight numbers of a token for each thread.
__global__ void __launch_bounds__(kThreads) store_sums_8(const __grid_constant__ AddRoutesCall a) {
  begin_operation();
  const int64_t size = a.tokens * a.cols;
  const int64_t stride = int64_t{gridDim.x} * kThreads * 8;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8; i < size; i += stride) {
    float sums[8];
    add_routes_8<kThreads>(a.element, a.routes, a.cols, i / a.cols, i % a.cols, sums);
    store_8(a.element, a.y, i, sums);
  }
}

/// Where rows do not begin at 16 bytes.
__global__ void __launch_bounds__(kThreads) store_sums(const __grid_constant__ AddRoutesCall a) {
  begin_operation();
  const int64_t size = a.tokens * a.cols;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += stride) {
    const float sum = add_routes(a.element, a.routes, a.cols, i / a.cols, i % a.cols);
    store_element(a.element, a.y, i, sum);
  }
}

bool is_for_cluster(const RouteCall& call) {
  return call.has_clusters && call.tokens <= kClusterTokens &&
         call.tokens * call.routes_of_token() <= kClusterRoutes &&
         call.experts + call.num_shared() <= kClusterExperts;
}

void run_sort(const RouteCall& call, Stream stream) {
  const auto experts = static_cast<unsigned>(call.experts + call.num_shared());
  launch(sort, {dim3(experts), kSortThreads, static_cast<int>(experts * sizeof(int))}, stream,
         call);
}

}  // namespace

void run_route(const RouteCall& call, Stream stream) {
  if (has_expert_for_lane(call)) return launch(choose_of_lanes, {dim3(1), kLanes}, stream, call);
  if (call.tokens <= kFewTokens && call.tokens * call.routes_of_token() <= kFewRoutes) {
    launch(choose_and_sort, {dim3(1), static_cast<int>(call.tokens) * kLanes}, stream, call);
    return;
  }
  if (is_for_cluster(call)) {
    launch(is_usual(call) ? choose_and_sort_in_cluster<true> : choose_and_sort_in_cluster<false>,
           {dim3(kClusterCtas), kClusterThreads, 0, kClusterCtas}, stream, call);
    return;
  }
  const auto ctas = static_cast<unsigned>((call.tokens + kWarps - 1) / kWarps);
  launch(is_usual(call) ? choose<true> : choose<false>, {dim3(ctas), kThreads}, stream, call);
  run_sort(call, stream);
}

void run_chosen_routes(const RouteCall& call, const void* chosen, bool is_64_bits,
                       const float* weights, Stream stream) {
  const int64_t routes = call.tokens * call.top_k;
  const auto ctas = static_cast<unsigned>((routes + kThreads - 1) / kThreads);
  launch(take_chosen, {dim3(ctas), kThreads}, stream, call, chosen, is_64_bits, weights);
  run_sort(call, stream);
}

void run_gather_rows(const GatherRowsCall& call, Stream stream) {
  launch(gather_rows, {dim3(static_cast<unsigned>(call.count)), kThreads}, stream, call);
}

void run_add_routes(const AddRoutesCall& call, Stream stream) {
  const auto addresses =
      reinterpret_cast<uintptr_t>(call.y) | reinterpret_cast<uintptr_t>(call.routes.outputs);
  const bool is_wide = call.cols % 8 == 0 && addresses % 16 == 0 && call.element != Element::kF32;
  const int64_t of_cta = kThreads * (is_wide ? 8 : 1);
  const int64_t ctas = std::min((call.tokens * call.cols + of_cta - 1) / of_cta, kMaxCtas);
  launch(is_wide ? store_sums_8 : store_sums, {dim3(static_cast<unsigned>(ctas)), kThreads}, stream,
         call);
}

}  // namespace subbyte::cuda
