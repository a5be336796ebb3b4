// Single tokens are one kernel: a CTA for a value head of a part reads its state while it convolves
// and normalises, and writes the new one. Prompts are three, with float32 between them:
//
//   mix      a warp for a head of queries, keys or values of a row: convolution, norms, gates
//   recur    a CTA for 32 columns of a value head of a part walks over the tokens; columns do not
//            know each other
//   finish   a warp for a value head of a row: norm and gate of the result
//
//   scratch of a row   [key_heads][size of a query] q, the same of k, [value_heads][values] v, then
//                      what the state gave in its place, [value_heads] decay and beta

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/delta_net/delta_net.cuh"
#include "kernels/cuda/delta_net/delta_net_chunks.h"
#include "kernels/cuda/delta_net/delta_net_token.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kFewCtas = 264;  // more have half as many threads for single tokens
constexpr int kRecurThreads = 128;
constexpr int kRecurColumns = kRecurThreads / kLanes * kWarpColumns;

/// Keys of a lane.
__host__ __device__ constexpr int keys_of_lane(int key_size) {
  return key_size <= 64 ? 8 : key_size <= 128 ? 16 : 32;
}

/// A row of scratch, in floats; each array begins at a multiple of four.
struct ScratchRow {
  int key;    // a query or a key, with zeros
  int value;  // a value head
  int k, v, gates;
  int size;

  __host__ __device__ explicit ScratchRow(const DeltaNetSizes& s)
      : key(kKeyLanes * keys_of_lane(s.key_size)),
        value((s.value_size + 3) / 4 * 4),
        k(s.key_heads * key),
        v(2 * k),
        gates(v + s.value_heads * value),
        size((gates + 2 * s.value_heads + 3) / 4 * 4) {}
};

__device__ float* scratch_of(const DeltaNetCall& a, const ScratchRow& scratch, int64_t row) {
  return reinterpret_cast<float*>(a.scratch) + row * scratch.size;
}

__global__ void __launch_bounds__(kThreads) mix(const __grid_constant__ DeltaNetCall a) {
  begin_operation();
  const DeltaNetSizes& s = a.sizes;
  const ScratchRow scratch(s);
  const int heads = 2 * s.key_heads + s.value_heads;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * heads) return;
  MixedHead mixed(a, i / heads, static_cast<int>(i % heads));
  float* const row = scratch_of(a, scratch, mixed.row());
  if (!mixed.is_value()) {
    mixed.normalise(mixed.is_query() ? query_length(s) : 1);
    float* const to = row + (mixed.is_query() ? 0 : scratch.k) + mixed.head() * scratch.key;
    mixed.store(scratch.key, [&](int at, float x) { to[at] = x; });
    return;
  }
  float* const to = row + scratch.v + mixed.head() * scratch.value;
  mixed.store(s.value_size, [&](int at, float x) { to[at] = x; });
  if (threadIdx.x % kLanes > 0) return;
  const DeltaGates gates = gates_of(a, mixed.row(), mixed.head());
  row[scratch.gates + 2 * mixed.head()] = gates.decay;
  row[scratch.gates + 2 * mixed.head() + 1] = gates.beta;
}

/// Tokens on their way to `recur`.
template <int kKeys>
struct RecurTile {
  static constexpr int kTokens = kKeys > 16 ? 8 : 16;
  static constexpr int kKey = kKeyLanes * kKeys;

  float q[kTokens][kKey];
  float k[kTokens][kKey];
  float v[kTokens][kRecurColumns];
  float2 gates[kTokens];
};

/// Begins to copy the tokens of a tile: `count` of them, whose scratch begins at `row`.
template <int kKeys>
__device__ void copy_tile(RecurTile<kKeys>& tile, const float* row, const ScratchRow& scratch,
                          int count, int head, int value_head, int first_col) {
  using Tile = RecurTile<kKeys>;
  constexpr int kKeyChunks = Tile::kKey / 4;
  constexpr int kValueChunks = kRecurColumns / 4;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < count * kKeyChunks; i += kRecurThreads) {
    const int t = i / kKeyChunks;
    const int at = i % kKeyChunks * 4;
    const float* const from = row + int64_t{t} * scratch.size + head * scratch.key + at;
    cp_async<16>(shared_address(&tile.q[t][at]), from);
    cp_async<16>(shared_address(&tile.k[t][at]), from + scratch.k);
  }
  for (int i = thread; i < count * kValueChunks; i += kRecurThreads) {
    const int t = i / kValueChunks;
    const int at = i % kValueChunks * 4;
    if (first_col + at >= scratch.value) continue;
    cp_async<16>(shared_address(&tile.v[t][at]), row + int64_t{t} * scratch.size + scratch.v +
                                                     value_head * scratch.value + first_col + at);
  }
  for (int t = thread; t < count; t += kRecurThreads) {
    cp_async<8>(shared_address(&tile.gates[t]),
                row + int64_t{t} * scratch.size + scratch.gates + 2 * value_head);
  }
}

template <int kKeys>
__global__ void __launch_bounds__(kRecurThreads) recur(const __grid_constant__ DeltaNetCall a) {
  using Tile = RecurTile<kKeys>;
  alignas(16) __shared__ Tile tiles[2];
  begin_operation();
  const DeltaNetSizes& s = a.sizes;
  const ScratchRow scratch(s);
  const StatePart part = a.parts[blockIdx.z];
  const int value_head = static_cast<int>(blockIdx.y);
  const int head = value_head / s.values_per_key;
  const int first_col = static_cast<int>(blockIdx.x) * kRecurColumns;
  const int warp_col = static_cast<int>(threadIdx.x) / kLanes * kWarpColumns;
  float* const rows = scratch_of(a, scratch, part.first_token);
  const auto copy = [&](int token) {
    const int count = min(Tile::kTokens, part.num_tokens - token);
    if (count > 0) {
      copy_tile<kKeys>(tiles[token / Tile::kTokens % 2], rows + token * int64_t{scratch.size},
                       scratch, count, head, value_head, first_col);
    }
    cp_async_commit();
  };
  copy(0);
  StateColumns<kKeys> columns(s, first_col + warp_col);
  if (part.from >= 0) {
    columns.load(a.states + matrix_at(a, part.from, value_head));
  } else {
    columns.clear();
  }
  const int col = columns.col() - first_col;
  float* y = rows + scratch.v + value_head * scratch.value + columns.col();
  const bool stores = columns.is_first_lane() && columns.col() < scratch.value;
  for (int token = 0; token < part.num_tokens; token += Tile::kTokens) {
    copy(token + Tile::kTokens);
    cp_async_wait<1>();
    __syncthreads();
    const Tile& tile = tiles[token / Tile::kTokens % 2];
    const int count = min(Tile::kTokens, part.num_tokens - token);
#pragma unroll 2
    for (int t = 0; t < count; ++t, y += scratch.size) {
      const float2 v = *reinterpret_cast<const float2*>(&tile.v[t][col]);
      const float2 gates = tile.gates[t];
      const float2 given = columns.step(tile.q[t], tile.k[t], v, {gates.x, gates.y});
      if (stores) *reinterpret_cast<float2*>(y) = given;
    }
    __syncthreads();  // the tile is read before the next copy into it
  }
  columns.store(a.states + matrix_at(a, part.to, value_head));
}

__global__ void __launch_bounds__(kThreads) finish(const __grid_constant__ DeltaNetCall a) {
  begin_operation();
  const ScratchRow scratch(a.sizes);
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * a.sizes.value_heads) return;
  const int64_t row = i / a.sizes.value_heads;
  const int value_head = static_cast<int>(i % a.sizes.value_heads);
  const float* const given = scratch_of(a, scratch, row) + scratch.v + value_head * scratch.value;
  store_result(
      a, row, value_head, [&](int at) { return given[at]; },
      [&](int at) { return result_gate(a, row, value_head, at); });
}

/// A CTA: the convolution of a token of a value head. What is kept of queries and keys is written
/// by the first value head that reads them.
template <int kThreadsOfToken, int kKeys>
__device__ void convolve_token(const DeltaNetCall& a, const StatePart& part, int value_head,
                               TokenOfHead<kKeys>& to) {
  constexpr int kKey = kKeyLanes * kKeys;
  const int per_key = a.sizes.values_per_key;
  const HeadPlace q = queries_of(a, value_head / per_key);
  const HeadPlace k = keys_of(a, value_head / per_key);
  const HeadPlace v = values_of(a, value_head);
  const bool keeps_keys = value_head % per_key == 0;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * (kKey + v.size); i += kThreadsOfToken) {
    if (i >= 2 * kKey + v.size) {
      const int at = i - 2 * kKey - v.size;
      to.gates[at] = result_gate(a, part.first_token, value_head, at);
      continue;
    }
    if (i >= 2 * kKey) {
      const int at = i - 2 * kKey;
      to.v[at] = convolve(a, part, 0, v.column + at, v.channel + at, true);
      continue;
    }
    const HeadPlace place = i < kKey ? q : k;
    const int at = i % kKey;
    (i < kKey ? to.q : to.k)[at] =
        at < place.size ? convolve(a, part, 0, place.column + at, place.channel + at, keeps_keys)
                        : 0.0f;
  }
}

/// Many CTAs share a multiprocessor, so that some load or store states while others compute; few
/// have a thread for each pair of columns and eight lanes.
template <int kThreadsOfToken, int kKeys>
__global__ void __launch_bounds__(kThreadsOfToken, kThreadsOfToken == 256 && kKeys <= 16 ? 3 : 1)
    single_tokens(const __grid_constant__ DeltaNetCall a) {
  constexpr int kColumns = kThreadsOfToken / kLanes * kWarpColumns;
  alignas(16) __shared__ TokenOfHead<kKeys> token;
  __shared__ DeltaGates gates;
  const DeltaNetSizes& s = a.sizes;
  const StatePart part = a.parts[blockIdx.y];
  const int value_head = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const auto load = [&](int first) {
    StateColumns<kKeys> columns(s, first);
    if (part.from >= 0) {
      columns.load(a.states + matrix_at(a, part.from, value_head));
    } else {
      columns.clear();
    }
    return columns;
  };
  // The kernel before has begun, so those before it have ended, and with them what wrote the state.
  StateColumns<kKeys> columns = load(warp * kWarpColumns);
  begin_operation();
  convolve_token<kThreadsOfToken>(a, part, value_head, token);
  if (threadIdx.x == kThreadsOfToken - 1) gates = gates_of(a, part.first_token, value_head);
  __syncthreads();
  if (warp == 0) normalise_key(a, token.q, query_length(s));
  if (warp == 1) normalise_key(a, token.k, 1);
  __syncthreads();
  for (int first = warp * kWarpColumns; first < s.value_size; first += kColumns) {
    if (first >= kColumns) columns = load(first);
    float* const v = token.v + columns.col();  // read and written by the lanes of the column alone
    const float2 given = columns.step(token.q, token.k, *reinterpret_cast<const float2*>(v), gates);
    columns.store(a.states + matrix_at(a, part.to, value_head));
    __syncwarp();
    if (columns.is_first_lane()) *reinterpret_cast<float2*>(v) = given;
  }
  __syncthreads();
  if (warp > 0) return;
  store_result(
      a, part.first_token, value_head, [&](int at) { return token.v[at]; },
      [&](int at) { return token.gates[at]; });
}

unsigned ctas_of(int64_t warps) {
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

template <int kKeys>
void launch_recurrence(const DeltaNetCall& call, Stream stream) {
  const DeltaNetSizes& s = call.sizes;
  const auto tiles = static_cast<unsigned>((s.value_size + kRecurColumns - 1) / kRecurColumns);
  const dim3 ctas(tiles, static_cast<unsigned>(s.value_heads),
                  static_cast<unsigned>(call.num_parts));
  const int64_t heads = 2 * s.key_heads + s.value_heads;
  launch(mix, {dim3(ctas_of(call.num_rows * heads)), kThreads}, stream, call);
  launch(recur<kKeys>, {ctas, kRecurThreads}, stream, call);
  launch(finish, {dim3(ctas_of(call.num_rows * s.value_heads)), kThreads}, stream, call);
}

template <int kKeys>
void launch_for_keys(const DeltaNetCall& call, Stream stream) {
  if (call.num_rows > call.num_parts) return launch_recurrence<kKeys>(call, stream);
  if (serves_usual_tokens(call)) return run_usual_tokens(call, stream);
  const dim3 ctas(static_cast<unsigned>(call.sizes.value_heads),
                  static_cast<unsigned>(call.num_parts));
  if (call.sizes.value_heads * call.num_parts <= kFewCtas) {
    launch(single_tokens<512, kKeys>, {ctas, 512}, stream, call);
  } else {
    launch(single_tokens<256, kKeys>, {ctas, 256}, stream, call);
  }
}

}  // namespace

int64_t delta_net_scratch(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts,
                          bool is_recurrent) {
  if (num_rows == num_parts) return 0;
  if (!is_recurrent && has_chunks(sizes, num_rows, num_parts)) {
    return delta_net_chunk_scratch(sizes, num_rows, num_parts);
  }
  return num_rows * ScratchRow(sizes).size * int64_t{sizeof(float)};
}

bool computes_gates(const DeltaNetCall& call) {
  const DeltaNetGateProduct& product = call.gate_product;
  const auto places = reinterpret_cast<uintptr_t>(product.weights) |
                      reinterpret_cast<uintptr_t>(product.x) | product.cols * 2;
  return product.weights != nullptr && places % 16 == 0 && product.element != Element::kF32 &&
         !call.is_recurrent && serves_usual_tokens(call);
}

void run_delta_net(const DeltaNetCall& call, Stream stream) {
  if (!call.is_recurrent && has_chunks(call.sizes, call.num_rows, call.num_parts)) {
    return run_delta_net_chunks(call, stream);
  }
  switch (keys_of_lane(call.sizes.key_size)) {
    case 8:
      return launch_for_keys<8>(call, stream);
    case 16:
      return launch_for_keys<16>(call, stream);
    default:
      return launch_for_keys<32>(call, stream);
  }
}

}  // namespace subbyte::cuda
