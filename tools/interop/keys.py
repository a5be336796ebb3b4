#!/usr/bin/env python3
"""What keys of config.json and generation_config.json do to transformers, beside our lists of them.

    python3 tools/interop/keys.py [--seed N] [--only FAMILY]

For each family a tiny model with random weights is saved, and each key is changed: of a key that
"changes nothing" the logits and the tokens that generate() takes must stay, whatever it says; of
one that is "not computed" they must stay for the values that ask for nothing. What an absent key
means is compared with the defaults in the files of the families (src/models/) by logits: the
config with the key and the one without it.
"""

import argparse
import copy
import json
import pathlib
import sys
import tempfile
import warnings

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import key_tables  # noqa: E402

TOKENS = torch.tensor([[3, 17, 42, 5, 99, 100, 7, 23, 64, 1, 88, 31]])
SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 128,
         "num_attention_heads": 32, "max_position_embeddings": 128}
EXPERTS = {"num_experts_per_tok": 2}
MIXTURE = {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
           **EXPERTS}
DELTA_NET = {"num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 32,
             "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
             "linear_value_head_dim": 16}
LATENT = {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32,
          "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
          "n_routed_experts": 8, "moe_intermediate_size": 32, "n_shared_experts": 1, **EXPERTS}
FAMILIES = {
    "llama": {**SIZES, "num_attention_heads": 4},
    "mistral": {**SIZES, "num_key_value_heads": 8},
    "ministral3": {**SIZES, "num_key_value_heads": 8, "head_dim": 128},
    "phi3": {**SIZES, "num_attention_heads": 4, "pad_token_id": 0},
    "glm4": {**SIZES, "num_attention_heads": 4, "head_dim": 128, "pad_token_id": 0},
    "smollm3": {**SIZES, "num_attention_heads": 4, "num_hidden_layers": 4, "pad_token_id": 0},
    "seed_oss": {**SIZES, "num_attention_heads": 8, "head_dim": 128},
    "ernie4_5": {**SIZES, "num_attention_heads": 4, "head_dim": 128},
    "exaone4": {**SIZES, "num_hidden_layers": 4},
    "hunyuan_v1_dense": {**SIZES, "num_attention_heads": 4, "head_dim": 16},
    "gemma2": {**SIZES, "num_key_value_heads": 4},
    "gemma3_text": {**SIZES, "num_hidden_layers": 6, "num_key_value_heads": 4},
    "gemma4_text": {**SIZES, "num_hidden_layers": 6, "num_attention_heads": 8,
                    "num_key_value_heads": 4, "vocab_size_per_layer_input": 128},
    "gemma4_text with experts": {**SIZES, "num_hidden_layers": 6, "num_attention_heads": 8,
                                 "num_key_value_heads": 4, "vocab_size_per_layer_input": 128,
                                 "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                                 "moe_intermediate_size": 16},
    "granite": {**SIZES, "num_attention_heads": 4},
    "lfm2": {**SIZES, "num_attention_heads": 8, "full_attn_idxs": [1]},
    "bamba": {**SIZES, "attn_layer_indices": [1]},
    "nemotron_h": {**SIZES, "num_hidden_layers": 4, "layers_block_type": [
        "linear_attention", "moe", "full_attention", "mlp"]},
    "granitemoehybrid": {**SIZES, "layer_types": ["linear_attention", "full_attention"]},
    "olmo2": {**SIZES, "num_attention_heads": 4},
    "olmo3": {**SIZES, "num_hidden_layers": 4, "num_attention_heads": 4},
    "deepseek_v2": {**LATENT, "first_k_dense_replace": 1},
    "deepseek_v3": {**LATENT, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "glm4_moe_lite": LATENT,
    "mistral4": LATENT,
    "deepseek_v32": {**LATENT, "index_topk": 4, "index_n_heads": 4, "index_head_dim": 32,
                     "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "glm_moe_dsa": {**LATENT, "index_topk": 4, "index_n_heads": 4, "index_head_dim": 32,
                    "first_k_dense_replace": 1},
    "qwen2": {**SIZES, "num_key_value_heads": 32},
    "qwen3_5_text": {**SIZES, **DELTA_NET, "num_key_value_heads": 4},
    "qwen3_5_moe_text": {**SIZES, **DELTA_NET, **MIXTURE, "num_key_value_heads": 2},
    "qwen3_next": {**SIZES, **DELTA_NET, **MIXTURE, "num_key_value_heads": 2},
    "qwen3": {**SIZES, "num_key_value_heads": 32, "head_dim": 16},
    "qwen3_moe": {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
                  "num_local_experts": 4, "moe_intermediate_size": 32, **EXPERTS},
    "gpt_oss": {**SIZES, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 4,
                **EXPERTS},
    "qwen2_moe": {**SIZES, **MIXTURE, "num_key_value_heads": 16},
    "mixtral": {**SIZES, "num_key_value_heads": 8, "num_local_experts": 4},
    "glm4_moe": {**SIZES, "num_key_value_heads": 8, "head_dim": 16, "n_routed_experts": 8,
                 "num_experts_per_tok": 3, "moe_intermediate_size": 32},
    "minimax_m2": {**SIZES, "num_key_value_heads": 8, "num_local_experts": 16},
    "lfm2_moe": {**SIZES, **MIXTURE, "num_attention_heads": 8, "num_dense_layers": 1,
                 "layer_types": ["conv", "full_attention"]},
    "granitemoe": {**SIZES, "num_attention_heads": 4},
    "ernie4_5_moe": {**SIZES, "num_attention_heads": 4, "moe_num_experts": 8,
                     "moe_intermediate_size": 32},
    "hunyuan_v1_moe": {**SIZES, "num_attention_heads": 4, "head_dim": 16, "num_experts": 4},
    "llama4_text": {**SIZES, "num_hidden_layers": 4, "num_attention_heads": 8,
                    "intermediate_size_mlp": 64, "num_local_experts": 4},
    "nemotron": {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 4},
    "cohere2": {**SIZES, "num_hidden_layers": 4, "num_attention_heads": 4, "eos_token_id": 0},
}
# What a key means where it is absent, as our tables have it.
RECURRENT = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
             "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "attention_bias": False,
             "tie_word_embeddings": False, "hidden_act": "silu"}
MIXED = {"rope_theta": 10000.0, "attention_bias": False, "tie_word_embeddings": False,
         "hidden_act": "silu"}
ABSENT = {
    "llama": {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    "mistral": {"num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                "sliding_window": 4096, "tie_word_embeddings": False, "hidden_act": "silu"},
    "phi3": {"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
             "partial_rotary_factor": 1.0, "tie_word_embeddings": False, "hidden_act": "silu"},
    "ministral3": {"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                   "sliding_window": None, "tie_word_embeddings": False, "hidden_act": "silu",
                   "rope_parameters": {
                       "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
                       "original_max_position_embeddings": 16384, "beta_fast": 32.0,
                       "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                       "llama_4_scaling_beta": 0.1}},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
             "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "attention_bias": True,
             "tie_word_embeddings": False, "hidden_act": "silu"},
    "smollm3": {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 2000000.0,
                "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0],
                "use_sliding_window": False, "attention_bias": False, "mlp_bias": False,
                "tie_word_embeddings": True, "hidden_act": "silu"},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
                 "rope_theta": 10000.0, "attention_bias": True, "attention_out_bias": False,
                 "mlp_bias": False, "tie_word_embeddings": False, "hidden_act": "silu"},
    "ernie4_5": {"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
                 "rope_theta": 500000.0, "use_bias": False, "tie_word_embeddings": True,
                 "hidden_act": "silu"},
    "exaone4": {"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                "sliding_window": 4096, "sliding_window_pattern": 4,
                "tie_word_embeddings": False, "hidden_act": "silu"},
    "hunyuan_v1_dense": {"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                         "attention_bias": False, "tie_word_embeddings": False,
                         "hidden_act": "silu"},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
               "rope_theta": 10000.0, "attention_bias": False, "tie_word_embeddings": True,
               "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
               "sliding_window": 4096},
    "gemma3_text": {"num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
                    "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                    "sliding_window_pattern": 6, "attention_bias": False,
                    "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
                    "query_pre_attn_scalar": 256, "attn_logit_softcapping": None,
                    "final_logit_softcapping": None, "sliding_window": 4096},
    "gemma4_text": {"num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
                    "rms_norm_eps": 1e-6, "sliding_window": 512, "attention_bias": False,
                    "attention_k_eq_v": False, "tie_word_embeddings": True,
                    "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": None,
                    "num_kv_shared_layers": 0, "use_double_wide_mlp": False,
                    "hidden_size_per_layer_input": 256, "num_attention_heads": 8,
                    "enable_moe_block": False, "num_global_key_value_heads": None,
                    "rope_parameters": {
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                           "partial_rotary_factor": 0.25}}},
    "granite": {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
                "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                "attention_multiplier": 1.0, "logits_scaling": 1.0},
    "lfm2": {"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
             "conv_L_cache": 3, "conv_bias": False, "block_auto_adjust_ff_dim": True,
             "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
             "tie_word_embeddings": True},
    "bamba": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
              "tie_word_embeddings": False, "mamba_n_heads": 128, "mamba_d_head": "auto",
              "mamba_expand": 2, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
              "mamba_conv_bias": True, "mamba_proj_bias": False},
    "nemotron_h": {"num_key_value_heads": 8, "head_dim": 128, "layer_norm_epsilon": 1e-5,
                   "mlp_hidden_act": "relu2", "mlp_bias": False, "use_bias": False,
                   "use_conv_bias": True, "mamba_num_heads": 128, "mamba_head_dim": 64,
                   "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "n_routed_experts": 8,
                   "num_experts_per_tok": 2, "moe_intermediate_size": 7688,
                   "moe_shared_expert_intermediate_size": 7688, "n_group": 1, "topk_group": 1,
                   "norm_topk_prob": True, "routed_scaling_factor": 1.0,
                   "tie_word_embeddings": False},
    "granitemoehybrid": {"num_key_value_heads": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                         "attention_bias": False, "tie_word_embeddings": False,
                         "num_local_experts": 8, "num_experts_per_tok": 2,
                         "shared_intermediate_size": 1024, "position_embedding_type": None,
                         "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                         "attention_multiplier": 1.0, "logits_scaling": 1.0,
                         "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_expand": 2,
                         "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
                         "mamba_conv_bias": True, "mamba_proj_bias": False},
    "olmo2": {"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "attention_bias": False, "tie_word_embeddings": False, "hidden_act": "silu"},
    "olmo3": {"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "attention_bias": False, "tie_word_embeddings": False, "hidden_act": "silu",
              "sliding_window": 4096},
    "deepseek_v2": {**MIXED, "routed_scaling_factor": 1.0, "topk_method": "greedy",
                    "norm_topk_prob": False, "n_group": None, "topk_group": None,
                    "rms_norm_eps": 1e-6},
    "deepseek_v3": {**MIXED, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
                    "rope_interleave": True, "rms_norm_eps": 1e-6},
    "mistral4": {"routed_scaling_factor": 1.0, "norm_topk_prob": True, "rope_interleave": True,
                 "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "rms_norm_eps": 1e-6,
                 "attention_bias": False, "tie_word_embeddings": False, "hidden_act": "silu"},
    "deepseek_v32": {**MIXED, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
                     "rms_norm_eps": 1e-6},
    "glm_moe_dsa": {**MIXED, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
                    "n_group": 1, "topk_group": 1, "rms_norm_eps": 1e-5, "index_topk_freq": 1,
                    "index_skip_topk_offset": 2},
    "glm4_moe_lite": {**MIXED, "routed_scaling_factor": 1.8, "norm_topk_prob": True,
                      "rope_interleave": True, "n_group": 1, "topk_group": 1,
                      "mlp_layer_types": ["dense", "sparse"], "rms_norm_eps": 1e-5},
    "qwen2": {"num_key_value_heads": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "use_sliding_window": False, "max_window_layers": 28, "tie_word_embeddings": False},
    "qwen3_5_text": {**RECURRENT, "num_key_value_heads": 4},
    "qwen3_5_moe_text": {**RECURRENT, "num_key_value_heads": 2},
    "qwen3_next": {**RECURRENT, "num_key_value_heads": 2, "norm_topk_prob": True,
                   "decoder_sparse_step": 1, "mlp_only_layers": []},
    "qwen3": {"num_key_value_heads": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "use_sliding_window": False, "tie_word_embeddings": False, "hidden_act": "silu",
              "attention_bias": False, "max_window_layers": 28},
    "qwen3_moe": {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                  "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [],
                  "use_sliding_window": False, "attention_bias": False},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5,
                "sliding_window": 128, "swiglu_limit": 7.0, "swiglu_alpha": 1.702,
                "attention_bias": True,
                "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                                 "beta_slow": 1.0, "truncate": False,
                                 "original_max_position_embeddings": 4096}},
    "qwen2_moe": {"num_key_value_heads": 16, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                  "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [],
                  "use_sliding_window": False, "qkv_bias": True, "tie_word_embeddings": False,
                  "hidden_act": "silu"},
    "mixtral": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                "num_experts_per_tok": 2, "sliding_window": None, "tie_word_embeddings": False,
                "hidden_act": "silu"},
    "glm4_moe": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                 "partial_rotary_factor": 0.5, "attention_bias": False, "use_qk_norm": False,
                 "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
                 "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
                 "tie_word_embeddings": False, "hidden_act": "silu"},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
                   "rope_theta": 5000000.0, "num_experts_per_tok": 8, "rotary_dim": 128,
                   "tie_word_embeddings": False, "hidden_act": "silu"},
    "lfm2_moe": {"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
                 "conv_L_cache": 3, "conv_bias": False, "use_expert_bias": True,
                 "norm_topk_prob": True, "routed_scaling_factor": 1.0,
                 "tie_word_embeddings": True},
    "granitemoe": {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                   "num_local_experts": 8, "num_experts_per_tok": 2, "attention_bias": False,
                   "tie_word_embeddings": False, "embedding_multiplier": 1.0,
                   "residual_multiplier": 1.0, "attention_multiplier": 1.0,
                   "logits_scaling": 1.0},
    "ernie4_5_moe": {"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                     "moe_k": 6, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
                     "moe_layer_end_index": -1, "moe_layer_interval": 1, "moe_norm_min": 1e-12,
                     "use_bias": False, "tie_word_embeddings": True, "hidden_act": "silu"},
    "hunyuan_v1_moe": {**MIXED, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "moe_topk": 1},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                    "rope_theta": 500000.0, "num_experts_per_tok": 1,
                    "interleave_moe_layer_step": 1, "use_qk_norm": True,
                    "no_rope_layer_interval": 4, "attention_chunk_size": 8192,
                    "attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1,
                    "attention_bias": False, "tie_word_embeddings": False, "hidden_act": "silu"},
    "nemotron": {"norm_eps": 1e-5, "rope_theta": 10000.0,
                 "partial_rotary_factor": 0.5, "attention_bias": False, "mlp_bias": False,
                 "tie_word_embeddings": False, "hidden_act": "relu2"},
    "cohere2": {"num_key_value_heads": 4, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
                "logit_scale": 0.0625, "sliding_window": 4096, "sliding_window_pattern": 4,
                "attention_bias": False, "tie_word_embeddings": True, "hidden_act": "silu"},
}
VALUES = [17, "x", True]


def type_of(family):
    """Some have a second model, "TYPE with ...", of keys that the first one does not read."""
    return family.split(" ")[0]


class Subject:
    """A saved model of a family, whose files are changed."""

    def __init__(self, family, folder, seed):
        self.folder = pathlib.Path(folder)
        torch.manual_seed(seed)
        self.type = type_of(family)
        config = transformers.AutoConfig.for_model(self.type, **FAMILIES[family])
        # The automatic classes know some as a part of others alone.
        own = getattr(transformers, type(config).__name__.replace("Config", "ForCausalLM"), None)
        self.class_of = own or transformers.AutoModelForCausalLM
        model = own(config) if own else self.class_of.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.3)
        model.save_pretrained(self.folder)
        self.config = {"model_type": self.type, **FAMILIES[family]}
        self.generation = {}
        self.plain = self.run(self.config, {})

    def run(self, config, generation):
        """Logits, and what is generated; the name of the exception where there is one."""
        (self.folder / "config.json").write_text(json.dumps(config))
        (self.folder / "generation_config.json").write_text(json.dumps(generation))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = self.class_of.from_pretrained(self.folder, dtype=torch.float32).eval()
                with torch.no_grad():
                    logits = model(TOKENS, return_dict=True).logits
                    tokens = model.generate(TOKENS, max_new_tokens=8, num_return_sequences=1,
                                            return_dict_in_generate=False,
                                            attention_mask=torch.ones_like(TOKENS))
            return logits, tokens
        except Exception as error:  # what transformers refuses changes no answer
            return type(error).__name__

    def differs(self, config=None, generation=None):
        found = self.run({**self.config, **(config or {})}, generation or {})
        if isinstance(found, str):
            return f"refused ({found})"
        same = all(torch.equal(a, b) for a, b in zip(found, self.plain, strict=True))
        return "" if same else "another answer"


def rows_for(path, family):
    """The rows that count for a model type: those of its own file come before those of all."""
    rows = [row for row in key_tables.all_rows_of(key_tables.ROOT / path)
            if row["kind"] != "ROPE_KEY"
            and (not row.get("scope") or family in row["scope"].split())]
    files = {file.stem for file in key_tables.family_files()
             if f'.name = "{family}"' in file.read_text()}
    own = {row["key"] for row in rows if row.get("family") in files}
    return [row for row in rows
            if row.get("family") in files or ("family" not in row and row["key"] not in own)]


def changes_of(rows):
    """What must change nothing: a key and a value each."""
    for row in rows:
        values = {"kIgnored": VALUES, "kRefused": json.loads(f"[{row.get('neutral', '')}]")}
        for value in values.get(row["use"], []):
            yield row["key"], copy.deepcopy(value)


def is_config(subject, key, value):
    """Whether the class of the family takes the value at all: else it can change no answer."""
    try:
        transformers.AutoConfig.for_model(**{**subject.config, key: copy.deepcopy(value)})
    except Exception:
        return False
    return True


def check_config_keys(subject, rows, problems):
    """All keys at once, as a model is slow to load; each by itself where an answer changes."""
    left = [change for change in changes_of(rows) if is_config(subject, *change)]
    while left:
        together, later = {}, []
        for key, value in left:
            if key in together:
                later.append((key, value))
            together.setdefault(key, value)
        if subject.differs(config=together):
            for key, value in together.items():
                found = subject.differs(config={key: value})
                if found and not found.startswith("refused"):
                    problems.append(f"{subject.config['model_type']} {key} = {value}: {found}")
        left = later


def check_generation_keys(subject, rows, problems):
    for key, value in changes_of(rows):
        found = subject.differs(generation={key: value})
        if found and not found.startswith("refused"):
            problems.append(f"generation_config.json {key} = {value}: {found}")


def check_absent(subject, rows, problems):
    """What the rows say, and what the types do (ABSENT)."""
    family = subject.type
    said = {row["key"]: json.loads(row["absent"]) for row in rows
            if row.get("absent", "kKept") != "kKept"}
    for key, value in {**said, **ABSENT[family]}.items():
        present = subject.run({**subject.config, key: value}, {})
        absent = subject.run({k: v for k, v in subject.config.items() if k != key}, {})
        if isinstance(present, str) or isinstance(absent, str):
            errors = [one for one in (present, absent) if isinstance(one, str)]
            problems.append(f"{family}: {key} = {value}: {', '.join(errors)}")
        elif not torch.equal(present[0], absent[0]):
            problems.append(f"{family}: without {key} the model is not that of {value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=FAMILIES)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    problems = []
    for family in [arguments.only] if arguments.only else FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(family, folder, arguments.seed)
            assert not isinstance(subject.plain, str), subject.plain
            rows = rows_for("src/models/config_keys.def", subject.type)
            check_absent(subject, rows, problems)
            check_config_keys(subject, rows, problems)
            if family == "qwen3":
                rows = rows_for("src/engine/generation_config_keys.def", family)
                check_generation_keys(subject, rows, problems)
            print(f"{family}: looked at", flush=True)
    print("\n".join(problems) or "transformers does with each key what the lists say")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
