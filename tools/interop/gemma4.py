"""Tiny models of Gemma 4 with random weights, by transformers."""

import torch

import tiny

GEMMA4 = dict(hidden_size=16, intermediate_size=16, num_key_value_heads=2, head_dim=16,
              sliding_window=8, num_attention_heads=2, final_logit_softcapping=3.0,
              tie_word_embeddings=True, rope_parameters={
                  "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                  "full_attention": {"rope_type": "proportional", "rope_theta": 1000.0,
                                     "partial_rotary_factor": 0.5}})


def dense(**more):
    """Beside a part that sees: a layer that slides, and one that is full with heads of its own,
    whose values are its keys. Numbers scale what layers give."""
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                  num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=4)
    return with_scales(tiny.family("Gemma4", 28, vision, **GEMMA4,
                              global_head_dim=32, attention_k_eq_v=True,
                              num_global_key_value_heads=1, hidden_size_per_layer_input=0,
                              layer_types=["sliding_attention", "full_attention"], **more))


def inputs(**more):
    """Inputs of layers, and two of four layers with the keys and values of those before them,
    whose blocks are twice as wide."""
    return with_scales(tiny.family("Gemma4", 19, config_of="Gemma4Text",
                              **{**GEMMA4, "num_key_value_heads": 1},
                              num_hidden_layers=4, global_head_dim=32, num_kv_shared_layers=2,
                              use_double_wide_mlp=True, hidden_size_per_layer_input=16,
                              vocab_size_per_layer_input=tiny.VOCAB,
                              layer_types=["sliding_attention", "full_attention"] * 2, **more))


def experts(**more):
    """A mixture beside the block of each layer, whose router has scales of its own."""
    return with_scales(tiny.family("Gemma4", 38, config_of="Gemma4Text", **GEMMA4,
                              global_head_dim=32, attention_k_eq_v=True,
                              num_global_key_value_heads=1, hidden_size_per_layer_input=0,
                              enable_moe_block=True, num_experts=4, top_k_experts=2,
                              moe_intermediate_size=16,
                              layer_types=["sliding_attention", "full_attention"], **more))


def with_scales(model):
    """Numbers of layers and of routers, none of which is 1."""
    with torch.no_grad():
        for name, tensor in [*model.named_buffers(), *model.named_parameters()]:
            if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
                tensor.uniform_(0.5, 1.5)
    return model
