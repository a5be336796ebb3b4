"""Tiny models whose norms are LayerNorms."""

import tiny

SMALL = {**tiny.SMALL, **tiny.TWO_HEADS}


def nemotron(**more):
    """Factors 1 + w and biases, a block without a gate, half of a head turns."""
    return tiny.family("Nemotron", 40, **{
        **SMALL, "head_dim": 16, "attention_bias": True, "mlp_bias": True,
        "tie_word_embeddings": True, **more})


def cohere2(**more):
    """Both blocks of a layer read one norm; a layer slides, and one does not turn."""
    return tiny.family("Cohere2", 41, **{
        **SMALL, "sliding_window": 8, "logit_scale": 0.5,
        "layer_types": ["sliding_attention", "full_attention"], **more})
