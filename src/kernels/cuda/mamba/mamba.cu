// Two kernels where the tokens go one after the other:
//
//   tokens   a CTA for some columns of a head of a part: convolution, and its state from token to
//            token; S^T C + d x goes to the scratch, [rows][heads * head_size]
//   finish   a CTA for a norm group of a row: gate and norm
//
// Long prompts have those of mamba_chunks.cu before `finish`.

#include "kernels/cuda/mamba/mamba.h"

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/delta_net/delta_net.cuh"
#include "kernels/cuda/mamba/mamba.cuh"
#include "kernels/cuda/mamba/mamba_chunks.h"

namespace subbyte::cuda {
namespace {

constexpr int kColumns = 64;     // of a CTA of `tokens`, at most
constexpr int kFewColumns = 32;  // where there are few CTAs otherwise
constexpr int64_t kManyCtas = 128;
constexpr int kFinishThreads = 256;

/// A token of a CTA: B and C of its group, with zeros after the last, and its columns of x.
template <int kKeys>
struct TokenOfColumns {
  static constexpr int kState = kKeyLanes * kKeys;

  float b[kState];
  float c[kState];
  float x[kColumns];
};

/// The convolution of a token, by all threads of a CTA whose columns begin at `first_col`. B and C
/// of a group are kept by the first CTA that reads them.
template <int kKeys>
__device__ void convolve_token(const MambaCall& a, const StatePart& part, int token, int head,
                               int first_col, int num_columns, TokenOfColumns<kKeys>& to) {
  const MambaSizes& s = a.sizes;
  const int first_b = width_of(s) + group_of(s, head) * s.state_size;
  const int first_c = first_b + s.groups * s.state_size;
  const bool keeps = first_col == 0 && head % (s.heads / s.groups) == 0;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * s.state_size + num_columns;
       i += static_cast<int>(blockDim.x)) {
    const int of_c = i - s.state_size;
    const int of_x = of_c - s.state_size;
    if (i < s.state_size) {
      to.b[i] = convolve(a, part, token, first_b + i, keeps);
    } else if (of_x < 0) {
      to.c[of_c] = convolve(a, part, token, first_c + of_c, keeps);
    } else {
      const int col = first_col + of_x;
      to.x[of_x] =
          col < s.head_size ? convolve(a, part, token, head * s.head_size + col, true) : 0.0f;
    }
  }
}

/// kKeys: numbers of B that a lane has.
template <int kKeys>
__global__ void __launch_bounds__(kColumns / kWarpColumns * kLanes)
    tokens(const __grid_constant__ MambaCall a) {
  alignas(16) __shared__ TokenOfColumns<kKeys> own;
  const MambaSizes& s = a.sizes;
  const int num_columns = static_cast<int>(blockDim.x) / kLanes * kWarpColumns;
  const int first_col = static_cast<int>(blockIdx.x) * num_columns;
  const int head = static_cast<int>(blockIdx.y);
  const StatePart part = a.parts[blockIdx.z];
  DeltaNetSizes matrix;
  matrix.key_size = s.state_size;
  matrix.value_size = s.head_size;
  // The kernel before has begun, so those before it have ended, and with them what wrote the state.
  StateColumns<kKeys> columns(matrix,
                              first_col + static_cast<int>(threadIdx.x) / kLanes * kWarpColumns);
  if (part.from >= 0) {
    columns.load(a.states + matrix_at(a, part.from, head));
  } else {
    columns.clear();
  }
  begin_operation();
  for (int i = static_cast<int>(threadIdx.x); i < own.kState; i += static_cast<int>(blockDim.x)) {
    if (i >= s.state_size) own.b[i] = own.c[i] = 0;
  }
  const int col = columns.col();
  const float d = a.d[head];
  float* out = reinterpret_cast<float*>(a.scratch) + int64_t{part.first_token} * width_of(s) +
               head * s.head_size + col;
  for (int token = 0; token < part.num_tokens; ++token, out += width_of(s)) {
    convolve_token(a, part, token, head, first_col, num_columns, own);
    const float step = step_of(a, int64_t{part.first_token} + token, head);
    const float decay = expf(log_decay(a, head, step));
    __syncthreads();
    const float2 x = *reinterpret_cast<const float2*>(own.x + col - first_col);
    const float2 change = {__fmul_rn(step, x.x), __fmul_rn(step, x.y)};
    const float2 given = columns.step_without_read(own.c, own.b, change, decay);
    if (columns.is_first_lane()) {
      if (col < s.head_size) out[0] = fmaf(d, x.x, given.x);
      if (col + 1 < s.head_size) out[1] = fmaf(d, x.y, given.y);
    }
    __syncthreads();  // x, B and C are read before the next ones
  }
  columns.store(a.states + matrix_at(a, part.to, head));
}

/// What the state gave with what goes past it, from float32 of `tokens` or 16 bits of chunks.
template <bool kOfChunks>
__device__ float given_of(const MambaCall& a, int64_t row, int i) {
  const MambaSizes& s = a.sizes;
  const int64_t at = row * width_of(s) + i;
  if constexpr (!kOfChunks) return reinterpret_cast<const float*>(a.scratch)[at];
  const float x = load_element(a.element, a.scratch, row * channels_of(s) + i);
  return fmaf(a.d[i / s.head_size], x, load_element(a.element, a.y, at));
}

/// Each thread reads the numbers of y that it writes, and no others.
template <bool kOfChunks>
__global__ void __launch_bounds__(kFinishThreads) finish(const __grid_constant__ MambaCall a) {
  __shared__ float partials[kFinishThreads / kLanes];
  begin_operation();
  const MambaSizes& s = a.sizes;
  const int size = width_of(s) / static_cast<int>(gridDim.y);
  const int first = static_cast<int>(blockIdx.y) * size;
  const int64_t row = blockIdx.x;
  const auto gate_of = [&](int i) {
    return silu(load_element(a.element, a.projections, row * row_size(s) + i));
  };
  const auto normed = [&](int i) {
    const float given = given_of<kOfChunks>(a, row, i);
    return a.norm_before_gate ? given : __fmul_rn(given, gate_of(i));
  };
  float factor = 1;
  if (a.norm != nullptr) {
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kFinishThreads) {
      const float x = normed(first + i);
      squares = fmaf(x, x, squares);
    }
    const float mean = sum_of_cta(squares, partials) / static_cast<float>(size);
    factor = 1.0f / sqrtf(__fadd_rn(mean, a.eps));
  }
  for (int i = static_cast<int>(threadIdx.x) + first; i < first + size; i += kFinishThreads) {
    float x = __fmul_rn(normed(i), factor);
    if (a.norm != nullptr) x = __fmul_rn(x, a.norm[i]);
    if (a.norm_before_gate) x = __fmul_rn(x, gate_of(i));
    store_element(a.element, a.y, row * width_of(s) + i, x);
  }
}

void launch_tokens(const MambaCall& call, Stream stream) {
  const MambaSizes& s = call.sizes;
  const auto tiles_of = [&](int columns) { return (s.head_size + columns - 1) / columns; };
  const bool are_few = tiles_of(kColumns) * s.heads * call.num_parts < kManyCtas;
  const int tiles = tiles_of(are_few ? kFewColumns : kColumns);
  const int warps = ((s.head_size + tiles - 1) / tiles + kWarpColumns - 1) / kWarpColumns;
  const Grid grid = {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(s.heads),
                          static_cast<unsigned>(call.num_parts)),
                     warps * kLanes};
  if (s.state_size <= 64) return launch(tokens<8>, grid, stream, call);
  if (s.state_size <= 128) return launch(tokens<16>, grid, stream, call);
  launch(tokens<32>, grid, stream, call);
}

}  // namespace

void run_mamba(const MambaCall& call, Stream stream) {
  const bool in_chunks = !call.is_recurrent && has_mamba_chunks(call);
  in_chunks ? run_mamba_chunks(call, stream) : launch_tokens(call, stream);
  const int groups = call.norm == nullptr ? 1 : call.sizes.norm_groups;
  const Grid grid = {dim3(static_cast<unsigned>(call.num_rows), static_cast<unsigned>(groups)),
                     kFinishThreads};
  launch(in_chunks ? finish<true> : finish<false>, grid, stream, call);
}

}  // namespace subbyte::cuda
