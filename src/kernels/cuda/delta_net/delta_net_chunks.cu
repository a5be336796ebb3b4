// The kernels of delta_net_chunks.h, one after the other:
//
//   mix_chunks   a warp for a head of a row: convolution, norms, gates
//   solve        a CTA for a value head of a chunk: W, T diag(beta) V and P
//   pass         a CTA for some columns of a value head of a part: from chunk to chunk
//   finish       a warp for a value head of a row: norm and gate of the result

#include "kernels/cuda/delta_net/delta_net_chunks.h"

#include <algorithm>

#include "kernels/cuda/delta_net/delta_net_pass.cuh"
#include "kernels/cuda/delta_net/delta_net_solve.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int64_t kMinTokens = 32;  // of a part in the mean
constexpr int64_t kManyCtas = 132;  // from that on CTAs of `pass` have 64 columns, else 32

__global__ void __launch_bounds__(kThreads) mix_chunks(const __grid_constant__ DeltaNetCall a) {
  begin_operation();
  const DeltaNetSizes& s = a.sizes;
  const ChunkScratch scratch(a);
  const int heads = 2 * s.key_heads + s.value_heads;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * heads) return;
  MixedHead mixed(a, i / heads, static_cast<int>(i % heads));
  if (!mixed.is_value()) {
    mixed.normalise(1);
    uint16_t* const to = numbers_at(a, mixed.is_query() ? scratch.q : scratch.k) +
                         (mixed.row() * s.key_heads + mixed.head()) * scratch.key;
    mixed.store(scratch.key, [&](int at, float x) { store_element(a.element, to, at, x); });
    return;
  }
  const int64_t head = mixed.row() * s.value_heads + mixed.head();
  uint16_t* const to = numbers_at(a, scratch.v) + head * scratch.value;
  mixed.store(scratch.value, [&](int at, float x) { store_element(a.element, to, at, x); });
  if (threadIdx.x % kLanes > 0) return;
  reinterpret_cast<float2*>(a.scratch + scratch.gates)[head] =
      log_gates_of(a, mixed.row(), mixed.head());
}

__global__ void __launch_bounds__(kThreads) finish(const __grid_constant__ DeltaNetCall a) {
  begin_operation();
  const ChunkScratch scratch(a);
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * a.sizes.value_heads) return;
  const uint16_t* const given = numbers_at(a, scratch.v) + i * scratch.value;
  const float length = query_length(a.sizes);
  const int64_t row = i / a.sizes.value_heads;
  const int value_head = static_cast<int>(i % a.sizes.value_heads);
  store_result(
      a, row, value_head, [&](int at) { return length * load_element(a.element, given, at); },
      [&](int at) { return result_gate(a, row, value_head, at); });
}

unsigned ctas_of(int64_t warps) {
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

template <class Number, int kKey, int kColumns>
void launch_pass(const DeltaNetCall& call, int values, Stream stream) {
  using Stage = ChunkStage<kKey, kColumns>;
  constexpr int kBytes = 2 * Stage::kBytes;
  static_assert(kBytes <= kDeltaNetChunkBytes);
  const dim3 ctas(static_cast<unsigned>((values + kColumns - 1) / kColumns),
                  static_cast<unsigned>(call.sizes.value_heads),
                  static_cast<unsigned>(call.num_parts));
  launch_large<pass<Number, kKey, kColumns>>({ctas, Stage::kThreads, kBytes}, stream, call);
}

template <class Number, int kKey>
void launch_chunks(const DeltaNetCall& call, Stream stream) {
  const DeltaNetSizes& s = call.sizes;
  const ChunkScratch scratch(s, call.num_rows, call.num_parts);
  const int64_t heads = 2 * s.key_heads + s.value_heads;
  launch(mix_chunks, {dim3(ctas_of(call.num_rows * heads)), kThreads}, stream, call);
  const dim3 chunks(static_cast<unsigned>(scratch.max_chunks),
                    static_cast<unsigned>(s.value_heads));
  const Grid grid = {chunks, kChunkThreads, SolveTile<kKey>::kBytes};
  if (!launch_large<solve<Number, kKey>>(grid, stream, call)) return;
  if ((scratch.value + 31) / 32 * int64_t{s.value_heads} * call.num_parts <= kManyCtas) {
    launch_pass<Number, kKey, 32>(call, scratch.value, stream);
  } else {
    launch_pass<Number, kKey, 64>(call, scratch.value, stream);
  }
  launch(finish, {dim3(ctas_of(call.num_rows * s.value_heads)), kThreads}, stream, call);
}

template <class Number>
void launch_for_keys(const DeltaNetCall& call, Stream stream) {
  if (call.sizes.key_size <= 64) return launch_chunks<Number, 64>(call, stream);
  launch_chunks<Number, 128>(call, stream);
}

}  // namespace

bool has_chunks(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts) {
  return std::max(sizes.key_size, sizes.value_size) <= kChunkHead &&
         num_rows >= kMinTokens * num_parts;
}

int64_t delta_net_chunk_scratch(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts) {
  return ChunkScratch(sizes, num_rows, num_parts).size;
}

void run_delta_net_chunks(const DeltaNetCall& call, Stream stream) {
  if (call.element == Element::kF16) return launch_for_keys<gpu::F16>(call, stream);
  launch_for_keys<gpu::BF16>(call, stream);
}

}  // namespace subbyte::cuda
