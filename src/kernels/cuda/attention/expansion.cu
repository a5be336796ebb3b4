#include "kernels/cuda/attention/expansion.h"

#include "kernels/cuda/attention/attention_kernel.cuh"
#include "kernels/cuda/attention/expanded_hopper.h"
#include "kernels/cuda/dense/dense_16bit.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEight = 8;  // numbers, 16 bytes

__host__ __device__ Element made_element(const ExpansionCall& call) {
  const AttentionCall& a = call.attention;
  return a.cache.element == Element::kE4M3 ? a.element : a.cache.element;
}

/// Memory of what is made.
struct Made {
  uint16_t* latents;   // [positions][rank]
  uint16_t* turned;    // [positions][turning]
  uint16_t* matrices;  // [heads][nope][rank]
  uint16_t* keys;      // [positions][heads][nope]
  uint16_t* values;    // [positions][heads][value]
};

Made made_in(const ExpansionCall& call, int64_t heads) {
  const ExpandedSizes& s = call.sizes;
  const int64_t positions = call.num_pages * kPagePositions;
  std::byte* next = call.memory;
  const auto take = [&](int64_t numbers) {
    auto* const taken = reinterpret_cast<uint16_t*>(next);
    next += (2 * numbers + 255) / 256 * 256;
    return taken;
  };
  Made made = {};
  made.latents = take(positions * s.rank);
  made.turned = take(positions * s.turning);
  made.matrices = take(heads * s.nope * s.rank);
  made.keys = take(heads * positions * s.nope);
  made.values = take(heads * positions * s.value);
  return made;
}

struct GatherCall {
  KvLayer cache;
  Element element;
  const ExpandedPage* pages;
  uint16_t* latents;
  uint16_t* turned;
  int32_t rank;
  int32_t turning;
};

/// Eight codes of e4m3 as numbers.
template <class Number>
__device__ uint4 unpack_8(uint2 codes, float factor) {
  const uint32_t halves[2] = {codes.x, codes.y};
  uint32_t numbers[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t high = __byte_perm(halves[j / 2], 0, j % 2 == 0 ? 0x1404 : 0x3424);
    numbers[j] = unpack_e4m3<Number>(high, factor);
  }
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

__device__ uint4 load_latent(const GatherCall& a, const std::byte* run, int row, int col) {
  const int dim = a.rank + a.turning;
  const int64_t at = int64_t{row} * dim + col;
  if (a.cache.element != Element::kE4M3) {
    return *reinterpret_cast<const uint4*>(run + 2 * at);
  }
  const auto codes = *reinterpret_cast<const uint2*>(run + at);
  const auto scale = static_cast<uint32_t>(run[int64_t{kPagePositions} * dim + row]);
  const float factor = __uint_as_float(e4m3::factor_bits(scale));
  if (a.element == Element::kF16) return unpack_8<gpu::F16>(codes, factor);
  return unpack_8<gpu::BF16>(codes, factor);
}

/// A CTA for the positions of a page. What is not there is zero.
__global__ void __launch_bounds__(kThreads) gather_latents(const __grid_constant__ GatherCall a) {
  begin_operation();
  const ExpandedPage page = a.pages[blockIdx.x];
  const std::byte* const run = a.cache.pages + page.page * a.cache.page_bytes + a.cache.layer_begin;
  const int eights = (a.rank + a.turning) / kEight;
  for (int i = threadIdx.x; i < kPagePositions * eights; i += kThreads) {
    const int row = i / eights;
    const int col = i % eights * kEight;
    const int64_t position = int64_t{blockIdx.x} * kPagePositions + row;
    uint16_t* const to = col < a.rank ? a.latents + position * a.rank + col
                                      : a.turned + position * a.turning + col - a.rank;
    *reinterpret_cast<uint4*>(to) = row < page.positions ? load_latent(a, run, row, col) : uint4{};
  }
}

constexpr int kTurnTile = 64;

struct TurnCall {
  const uint16_t* from;  // [heads][rank][nope]
  uint16_t* to;          // [heads][nope][rank]
  int32_t rank;
  int32_t nope;
};

/// A CTA for 64 by 64 numbers of a matrix.
__global__ void __launch_bounds__(kThreads) turn_matrices(const __grid_constant__ TurnCall a) {
  begin_operation();
  __shared__ uint16_t tile[kTurnTile][kTurnTile + 2];
  const int first_row = static_cast<int>(blockIdx.x) * kTurnTile;  // of rank
  const int first_col = static_cast<int>(blockIdx.y) * kTurnTile;
  const int64_t matrix = int64_t{blockIdx.z} * a.rank * a.nope;
  const int x = static_cast<int>(threadIdx.x) % kTurnTile;
  for (int y = threadIdx.x / kTurnTile; y < kTurnTile; y += kThreads / kTurnTile) {
    if (first_row + y >= a.rank || first_col + x >= a.nope) continue;
    tile[y][x] = a.from[matrix + int64_t{first_row + y} * a.nope + first_col + x];
  }
  __syncthreads();
  for (int y = threadIdx.x / kTurnTile; y < kTurnTile; y += kThreads / kTurnTile) {
    if (first_row + x >= a.rank || first_col + y >= a.nope) continue;
    a.to[matrix + int64_t{first_col + y} * a.rank + first_row + x] = tile[x][y];
  }
}

/// Some heads, from one on.
struct Round {
  int64_t first;
  int64_t heads;
  Made made;
};

void launch_turn(const ExpansionCall& call, const Round& round, Stream stream) {
  const ExpandedSizes& s = call.sizes;
  const TurnCall turn = {static_cast<const uint16_t*>(call.keys) + round.first * s.rank * s.nope,
                         round.made.matrices, static_cast<int32_t>(s.rank),
                         static_cast<int32_t>(s.nope)};
  const auto tiles = [](int64_t size) {
    return static_cast<unsigned>((size + kTurnTile - 1) / kTurnTile);
  };
  const dim3 grid(tiles(s.rank), tiles(s.nope), static_cast<unsigned>(round.heads));
  launch(turn_matrices, {grid, kThreads}, stream, turn);
}

/// Of all latents by the matrices of a round, which are one: y [positions][heads * rows].
void multiply(const ExpansionCall& call, const Round& round, const void* weights, Element element,
              int64_t rows, uint16_t* y, Stream stream) {
  DenseCall dense;
  dense.weights = weights;
  dense.are_weights_made = weights == round.made.matrices;
  dense.weights_element = element;
  dense.x = round.made.latents;
  dense.x_element = dense.y_element = made_element(call);
  dense.y = y;
  dense.m = call.num_pages * kPagePositions;
  dense.rows = dense.y_stride = round.heads * rows;
  dense.cols = dense.x_stride = call.sizes.rank;
  run_dense_16bit(dense, stream);
}

/// Says whether a CTA of the current GPU may have so much shared memory.
bool has_room_for(int bytes) {
  int device = 0;
  int most = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         bytes <= most;
}

/// Small heads have tiles of 64 keys, for which some GPUs have no room, others of 32.
template <class Number>
void launch_attention(const AttentionCall& call, Stream stream) {
  using Keys = MadeKeys<Number>;
  static_assert(attention_shared_bytes<Keys, false, 256, 256>(256, 256) <= 99 * 1024);
  const int64_t tasks = 2 * call.num_prompt;  // own_task()
  const int values = call.value_dim();
  const bool are_small =
      call.head_dim <= 192 && values <= 128 &&
      has_room_for(attention_shared_bytes<Keys, false, 192, 128>(call.head_dim, values));
  if (are_small && call.head_dim == 192 && values == 128) {
    launch_tasks<Keys, false, 192, 128, true>(call, tasks, stream);
  } else if (are_small) {
    launch_tasks<Keys, false, 192, 128, false>(call, tasks, stream);
  } else if (call.head_dim == 256 && values == 256) {
    launch_tasks<Keys, false, 256, 256, true>(call, tasks, stream);
  } else {
    launch_tasks<Keys, false, 256, 256, false>(call, tasks, stream);
  }
}

void attend(const ExpansionCall& call, const Round& round, Stream stream) {
  const ExpandedSizes& s = call.sizes;
  AttentionCall a = call.attention;
  const auto q_step = static_cast<int32_t>(s.rank + s.turning);
  a.expanded = {.keys = round.made.keys,
                .turned = round.made.turned,
                .values = round.made.values,
                .positions = call.num_pages * kPagePositions,
                .key_dim = static_cast<int32_t>(s.nope),
                .value_dim = static_cast<int32_t>(s.value),
                .q_step = q_step,
                .y_step = static_cast<int32_t>(s.rank),
                .y_stride = s.heads * s.rank};
  a.qkv = static_cast<const uint16_t*>(a.qkv) + round.first * q_step + s.rank - s.nope;
  a.y = static_cast<uint16_t*>(a.y) + round.first * s.rank;
  if (a.sinks != nullptr) a.sinks += round.first;
  a.heads = a.kv_heads = static_cast<int32_t>(round.heads);
  a.head_dim = static_cast<int32_t>(s.head_dim());
  a.values_in_keys = 0;
  if (call.has_wgmma && run_expanded_hopper(a, call.num_tokens, stream)) return;
  if (made_element(call) == Element::kF16) {
    launch_attention<gpu::F16>(a, stream);
  } else {
    launch_attention<gpu::BF16>(a, stream);
  }
}

void launch_gather(const ExpansionCall& call, const Made& made, Stream stream) {
  const GatherCall gather = {call.attention.cache,
                             made_element(call),
                             call.pages,
                             made.latents,
                             made.turned,
                             static_cast<int32_t>(call.sizes.rank),
                             static_cast<int32_t>(call.sizes.turning)};
  launch(gather_latents, {dim3(static_cast<unsigned>(call.num_pages)), kThreads}, stream, gather);
}

__global__ void __launch_bounds__(kThreads) move_heads(const __grid_constant__ MoveHeadsCall a) {
  begin_operation();
  const int of_head = a.count / kEight;
  const int64_t of_row = int64_t{a.heads} * of_head + a.rest_cols / kEight;
  const int64_t y_cols = int64_t{a.heads} * a.y_step + a.rest_cols;
  const int64_t row = blockIdx.y;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= of_row) return;
  const int64_t head = i / of_head;
  const bool is_rest = head >= a.heads;
  const int64_t at = (i - (is_rest ? int64_t{a.heads} : head) * of_head) * kEight;
  const uint16_t* const from =
      is_rest ? static_cast<const uint16_t*>(a.rest) + row * a.rest_cols
              : static_cast<const uint16_t*>(a.x) + (row * a.heads + head) * a.x_step;
  uint16_t* const to = static_cast<uint16_t*>(a.y) + row * y_cols +
                       (is_rest ? int64_t{a.heads} * a.y_step : head * a.y_step + a.y_first);
  *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
}

}  // namespace

void run_expanded_attention(const ExpansionCall& call, Stream stream) {
  const ExpandedSizes& s = call.sizes;
  const int64_t most = s.heads_at_a_time(call.num_pages * kPagePositions);
  const Made made = made_in(call, most);
  launch_gather(call, made, stream);
  for (int64_t first = 0; first < s.heads; first += most) {
    const Round round = {first, std::min(most, s.heads - first), made};
    launch_turn(call, round, stream);
    multiply(call, round, made.matrices, call.keys_element, s.nope, made.keys, stream);
    const auto* const values = static_cast<const uint16_t*>(call.values) + first * s.value * s.rank;
    multiply(call, round, values, call.values_element, s.value, made.values, stream);
    attend(call, round, stream);
  }
}

void run_move_heads(const MoveHeadsCall& call, Stream stream) {
  const int64_t eights = (int64_t{call.heads} * call.count + call.rest_cols) / kEight;
  const dim3 grid(static_cast<unsigned>((eights + kThreads - 1) / kThreads),
                  static_cast<unsigned>(call.rows));
  launch(move_heads, {grid, kThreads}, stream, call);
}

}  // namespace subbyte::cuda
