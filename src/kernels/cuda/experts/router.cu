#include "kernels/cuda/experts/router.h"

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/experts/choose.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kCtas = 8;  // of the cluster
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kLanes;
constexpr int kTileRows = 16;  // of mma
constexpr int kCtaRows = 32;
constexpr int kSplits = kWarps / (kCtaRows / kTileRows);  // of K
constexpr int kBlock = 32;                                // inputs of a load of a warp
constexpr int kAhead = 8;                                 // blocks that a warp loads at a time
constexpr int kFour = 4;                                  // inputs of a thread
constexpr int kRun = kThreads * kFour;
constexpr int kMaxRuns = static_cast<int>(kMaxRouterCols) / kRun;

/// Inputs as a bf16 and what it leaves of an f16, which is one, too: both are columns of the
/// tensor cores, so that weights need no conversion. Weights of f16 have inputs of f16.
template <class Weight>
__device__ uint32_t input_pair(float a, float b, uint32_t& rest) {
  const uint32_t pair = Weight::pack_x2(a, b);
  const float rest_a = a - Weight::to_float(static_cast<uint16_t>(pair));
  const float rest_b = b - Weight::to_float(static_cast<uint16_t>(pair >> 16));
  rest = Weight::pack_x2(isfinite(rest_a) ? rest_a : 0, isfinite(rest_b) ? rest_b : 0);
  return pair;
}

struct RouterShared {
  alignas(16) uint16_t x[2][kMaxRouterCols];  // inputs, and what they leave
  float partials[kSplits][kCtaRows];
  float logits[kMaxRouterExperts];  // all, in CTA 0
  float gate;                       // the same
  float gate_partials[kWarps];
  double squares[kWarps];
};

/// A CTA at work.
template <class Weight, int kRuns>
class RouterCta {
 public:
  __device__ RouterCta(const RouterCall& a, RouterShared& shared)
      : a_(a),
        shared_(shared),
        cols_(static_cast<int>(a.cols)),
        experts_(static_cast<int>(a.route.experts)),
        rank_(static_cast<int>(blockIdx.x)),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes) {}

  __device__ void run() {
    load_weights();
    begin_operation();
    take_inputs();
    cluster_arrive();
    if (has_gate() && rank_ == kCtas - 1) multiply_gate();
    __syncthreads();
#pragma unroll 1
    for (int first = 0; first < experts_; first += kCtas * kCtaRows) {
      multiply(first);
      __syncthreads();
      if (first == 0) cluster_wait();  // all CTAs have begun, and have read what is added to
      add_partials(first);
      if (first + kCtas * kCtaRows < experts_) __syncthreads();
    }
    cluster_arrive();
    if (rank_ == 0) store_sum();
    cluster_wait();
    if (rank_ == 0 && warp_ == 0) choose();
  }

 private:
  __device__ bool has_gate() const {
    return a_.route.shared_gate != nullptr;
  }
  __device__ int k_of(int chunk, int j) const {
    return ((chunk * kAhead + j) * kSplits + warp_ % kSplits) * kBlock;
  }

  /// Loads those of the first rows, and of the norm and the gate those of this thread.
  __device__ void load_weights() {
    fetch(0, 0);
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const int col = r * kRun + static_cast<int>(threadIdx.x) * kFour;
      if (col < cols_ && a_.norm.y != nullptr) {
        norm_[r] = *reinterpret_cast<const float4*>(a_.norm.weight + col);
      }
      if (col < cols_ && has_gate() && rank_ == kCtas - 1) {
        gate_[r] =
            *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(a_.gate.weights) + col);
      }
    }
  }

  __device__ void fetch(int first, int chunk) {
    const int row = first + rank_ * kCtaRows + warp_ / kSplits * kTileRows + lane_ / 4;
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int k = k_of(chunk, j) + lane_ % 4 * 8;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t at = int64_t{row + 8 * h} * cols_ + k;
        const bool there = k < cols_ && row + 8 * h < experts_;
        w_[j][h] = there ? *reinterpret_cast<const uint4*>(
                               static_cast<const uint16_t*>(a_.router.weights) + at)
                         : uint4{};
      }
    }
  }

  /// The row of inputs in shared memory, normalised or as it is.
  __device__ void take_inputs() {
    const AddNormCall& norm = a_.norm;
    const bool adds = norm.delta != nullptr;
    const auto* const delta = static_cast<const uint16_t*>(norm.delta);
    float factor = 1;
    uint2 pairs[kRuns] = {};
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const int col = r * kRun + static_cast<int>(threadIdx.x) * kFour;
      sums_[r] = {};
      if (col >= cols_) continue;
      if (norm.y == nullptr) {
        pairs[r] = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(a_.x) + col);
      } else {
        sums_[r] = *reinterpret_cast<const float4*>(norm.x + col);
        if (adds) pairs[r] = *reinterpret_cast<const uint2*>(delta + col);
      }
    }
    if (norm.y != nullptr) {
      double squares = 0;
#pragma unroll
      for (int r = 0; r < kRuns; ++r) {
        float deltas[kFour];
        unpack(pairs[r], norm.element, deltas);
        sums_[r].x = fmaf(norm.factor, deltas[0], sums_[r].x);
        sums_[r].y = fmaf(norm.factor, deltas[1], sums_[r].y);
        sums_[r].z = fmaf(norm.factor, deltas[2], sums_[r].z);
        sums_[r].w = fmaf(norm.factor, deltas[3], sums_[r].w);
        for (const float x : {sums_[r].x, sums_[r].y, sums_[r].z, sums_[r].w}) {
          squares = fma(static_cast<double>(x), static_cast<double>(x), squares);
        }
      }
      squares = sum_in_tree<kWarps>(squares, shared_.squares);
      const float mean = static_cast<float>(squares / static_cast<double>(cols_));
      factor = 1.0f / sqrtf(mean + norm.eps);
    }
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const int col = r * kRun + static_cast<int>(threadIdx.x) * kFour;
      if (col >= cols_) continue;
      if (norm.y != nullptr) {
        pairs[r] = {pack_x2(norm.element, sums_[r].x * (factor * norm_[r].x),
                            sums_[r].y * (factor * norm_[r].y)),
                    pack_x2(norm.element, sums_[r].z * (factor * norm_[r].z),
                            sums_[r].w * (factor * norm_[r].w))};
        if (rank_ == 0) {
          *reinterpret_cast<uint2*>(static_cast<uint16_t*>(norm.y) + col) = pairs[r];
        }
      }
      float inputs[kFour];
      unpack(pairs[r], norm.y != nullptr ? norm.element : a_.x_element, inputs);
      uint2 rest;
      const uint32_t low = input_pair<Weight>(inputs[0], inputs[1], rest.x);
      const uint32_t high = input_pair<Weight>(inputs[2], inputs[3], rest.y);
      *reinterpret_cast<uint2*>(&shared_.x[0][col]) = {low, high};
      *reinterpret_cast<uint2*>(&shared_.x[1][col]) = rest;
      x_[r] = {inputs[0], inputs[1], inputs[2], inputs[3]};
    }
  }

  static __device__ void unpack(const uint2& pairs, Element element, float (&to)[kFour]) {
    to[0] = to_float(element, static_cast<uint16_t>(pairs.x));
    to[1] = to_float(element, static_cast<uint16_t>(pairs.x >> 16));
    to[2] = to_float(element, static_cast<uint16_t>(pairs.y));
    to[3] = to_float(element, static_cast<uint16_t>(pairs.y >> 16));
  }

  /// The products of 256 rows, of which this CTA has 32, to `partials`.
  __device__ void multiply(int first) {
    float d[2][4] = {};
    constexpr int kChunk = kAhead * kSplits * kBlock;
    const int chunks = (cols_ + kChunk - 1) / kChunk;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int k = k_of(chunk, j);
        uint4 x = {};
        if (k < cols_ && lane_ < 8) {
          x = *reinterpret_cast<const uint4*>(&shared_.x[lane_ / 4][k + lane_ % 4 * 8]);
        }
        const uint32_t even[4] = {w_[j][0].x, w_[j][1].x, w_[j][0].y, w_[j][1].y};
        const uint32_t odd[4] = {w_[j][0].z, w_[j][1].z, w_[j][0].w, w_[j][1].w};
        mma<Weight>(d[0], even, x.x, x.y);
        mma<Weight>(d[1], odd, x.z, x.w);
      }
      const bool is_last = chunk + 1 == chunks;
      const int next = is_last ? first + kCtas * kCtaRows : first;
      if (next < experts_) fetch(next, is_last ? 0 : chunk + 1);
    }
    if (lane_ % 4 == 0) {
      const int row = warp_ / kSplits * kTileRows + lane_ / 4;
      float* const to = shared_.partials[warp_ % kSplits];
      to[row] = (d[0][0] + d[0][1]) + (d[1][0] + d[1][1]);
      to[row + 8] = (d[0][2] + d[0][3]) + (d[1][2] + d[1][3]);
    }
  }

  /// Logits of 256 rows to CTA 0, and what the gate's is the sigmoid of.
  __device__ void add_partials(int first) {
    if (warp_ < kCtaRows * kSplits / kLanes) {
      const int row = static_cast<int>(threadIdx.x) / kSplits;
      float sum = shared_.partials[lane_ % kSplits][row];
#pragma unroll
      for (int distance = kSplits / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(~0u, sum, distance);
      }
      const int expert = first + rank_ * kCtaRows + row;
      if (lane_ % kSplits == 0 && expert < experts_) {
        const float bias = a_.router.bias != nullptr ? a_.router.bias[expert] : 0;
        st_dsmem(shared_address(&shared_.logits[expert]), 0, sum + bias);
      }
    } else if (warp_ == kWarps - 1 && has_gate() && rank_ == kCtas - 1 && first == 0) {
      float sum = shared_.gate_partials[lane_ % kWarps];
#pragma unroll
      for (int distance = kWarps / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(~0u, sum, distance);
      }
      if (a_.gate.bias != nullptr) sum += a_.gate.bias[0];
      if (lane_ == 0) st_dsmem(shared_address(&shared_.gate), 0, sum);
    }
  }

  __device__ void multiply_gate() {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      float weights[kFour];
      unpack(gate_[r], a_.gate.element, weights);
      sum = fmaf(weights[0], x_[r].x, sum);
      sum = fmaf(weights[1], x_[r].y, sum);
      sum = fmaf(weights[2], x_[r].z, sum);
      sum = fmaf(weights[3], x_[r].w, sum);
    }
    sum = sum_of_warp(sum);
    if (lane_ == 0) shared_.gate_partials[warp_] = sum;
  }

  __device__ void store_sum() {
    if (a_.norm.y == nullptr || a_.norm.delta == nullptr) return;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const int col = r * kRun + static_cast<int>(threadIdx.x) * kFour;
      if (col < cols_) *reinterpret_cast<float4*>(a_.norm.x + col) = sums_[r];
    }
  }

  /// By a warp.
  __device__ void choose() {
    const RouteCall& route = a_.route;
    const ChosenExpert chosen = choose_experts(route, shared_.logits);
    sort_of_one_token(route, store_choice(route, 0, chosen, shared_.gate));
  }

  const RouterCall& a_;
  RouterShared& shared_;
  const int cols_, experts_, rank_, warp_, lane_;
  uint4 w_[kAhead][2];
  float4 norm_[kRuns] = {};
  uint2 gate_[kRuns] = {};
  float4 sums_[kRuns];
  float4 x_[kRuns] = {};
};

template <class Weight, int kRuns>
__global__ void __launch_bounds__(kThreads, 1) route_token(const __grid_constant__ RouterCall a) {
  __shared__ RouterShared shared;
  RouterCta<Weight, kRuns>(a, shared).run();
}

template <class Weight>
void launch_for_cols(const RouterCall& call, Stream stream) {
  auto* kernel = route_token<Weight, kMaxRuns>;
  if (call.cols <= 2 * kRun) kernel = route_token<Weight, 2>;
  if (call.cols <= kRun) kernel = route_token<Weight, 1>;
  launch(kernel, {dim3(kCtas), kThreads, 0, kCtas}, stream, call);
}

bool is_aligned(const RouterMatrix& matrix) {
  return reinterpret_cast<uintptr_t>(matrix.weights) % 16 == 0 && matrix.element != Element::kF32;
}

}  // namespace

bool serves_router(const RouterCall& call, int compute_capability) {
  const bool has_norm = call.norm.y != nullptr;
  const Element input = has_norm ? call.norm.element : call.x_element;
  uintptr_t places = 0;
  for (const void* p :
       {static_cast<const void*>(call.norm.x), call.norm.delta, call.x,
        static_cast<const void*>(call.norm.weight), static_cast<const void*>(call.norm.y)}) {
    places |= reinterpret_cast<uintptr_t>(p);
  }
  return compute_capability == 90 && call.route.tokens == 1 &&
         call.route.experts <= kMaxRouterExperts && call.route.routes_of_token() <= kLanes &&
         call.cols <= kMaxRouterCols && call.cols % kBlock == 0 && places % 16 == 0 &&
         input != Element::kF32 &&
         (call.router.element == Element::kBF16 || call.router.element == input) &&
         is_aligned(call.router) && (call.route.shared_gate == nullptr || is_aligned(call.gate)) &&
         call.norm.routes.top_k == 0 && call.norm.rows == nullptr;
}

void run_router(const RouterCall& call, Stream stream) {
  if (call.router.element == Element::kF16) return launch_for_cols<gpu::F16>(call, stream);
  launch_for_cols<gpu::BF16>(call, stream);
}

}  // namespace subbyte::cuda
