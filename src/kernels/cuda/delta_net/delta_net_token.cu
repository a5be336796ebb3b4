// Single tokens of gated delta nets whose heads have 128 numbers: a CTA for a value head of a part.
//
//   warps 0 to 3     the query's convolution, 4 to 7 the key's, 8 to 11 the value's, 12 to 15 the
//   of 16            gate of the result
//   warps 0 to 7     b, warps 8 to 15 a, each an eighth of the inputs
//   every warp       eight columns of the state
//
// Weights and what the step before left of the sequence are loaded before the kernel waits for the
// one that writes its inputs.

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/delta_net/delta_net_token.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kLanes;
constexpr int kSize = 128;  // of a head
constexpr int kKeys = kSize / kKeyLanes;
constexpr int64_t kFewCtas = 264;
constexpr int kEight = 8;
constexpr int kGateThreads = kThreads / 2;  // of b, and as many of a
constexpr int kGateRun = kGateThreads * kEight;
constexpr int kGateRuns = 3;  // that are loaded ahead

/// A channel of a thread: its filters, and its inputs but the last.
struct ChannelAhead {
  float filters[kUsualTaps];
  float x[kUsualTaps];
};

class UsualToken {
 public:
  __device__ UsualToken(const DeltaNetCall& a, TokenOfHead<kKeys>& token, float* partials,
                        DeltaGates& gates)
      : a_(a),
        token_(token),
        partials_(partials),
        gates_(gates),
        part_(a.parts[blockIdx.y]),
        value_head_(static_cast<int>(blockIdx.x)),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        kind_(static_cast<int>(threadIdx.x) / kSize),
        at_(static_cast<int>(threadIdx.x) % kSize),
        columns_(a.sizes, warp_ * kWarpColumns) {}

  __device__ void run() {
    load_ahead();
    begin_operation();
    take_inputs();
    __syncthreads();
    if (warp_ == 0) normalise_key(a_, token_.q, query_length(a_.sizes));
    if (warp_ == 1) normalise_key(a_, token_.k, 1);
    if (warp_ == 2) find_gates();
    __syncthreads();
    // Read and written by the lanes of the column alone.
    float* const v = token_.v + columns_.col();
    const float2 given =
        columns_.step(token_.q, token_.k, *reinterpret_cast<const float2*>(v), gates_);
    columns_.store(a_.states + matrix_at(a_, part_.to, value_head_));
    __syncwarp();
    if (columns_.is_first_lane()) *reinterpret_cast<float2*>(v) = given;
    __syncthreads();
    if (warp_ > 0) return;
    store_result(
        a_, part_.first_token, value_head_, [&](int i) { return token_.v[i]; },
        [&](int i) { return token_.gates[i]; });
  }

 private:
  __device__ bool has_product() const { return a_.ba == nullptr; }
  __device__ ChannelInputs channel() const {
    const int head = value_head_ / a_.sizes.values_per_key;
    const HeadPlace place = kind_ == 0   ? queries_of(a_, head)
                            : kind_ == 1 ? keys_of(a_, head)
                                         : values_of(a_, value_head_);
    return ChannelInputs(a_, part_, 0, place.column + at_, place.channel + at_);
  }

  /// All that is there before the step. What wrote the state has ended: it was in the step before.
  __device__ void load_ahead() {
    if (part_.from >= 0) {
      columns_.load(a_.states + matrix_at(a_, part_.from, value_head_));
    } else {
      columns_.clear();
    }
    if (kind_ < 3) {
      const ChannelInputs inputs = channel();
#pragma unroll
      for (int tap = 0; tap < kUsualTaps; ++tap) {
        ahead_.filters[tap] = inputs.filter(tap);
        ahead_.x[tap] = tap + 1 < kUsualTaps ? inputs.input(tap) : 0;
      }
    } else {
      ahead_.filters[0] = a_.norm[at_];
    }
    rate_ = a_.rates[value_head_];
    dt_bias_ = a_.dt_bias[value_head_];
    if (!has_product()) return;
#pragma unroll
    for (int r = 0; r < kGateRuns; ++r) of_gates_[r] = load_gate_weights(gate_col(r));
  }

  __device__ int gate_col(int run) const {
    return run * kGateRun + static_cast<int>(threadIdx.x) % kGateThreads * kEight;
  }
  __device__ uint4 load_gate_weights(int col) const {
    const DeltaNetGateProduct& product = a_.gate_product;
    if (col >= product.cols) return {};
    const int2 rows = gate_columns(a_, value_head_);
    const int64_t row = threadIdx.x < kGateThreads ? rows.x : rows.y;
    return *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(product.weights) +
                                           row * product.cols + col);
  }

  __device__ void take_inputs() {
    if (kind_ < 3) {
      const ChannelInputs inputs = channel();
      const bool keeps = kind_ == 2 || value_head_ % a_.sizes.values_per_key == 0;
      ahead_.x[kUsualTaps - 1] = inputs.input(kUsualTaps - 1);
      float sum = 0;
#pragma unroll
      for (int tap = 0; tap < kUsualTaps; ++tap) {
        sum = fmaf(ahead_.filters[tap], ahead_.x[tap], sum);
        if (keeps) inputs.keep(tap, ahead_.x[tap]);
      }
      float* const to = kind_ == 0 ? token_.q : kind_ == 1 ? token_.k : token_.v;
      to[at_] = silu(sum);
    } else {
      const int64_t z = int64_t{part_.first_token} * row_size(a_.sizes) +
                        value_column(a_, a_.z, value_head_) + at_;
      const float x = load_element(a_.element, a_.qkvz, z);
      token_.gates[at_] = __fmul_rn(ahead_.filters[0], silu(x));
    }
    if (has_product()) {
      multiply_gates();
    } else if (warp_ == 2) {
      const int2 columns = gate_columns(a_, value_head_);
      const int64_t row = int64_t{part_.first_token} * 2 * a_.sizes.value_heads;
      of_b_ = load_element(a_.element, a_.ba, row + columns.x);
      of_a_ = load_element(a_.element, a_.ba, row + columns.y);
    }
  }

  /// b and a, of each warp its part.
  __device__ void multiply_gates() {
    const DeltaNetGateProduct& product = a_.gate_product;
    float sum = 0;
#pragma unroll 1
    for (int first = 0; first * kGateRun < product.cols; first += kGateRuns) {
#pragma unroll
      for (int r = 0; r < kGateRuns; ++r) {
        const int col = gate_col(first + r);
        if (col >= product.cols) continue;
        const uint4 weights = first == 0 ? of_gates_[r] : load_gate_weights(col);
        const uint4 x = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(product.x) +
                                                        part_.first_token * product.cols + col);
        sum = add(sum, weights.x, x.x);
        sum = add(sum, weights.y, x.y);
        sum = add(sum, weights.z, x.z);
        sum = add(sum, weights.w, x.w);
      }
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x % kLanes == 0) partials_[warp_] = sum;
  }
  __device__ float add(float sum, uint32_t weights, uint32_t x) const {
    const Element of = a_.gate_product.element;
    sum = fmaf(to_float(of, static_cast<uint16_t>(weights)),
               to_float(a_.element, static_cast<uint16_t>(x)), sum);
    return fmaf(to_float(of, static_cast<uint16_t>(weights >> 16)),
                to_float(a_.element, static_cast<uint16_t>(x >> 16)), sum);
  }

  /// By a warp. b and a are rounded as a product of its own rounds them.
  __device__ void find_gates() {
    if (has_product()) {
      float sum = partials_[threadIdx.x % kWarps];
#pragma unroll
      for (int distance = kWarps / 4; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(~0u, sum, distance);
      }
      of_b_ = rounded(a_.element, __shfl_sync(~0u, sum, 0));
      of_a_ = rounded(a_.element, __shfl_sync(~0u, sum, kWarps / 2));
    }
    const float2 logs = log_gates(of_b_, of_a_, rate_, dt_bias_);
    if (threadIdx.x % kLanes == 0) gates_ = {expf(logs.x), logs.y};
  }

  const DeltaNetCall& a_;
  TokenOfHead<kKeys>& token_;
  float* const partials_;  // of warps
  DeltaGates& gates_;
  const StatePart part_;
  const int value_head_, warp_;
  const int kind_, at_;  // of the thread's channel
  StateColumns<kKeys> columns_;
  ChannelAhead ahead_ = {};
  float rate_, dt_bias_;
  float of_b_ = 0, of_a_ = 0;  // in warp 2
  uint4 of_gates_[kGateRuns] = {};
};

__global__ void __launch_bounds__(kThreads, 1)
    usual_tokens(const __grid_constant__ DeltaNetCall call) {
  alignas(16) __shared__ TokenOfHead<kKeys> token;
  __shared__ float partials[kWarps];
  __shared__ DeltaGates gates;
  DeltaNetCall a = call;
  a.sizes.key_size = a.sizes.value_size = kSize;  // known to the compiler
  a.sizes.taps = kUsualTaps;
  UsualToken(a, token, partials, gates).run();
}

}  // namespace

bool serves_usual_tokens(const DeltaNetCall& call) {
  const DeltaNetSizes& s = call.sizes;
  return s.key_size == kSize && s.value_size == kSize && s.taps == kUsualTaps &&
         call.num_rows == call.num_parts && s.value_heads * call.num_parts <= kFewCtas;
}

void run_usual_tokens(const DeltaNetCall& call, Stream stream) {
  const dim3 ctas(static_cast<unsigned>(call.sizes.value_heads),
                  static_cast<unsigned>(call.num_parts));
  launch(usual_tokens, {ctas, kThreads}, stream, call);
}

}  // namespace subbyte::cuda
