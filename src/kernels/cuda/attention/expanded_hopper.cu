#include "kernels/cuda/attention/expanded_hopper.h"

#include "kernels/cuda/attention/hopper_attention.cuh"
#include "kernels/cuda/tensor_map.h"

namespace subbyte::cuda {
namespace {

using hopper::Maps, hopper::Shape, hopper::kChunk, hopper::kRowsOfWarpgroup;

template <class S>
Status describe(Maps& maps, const AttentionCall& call, int64_t num_tokens) {
  const ExpandedKeys& e = call.expanded;
  const Number number = call.element == Element::kF16 ? Number::kF16 : Number::kBF16;
  const int64_t turning = call.head_dim - e.key_dim;
  const int64_t keys = int64_t{call.kv_heads} * e.key_dim;
  const int64_t values = int64_t{call.kv_heads} * e.value_dim;
  const int64_t queries = int64_t{call.heads - 1} * e.q_step + call.head_dim;
  SUBBYTE_CHECK(describe_activations(maps.queries, call.qkv, num_tokens, queries, call.qkv_stride,
                                     kRowsOfWarpgroup, number));
  SUBBYTE_CHECK(describe_activations(maps.keys, e.keys, e.positions, keys, keys, S::kKeys, number));
  SUBBYTE_CHECK(
      describe_activations(maps.turned, e.turned, e.positions, turning, turning, S::kKeys, number));
  return describe_activations(maps.values, e.values, e.positions, values, values, S::kKeys, number);
}

template <class Number, class S>
bool launch_shape(const AttentionCall& call, int64_t num_tokens, Stream stream) {
  Maps maps;
  if (!describe<S>(maps, call, num_tokens).ok()) return false;
  return hopper::launch_hopper<Number, hopper::ExpandedSource, S>(call, maps, 1, stream);
}

template <class Number>
bool launch_number(const AttentionCall& call, int64_t num_tokens, Stream stream) {
  const int value_dim = call.expanded.value_dim;
  if (call.head_dim == 256 && value_dim == 256) {
    return launch_shape<Number, Shape<4, 4>>(call, num_tokens, stream);
  }
  if (call.head_dim == 192 && value_dim == 128) {
    return launch_shape<Number, Shape<3, 2>>(call, num_tokens, stream);
  }
  if (call.head_dim == 128 && value_dim == 128) {
    return launch_shape<Number, Shape<2, 2>>(call, num_tokens, stream);
  }
  return false;
}

}  // namespace

bool run_expanded_hopper(const AttentionCall& call, int64_t num_tokens, Stream stream) {
  const ExpandedKeys& e = call.expanded;
  const bool has_chunks = e.key_dim % kChunk == 0 && (call.head_dim - e.key_dim) % kChunk == 0;
  const bool is_rounded =
      call.cache.element != Element::kE4M3 && call.cache.element != call.element;
  if (!has_chunks || is_rounded) return false;
  if (call.element == Element::kF16) return launch_number<gpu::F16>(call, num_tokens, stream);
  return launch_number<gpu::BF16>(call, num_tokens, stream);
}

}  // namespace subbyte::cuda
