// The vector operations and their table. Included inside the namespace of an instruction set, after
// its vector_math.h.

#include "kernels/cpu/generic/elementwise.inl.h"
#include "kernels/cpu/generic/kv_numbers.inl.h"
// They use what both define.
#include "kernels/cpu/generic/attention.inl.h"
#include "kernels/cpu/generic/delta_net.inl.h"
// It calls what the one before defines.
#include "kernels/cpu/generic/delta_chunks.inl.h"

constexpr VectorKernels kVectorTable = {
    .attention_rows = kMaxAttentionRows,
    .attention_partial_floats = &attention_partial_floats,
    .attention_scratch_floats = &attention_scratch_floats,
    .attend = {&attend<float>, &attend<KvF16>, &attend<KvBF16>, &attend<KvE4M3>},
    .merge_attention = &merge_attention,
    .exp = &exp,
    .rms_norm = &rms_norm,
    .add_rms_norm = &add_rms_norm,
    .norm_rotate = &norm_rotate,
    .store_kv = {&store_kv<float>, &store_kv<KvF16>, &store_kv<KvBF16>, &store_kv<KvE4M3>},
    .silu_gate = &silu_gate,
    .gelu_gate = &gelu_gate,
    .soft_cap = &soft_cap,
    .clamped_swiglu = &clamped_swiglu,
    .sigmoid_gate = &sigmoid_gate,
    .convolve_silu = &convolve_silu,
    .weigh_tokens = &weigh_tokens,
    .delta_rule = &delta_rule,
    .delta_chunks = kDeltaChunks,
    .blocks = &kBlockKernels,
};
