"""Tiny models with random weights that have blocks of Mamba 2."""

import torch
from tiny import SMALL, TWO_HEADS, family


def with_mambas(model):
    """Blocks of Mamba 2 of which some heads forget little: after 200 tokens a state still has some
    of the first ones."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("A_log"):
                tensor.uniform_(-4, 1)
            elif name.endswith("dt_bias"):
                tensor.normal_(-1, 1)
            elif name.endswith(".D"):
                tensor.normal_(0, 1)
            elif name.endswith("conv1d.weight"):
                tensor.normal_(0, 0.5)
        for name, tensor in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                tensor.normal_(0, 0.2)
    return model


def nemotron_h(**more):
    """A block of every kind, two of Mamba 2 in groups, experts in groups. Steps of prompts are
    held above time_step_min, those of single tokens are not: one that is never below it."""
    options = dict(
        num_hidden_layers=5, hidden_size=32, intermediate_size=32, head_dim=16,
        num_key_value_heads=2, layers_block_type=["linear_attention", "moe", "full_attention",
                                                  "mlp", "linear_attention"],
        mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=8, n_groups=2, chunk_size=16,
        n_routed_experts=4, moe_intermediate_size=16, moe_shared_expert_intermediate_size=32,
        n_group=2, topk_group=1, routed_scaling_factor=2.5, time_step_min=1e-9)
    return with_mambas(family("NemotronH", 18, **{**options, **more}))


def bamba(**more):
    """An attention, of whose heads one half turns, between two blocks of Mamba 2."""
    return with_mambas(family(
        "Bamba", 21, **{**SMALL, **TWO_HEADS, "intermediate_size": 32}, num_hidden_layers=3,
        attn_layer_indices=[1], mamba_n_heads=4, mamba_d_state=8, mamba_n_groups=2,
        mamba_chunk_size=16, mlp_bias=True, **more))


def granitemoehybrid(**more):
    """Factors of everything, none of which is 1; experts beside a dense block; a head size that
    mamba_expand says."""
    options = dict(
        num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], mamba_n_heads=4,
        mamba_d_state=16, mamba_n_groups=2, mamba_chunk_size=16, num_local_experts=4,
        shared_intermediate_size=32, tie_word_embeddings=True,
        embedding_multiplier=6.0, residual_multiplier=0.5, attention_multiplier=0.125,
        logits_scaling=4.0)
    return with_mambas(family(
        "GraniteMoeHybrid", 19,
        **{**SMALL, **TWO_HEADS, "intermediate_size": 16, **options, **more}))


def granitemoehybrid_dense(**more):
    """Without experts; heads turn."""
    return with_mambas(family(
        "GraniteMoeHybrid", 20, **{**SMALL, **TWO_HEADS}, num_hidden_layers=2, num_local_experts=0,
        layer_types=["linear_attention", "full_attention"], mamba_n_heads=4, mamba_d_state=16,
        mamba_chunk_size=16, mamba_proj_bias=True, mamba_conv_bias=False, attention_bias=True,
        shared_intermediate_size=48, position_embedding_type="rope",
        time_step_limit=[0.05, 0.5], tie_word_embeddings=True, **more))
