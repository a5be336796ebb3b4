#include "kernels/cuda/attention/paged_hopper.h"

#include <limits>

#include "kernels/cuda/attention/hopper_attention.cuh"
#include "kernels/cuda/tensor_map.h"

namespace subbyte::cuda {
namespace {

using Shape = hopper::Shape<2, 2>;
static_assert(kPagedTokens == 2 * hopper::kRowsOfWarpgroup);

/// The cache is a matrix of as many rows as there may be: a page says which of them are read.
Status describe(hopper::Maps& maps, const AttentionCall& call, int64_t num_tokens) {
  const Number number = call.element == Element::kF16 ? Number::kF16 : Number::kBF16;
  SUBBYTE_CHECK(describe_activations(maps.queries, call.qkv, num_tokens,
                                     int64_t{call.heads} * call.head_dim, call.qkv_stride,
                                     hopper::kRowsOfWarpgroup, number));
  return describe_activations(maps.keys, call.cache.pages, std::numeric_limits<int32_t>::max(),
                              call.head_dim, call.head_dim, Shape::kKeys, number);
}

template <class Number>
Status launch_number(const AttentionCall& call, int64_t num_tokens, Stream stream) {
  hopper::Maps maps = {};
  SUBBYTE_CHECK(describe(maps, call, num_tokens));
  AttentionCall apart = call;
  apart.kv_heads = call.heads;
  hopper::launch_hopper<Number, hopper::PagedSource, Shape>(apart, maps, call.heads / call.kv_heads,
                                                            stream);
  return {};
}

}  // namespace

Status run_paged_hopper(const AttentionCall& call, int64_t num_tokens, Stream stream) {
  if (call.num_prompt == 0) return {};
  if (call.element == Element::kF16) return launch_number<gpu::F16>(call, num_tokens, stream);
  return launch_number<gpu::BF16>(call, num_tokens, stream);
}

}  // namespace subbyte::cuda
