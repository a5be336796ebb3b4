"""Tiny models with mixtures of experts, of which each has the rules of its family's router: dense
layers before those with experts, biases that only choose, groups, factors, shared experts."""

import torch

import compare
import fp8
import make
import tiny

# Heads of 16, where no key says it.
SMALL = dict(hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)


def family(name, seed, more, **options):
    """`more` comes before the others. Biases that only choose are as far apart as scores are."""
    model = tiny.family(name, seed, **{**SMALL, "tie_word_embeddings": True, **options, **more})
    with torch.no_grad():
        for key, tensor in [*model.named_buffers(), *model.named_parameters()]:
            if key.endswith(("e_score_correction_bias", "expert_bias")):
                tensor.normal_(0, 0.3)
    return model


def qwen2_moe(**more):
    """Weights of experts that do not add up to 1, and a shared expert with a gate."""
    return family("Qwen2Moe", 30, more, **EXPERTS, mlp_only_layers=[0],
                  shared_expert_intermediate_size=24)


def mixtral(**more):
    """All layers slide."""
    return family("Mixtral", 331, more, num_local_experts=4, num_experts_per_tok=2, head_dim=16,
                  sliding_window=8, intermediate_size=16)


def glm4_moe(**more):
    """Two of three groups; two shared experts in one; biases, and norms of heads that half turn."""
    return family("Glm4Moe", 132, more, n_routed_experts=6, num_experts_per_tok=3, n_group=3,
                  topk_group=2, moe_intermediate_size=16, n_shared_experts=2,
                  first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True,
                  attention_bias=True, head_dim=16)


def minimax_m2(**more):
    """A norm of all heads together, of which a half turns."""
    return family("MiniMaxM2", 333, more, num_local_experts=4, num_experts_per_tok=2, rotary_dim=8,
                  head_dim=16, intermediate_size=16)


def lfm2_moe(**more):
    """Dense and convolving, with experts and attention, with experts and convolving."""
    return family("Lfm2Moe", 34, more, **{**EXPERTS, "num_experts": 3}, num_hidden_layers=3,
                  num_dense_layers=1, layer_types=["conv", "full_attention", "conv"],
                  routed_scaling_factor=1.5, intermediate_size=16)


def ernie4_5_moe(**more):
    """The layer in the middle has experts; sums of some tokens' weights are below the smallest. All
    products but those of experts have biases, the head, too."""
    return family("Ernie4_5_Moe", 35, more, moe_num_experts=3, moe_k=2, moe_intermediate_size=8,
                  use_bias=True, tie_word_embeddings=False,
                  num_hidden_layers=3, moe_layer_start_index=1, moe_layer_end_index=1,
                  moe_num_shared_experts=2, moe_norm_min=0.8,
                  intermediate_size=16)


def granitemoe(**more):
    """Factors of everything, none of which is 1."""
    return family("GraniteMoe", 36, more, num_local_experts=4, num_experts_per_tok=2,
                  embedding_multiplier=6.0, residual_multiplier=0.5, attention_multiplier=0.125,
                  logits_scaling=4.0, attention_bias=True, intermediate_size=16)


def hunyuan_v1_moe(**more):
    """Norms of heads after they have turned."""
    return family("HunYuanMoEV1", 37, more, num_experts=4, moe_topk=2, head_dim=16,
                  intermediate_size=16)


def llama4(**more):
    """Of three layers one is dense and turns in chunks, one has experts and does not turn, one has
    both; experts read weighted inputs, and queries grow where nothing turns."""
    return family("Llama4", 39, more, config_of="Llama4Text", num_hidden_layers=3, head_dim=16,
                  intermediate_size=16, intermediate_size_mlp=24, num_local_experts=3,
                  num_experts_per_tok=2, no_rope_layers=[1, 0, 1], moe_layers=[1, 2],
                  attention_chunk_size=8, floor_scale=4, attn_scale=0.5)


def fp8_blocks(folder, make_model):
    """As MiniMax's own, under the names of its files."""
    model = make_model()
    dense = folder.parent / "dense" / folder.name
    make.bf16(dense, lambda: model)
    tensors = {}
    for name, tensor in compare.tensors_of(dense).items():
        if tensor.ndim != 2 or any(part in name for part in ("embed_tokens", "moe.gate.")):
            tensors[name] = tensor
        else:
            tensors[name], tensors[name + "_scale_inv"] = fp8.rounded(
                tensor.float(), fp8.BLOCK, fp8.BLOCK, torch.float32)
    fp8.save(folder, model, tensors, {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "float8_e4m3fn",
        "weight_block_size": [fp8.BLOCK, fp8.BLOCK],
        "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]})


# How each is written, and how its weights are read.
GOLDENS = {
    "qwen2-moe-bf16": (lambda f: make.bf16(f, qwen2_moe), "saved"),
    "mixtral-bf16": (lambda f: make.bf16(f, mixtral), "saved"),
    "glm4-moe-bf16": (lambda f: make.bf16(f, glm4_moe), "saved"),
    "minimax-m2-bf16": (lambda f: make.bf16(f, minimax_m2), "saved"),
    "minimax-m2-fp8": (lambda f: fp8_blocks(f, minimax_m2), "saved-fp8"),
    "lfm2-moe-bf16": (lambda f: make.bf16(f, lfm2_moe), "saved"),
    "ernie4_5-moe-bf16": (lambda f: make.bf16(f, ernie4_5_moe), "saved"),
    "granitemoe-bf16": (lambda f: make.bf16(f, granitemoe), "saved"),
    "hunyuan-moe-bf16": (lambda f: make.bf16(f, hunyuan_v1_moe), "saved"),
    "llama4-bf16": (lambda f: make.bf16(f, llama4), "saved"),
}
