"""Architectures of llama.cpp as random_gguf.py writes them: metadata and tensors of a config.json.

Tensors are those that its converter writes; experts, latent attention and windows have its names.
"""
from __future__ import annotations

from collections.abc import Iterator

from mixes import F32, MATRIX, MINUS_ONE, MXFP4, RANDOM_F32, ZERO

Value = str | int | float | list[int] | list[bool] | list[str]
Tensor = tuple[str, tuple[int, ...], int]  # name, sizes with the outputs first, type

NORMAL, CONTROL, UNUSED = 1, 3, 5  # types of tokens


def letters_of_bytes() -> list[str]:
    """The letter that stands for each byte in GPT-2's vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 256 + hidden.index(byte)) for byte in range(256)]


def tokenizer(pre: str, vocabulary: int) -> dict[str, Value]:
    tokens = [*letters_of_bytes(), "th", "<|im_end|>"]
    types = [NORMAL] * 257 + [CONTROL]
    unused = [f"[PAD{i}]" for i in range(len(tokens), vocabulary)]
    return {"tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": tokens + unused,
            "tokenizer.ggml.token_type": types + [UNUSED] * len(unused),
            "tokenizer.ggml.merges": ["t h"],
            "tokenizer.ggml.eos_token_id": len(tokens) - 1,
            "tokenizer.ggml.add_bos_token": False}


def rope_of(config: dict) -> dict:
    return config.get("rope_parameters") or config


def head_size(config: dict) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def common_metadata(config: dict, arch: str, pre: str) -> dict[str, Value]:
    return {
        "general.architecture": arch,
        "general.name": "random",
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config.get("intermediate_size", 0),
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": head_size(config),
        f"{arch}.attention.value_length": head_size(config),
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.rope.freq_base": float(rope_of(config)["rope_theta"]),
        f"{arch}.vocab_size": config["vocab_size"],
        **tokenizer(pre, config["vocab_size"]),
    }


def expert_metadata(config: dict, arch: str) -> dict[str, Value]:
    return {f"{arch}.expert_count": config["num_experts"],
            f"{arch}.expert_used_count": config["num_experts_per_tok"],
            f"{arch}.expert_feed_forward_length": config["moe_intermediate_size"]}


def attention_tensors(config: dict, q_parts: int = 1, norms: bool = True) -> Iterator[Tensor]:
    """`q_parts`: 2 where a gate follows each query head."""
    hidden, dim = config["hidden_size"], head_size(config)
    q_size = config["num_attention_heads"] * dim
    kv_size = config["num_key_value_heads"] * dim
    if norms:
        yield "attn_q_norm.weight", (dim,), F32
        yield "attn_k_norm.weight", (dim,), F32
    yield "attn_q.weight", (q_parts * q_size, hidden), MATRIX
    yield "attn_k.weight", (kv_size, hidden), MATRIX
    yield "attn_v.weight", (kv_size, hidden), MATRIX
    yield "attn_output.weight", (hidden, q_size), MATRIX


def mlp_tensors(hidden: int, inner: int, suffix: str = "",
                experts: tuple[int, ...] = ()) -> Iterator[Tensor]:
    yield f"ffn_gate{suffix}.weight", (*experts, inner, hidden), MATRIX
    yield f"ffn_up{suffix}.weight", (*experts, inner, hidden), MATRIX
    yield f"ffn_down{suffix}.weight", (*experts, hidden, inner), MATRIX


def norms_of_layer(config: dict, second: str = "ffn_norm") -> Iterator[Tensor]:
    yield "attn_norm.weight", (config["hidden_size"],), F32
    yield f"{second}.weight", (config["hidden_size"],), F32


class Architecture:
    """What most have."""

    last_norm = "output_norm"

    def metadata(self, config: dict) -> dict[str, Value]:
        raise NotImplementedError

    def common(self, config: dict) -> Iterator[Tensor]:
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        yield "token_embd.weight", (vocabulary, hidden), MATRIX
        yield f"{self.last_norm}.weight", (hidden,), F32
        if not config["tie_word_embeddings"]:
            yield "output.weight", (vocabulary, hidden), MATRIX

    def layer(self, config: dict, i: int) -> Iterator[Tensor]:
        raise NotImplementedError


class Llama(Architecture):
    """`llama` of llama.cpp, without factors of frequencies."""

    def metadata(self, config: dict) -> dict[str, Value]:
        return {**common_metadata(config, "llama", "llama-bpe"),
                "llama.rope.dimension_count": head_size(config)}

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        yield from norms_of_layer(config)
        yield from attention_tensors(config, norms=False)
        yield from mlp_tensors(config["hidden_size"], config["intermediate_size"])


class Qwen3(Architecture):
    """`qwen3` and `qwen3moe` of llama.cpp."""

    def metadata(self, config: dict) -> dict[str, Value]:
        if "num_experts" not in config:
            return common_metadata(config, "qwen3", "qwen2")
        return {**common_metadata(config, "qwen3moe", "qwen2"),
                **expert_metadata(config, "qwen3moe")}

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        hidden = config["hidden_size"]
        yield from norms_of_layer(config)
        yield from attention_tensors(config)
        if "num_experts" not in config:
            yield from mlp_tensors(hidden, config["intermediate_size"])
            return
        experts = config["num_experts"]
        yield "ffn_gate_inp.weight", (experts, hidden), RANDOM_F32
        yield from mlp_tensors(hidden, config["moe_intermediate_size"], "_exps", (experts,))


class Qwen35(Architecture):
    """`qwen35` and `qwen35moe` of llama.cpp: layers with gated delta nets, and experts."""

    def metadata(self, config: dict) -> dict[str, Value]:
        arch = "qwen35moe" if "num_experts" in config else "qwen35"
        rope = config["rope_parameters"]
        rotary = int(config["head_dim"] * rope["partial_rotary_factor"])
        values = {
            **common_metadata(config, arch, "qwen35"),
            f"{arch}.rope.dimension_count": rotary,
            # Of time, height and width, which are the same position in text.
            f"{arch}.rope.dimension_sections":
                [*((rotary // 2 + 2 - i) // 3 for i in range(3)), 0],
            f"{arch}.ssm.conv_kernel": config["linear_conv_kernel_dim"],
            f"{arch}.ssm.inner_size": self.value_width(config),
            f"{arch}.ssm.state_size": config["linear_key_head_dim"],
            f"{arch}.ssm.time_step_rank": config["linear_num_value_heads"],
            f"{arch}.ssm.group_count": config["linear_num_key_heads"],
            f"{arch}.full_attention_interval": config["full_attention_interval"],
        }
        if arch == "qwen35":
            return values
        return {**values,
                **expert_metadata(config, arch),
                f"{arch}.expert_shared_feed_forward_length":
                    config["shared_expert_intermediate_size"]}

    @staticmethod
    def value_width(config: dict) -> int:
        return config["linear_num_value_heads"] * config["linear_value_head_dim"]

    def delta_net(self, config: dict) -> Iterator[Tensor]:
        hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
        values = self.value_width(config)
        channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
        yield "attn_qkv.weight", (channels, hidden), MATRIX
        yield "attn_gate.weight", (values, hidden), MATRIX
        yield "ssm_conv1d.weight", (channels, config["linear_conv_kernel_dim"]), F32
        yield "ssm_dt.bias", (heads,), F32
        yield "ssm_a", (heads,), MINUS_ONE
        yield "ssm_beta.weight", (heads, hidden), MATRIX
        yield "ssm_alpha.weight", (heads, hidden), MATRIX
        yield "ssm_norm.weight", (config["linear_value_head_dim"],), F32
        yield "ssm_out.weight", (hidden, values), MATRIX

    def layer(self, config: dict, i: int) -> Iterator[Tensor]:
        hidden = config["hidden_size"]
        yield from norms_of_layer(config, "post_attention_norm")
        if (i + 1) % config["full_attention_interval"] == 0:
            yield from attention_tensors(config, 2)
        else:
            yield from self.delta_net(config)
        if "num_experts" not in config:
            yield from mlp_tensors(hidden, config["intermediate_size"])
            return
        experts = config["num_experts"]
        yield "ffn_gate_inp.weight", (experts, hidden), RANDOM_F32
        yield "ffn_gate_inp_shexp.weight", (hidden,), F32
        yield from mlp_tensors(hidden, config["moe_intermediate_size"], "_exps", (experts,))
        yield from mlp_tensors(hidden, config["shared_expert_intermediate_size"], "_shexp")


def norms_around(config: dict) -> Iterator[Tensor]:
    """Of what enters each block and of what it gives."""
    for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
        yield f"{name}.weight", (config["hidden_size"],), F32


class Gemma3(Architecture):
    """`gemma3` of llama.cpp: five layers of six have a window."""

    def metadata(self, config: dict) -> dict[str, Value]:
        scaling = config.get("rope_scaling", {"rope_type": "none", "factor": 1})
        return {**common_metadata(config, "gemma3", "qwen2"),
                "gemma3.attention.sliding_window": config["sliding_window"],
                "gemma3.rope.freq_base_swa": config["rope_local_base_freq"],
                "gemma3.rope.scaling.type": scaling["rope_type"],
                "gemma3.rope.scaling.factor": float(scaling["factor"])}

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        yield from norms_around(config)
        yield from attention_tensors(config)
        yield from mlp_tensors(config["hidden_size"], config["intermediate_size"])


class Gemma4(Architecture):
    """`gemma4` of llama.cpp without inputs of layers: heads of layers without a window are larger,
    and their keys are their values."""

    def metadata(self, config: dict) -> dict[str, Value]:
        windows = [kind == "sliding_attention" for kind in config["layer_types"]]
        turning = config["rope_parameters"]
        large, small = config["global_head_dim"], config["head_dim"]
        return {
            **common_metadata({**config, "rope_theta": turning["full_attention"]["rope_theta"],
                               "rope_parameters": None}, "gemma4", "qwen2"),
            "gemma4.attention.head_count_kv": [self.kv_heads(config, window)
                                               for window in windows],
            "gemma4.attention.key_length": large,
            "gemma4.attention.value_length": large,
            "gemma4.attention.key_length_swa": small,
            "gemma4.attention.value_length_swa": small,
            "gemma4.attention.sliding_window": config["sliding_window"],
            "gemma4.attention.sliding_window_pattern": windows,
            "gemma4.attention.shared_kv_layers": 0,
            "gemma4.embedding_length_per_layer_input": 0,
            "gemma4.final_logit_softcapping": config["final_logit_softcapping"],
            "gemma4.rope.dimension_count": large,
            "gemma4.rope.dimension_count_swa": small,
            "gemma4.rope.freq_base_swa": turning["sliding_attention"]["rope_theta"],
            "gemma4.expert_count": config["num_experts"],
            "gemma4.expert_used_count": config["top_k_experts"],
            "gemma4.expert_feed_forward_length": config["moe_intermediate_size"]}

    @staticmethod
    def kv_heads(config: dict, has_window: bool) -> int:
        return config["num_key_value_heads" if has_window else "num_global_key_value_heads"]

    def common(self, config: dict) -> Iterator[Tensor]:
        yield from super().common(config)
        yield "rope_freqs.weight", (config["global_head_dim"] // 2,), F32

    def layer(self, config: dict, i: int) -> Iterator[Tensor]:
        hidden, experts = config["hidden_size"], config["num_experts"]
        has_window = config["layer_types"][i] == "sliding_attention"
        yield from norms_around(config)
        for name, sizes, kind in attention_tensors(
                {**config, "num_key_value_heads": self.kv_heads(config, has_window),
                 "head_dim": config["head_dim" if has_window else "global_head_dim"]}):
            if has_window or name != "attn_v.weight":
                yield name, sizes, kind
        yield "layer_output_scale.weight", (1,), F32
        yield from mlp_tensors(hidden, config["intermediate_size"])
        for name in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"):
            yield f"{name}.weight", (hidden,), F32
        yield "ffn_gate_inp.weight", (experts, hidden), RANDOM_F32
        yield "ffn_gate_inp.scale", (hidden,), F32
        yield "ffn_gate_up_exps.weight", (experts, 2 * config["moe_intermediate_size"],
                                          hidden), MATRIX
        yield "ffn_down_exps.weight", (experts, hidden, config["moe_intermediate_size"]), MATRIX
        yield "ffn_down_exps.scale", (experts,), F32


class Phi3(Architecture):
    """`phi3` of llama.cpp: one matrix of queries, keys and values, one of gate and up."""

    def metadata(self, config: dict) -> dict[str, Value]:
        return {**common_metadata(config, "phi3", "gpt-4o"),
                "phi3.rope.dimension_count": self.turning(config),
                "phi3.rope.scaling.original_context_length":
                    config["original_max_position_embeddings"]}

    @staticmethod
    def turning(config: dict) -> int:
        return int(head_size(config) * config.get("partial_rotary_factor", 1))

    def common(self, config: dict) -> Iterator[Tensor]:
        yield from super().common(config)
        for name in ("rope_factors_long", "rope_factors_short"):
            yield f"{name}.weight", (self.turning(config) // 2,), F32

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        heads = config["num_attention_heads"] + 2 * config["num_key_value_heads"]
        yield from norms_of_layer(config)
        yield "attn_qkv.weight", (heads * head_size(config), hidden), MATRIX
        yield "attn_output.weight", (hidden, hidden), MATRIX
        yield "ffn_up.weight", (2 * inner, hidden), MATRIX
        yield "ffn_down.weight", (hidden, inner), MATRIX


class Lfm2(Architecture):
    """`lfm2` of llama.cpp: short convolutions, and attention in some layers."""

    last_norm = "token_embd_norm"

    def metadata(self, config: dict) -> dict[str, Value]:
        heads = config["num_key_value_heads"]
        return {**common_metadata(self.sizes(config), "lfm2", "lfm2"),
                "lfm2.attention.head_count_kv": [heads * (kind == "full_attention")
                                                 for kind in config["layer_types"]],
                "lfm2.shortconv.l_cache": config["conv_L_cache"]}

    @staticmethod
    def sizes(config: dict) -> dict:
        """With that of the inner blocks in place of what it follows from."""
        inner = config["intermediate_size"]
        if config["block_auto_adjust_ff_dim"]:
            multiple = config["block_multiple_of"]
            inner = int(config["block_ffn_dim_multiplier"] * (2 * inner // 3))
            inner = -(-inner // multiple) * multiple
        return {**config, "intermediate_size": inner, "rms_norm_eps": config["norm_eps"]}

    def layer(self, config: dict, i: int) -> Iterator[Tensor]:
        hidden = config["hidden_size"]
        yield from norms_of_layer(config)
        if config["layer_types"][i] == "full_attention":
            yield from attention_tensors(config)
        else:
            yield "shortconv.conv.weight", (hidden, config["conv_L_cache"]), F32
            yield "shortconv.in_proj.weight", (3 * hidden, hidden), MATRIX
            yield "shortconv.out_proj.weight", (hidden, hidden), MATRIX
        yield from mlp_tensors(hidden, self.sizes(config)["intermediate_size"])


class LatentAttention(Architecture):
    """`deepseek2` of llama.cpp, which GLM-4.7-Flash is: keys and values from latents."""

    def metadata(self, config: dict) -> dict[str, Value]:
        latent, turning = config["kv_lora_rank"], config["qk_rope_head_dim"]
        sizes = {**config, "head_dim": latent + turning, "num_key_value_heads": 1}
        return {
            **common_metadata(sizes, "deepseek2", "glm4"),
            **expert_metadata({**config, "num_experts": config["n_routed_experts"]}, "deepseek2"),
            "deepseek2.attention.value_length": latent,
            "deepseek2.attention.key_length_mla": config["qk_nope_head_dim"] + turning,
            "deepseek2.attention.value_length_mla": config["v_head_dim"],
            "deepseek2.attention.q_lora_rank": config["q_lora_rank"],
            "deepseek2.attention.kv_lora_rank": latent,
            "deepseek2.rope.dimension_count": turning,
            "deepseek2.leading_dense_block_count": 1,
            "deepseek2.expert_shared_count": config["n_shared_experts"],
            "deepseek2.expert_weights_scale": config["routed_scaling_factor"],
            "deepseek2.expert_weights_norm": config["norm_topk_prob"],
            "deepseek2.expert_gating_func": 2}  # sigmoids

    def attention(self, config: dict) -> Iterator[Tensor]:
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        latent, turning = config["kv_lora_rank"], config["qk_rope_head_dim"]
        staying, values, queries = (config[key] for key in ("qk_nope_head_dim", "v_head_dim",
                                                            "q_lora_rank"))
        yield "attn_q_a.weight", (queries, hidden), MATRIX
        yield "attn_q_a_norm.weight", (queries,), F32
        yield "attn_q_b.weight", (heads * (staying + turning), queries), MATRIX
        yield "attn_kv_a_mqa.weight", (latent + turning, hidden), MATRIX
        yield "attn_kv_a_norm.weight", (latent,), F32
        yield "attn_k_b.weight", (heads, latent, staying), MATRIX
        yield "attn_v_b.weight", (heads, values, latent), MATRIX
        yield "attn_output.weight", (hidden, heads * values), MATRIX

    def layer(self, config: dict, i: int) -> Iterator[Tensor]:
        hidden, experts = config["hidden_size"], config["n_routed_experts"]
        inner = config["moe_intermediate_size"]
        yield from norms_of_layer(config)
        yield from self.attention(config)
        if i == 0:
            yield from mlp_tensors(hidden, config["intermediate_size"])
            return
        yield "ffn_gate_inp.weight", (experts, hidden), RANDOM_F32
        yield "exp_probs_b.bias", (experts,), F32
        yield from mlp_tensors(hidden, inner, "_exps", (experts,))
        yield from mlp_tensors(hidden, inner * config["n_shared_experts"], "_shexp")


class GptOss(Architecture):
    """`gpt-oss` of llama.cpp: experts in MXFP4 whatever the mix, and biases of zero."""

    def metadata(self, config: dict) -> dict[str, Value]:
        scaling = config["rope_scaling"]
        return {**common_metadata(config, "gpt-oss", "gpt-4o"),
                "gpt-oss.expert_count": config["num_local_experts"],
                "gpt-oss.expert_used_count": config["num_experts_per_tok"],
                "gpt-oss.expert_feed_forward_length": config["intermediate_size"],
                "gpt-oss.attention.sliding_window": config["sliding_window"],
                "gpt-oss.rope.scaling.type": "yarn",
                "gpt-oss.rope.scaling.factor": float(scaling["factor"]),
                "gpt-oss.rope.scaling.original_context_length":
                    scaling["original_max_position_embeddings"]}

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        experts, heads = config["num_local_experts"], config["num_attention_heads"]
        yield from norms_of_layer(config, "post_attention_norm")
        for name, sizes, kind in attention_tensors(config, norms=False):
            yield name, sizes, kind
            yield name.replace("weight", "bias"), sizes[:1], ZERO
        yield "attn_sinks.weight", (heads,), ZERO
        yield "ffn_gate_inp.weight", (experts, hidden), RANDOM_F32
        yield "ffn_gate_inp.bias", (experts,), ZERO
        for name, (outputs, inputs) in (("gate", (inner, hidden)), ("up", (inner, hidden)),
                                        ("down", (hidden, inner))):
            yield f"ffn_{name}_exps.weight", (experts, outputs, inputs), MXFP4
            yield f"ffn_{name}_exps.bias", (experts, outputs), ZERO


ARCHITECTURES = {"llama": Llama, "qwen3": Qwen3, "qwen3_moe": Qwen3, "qwen3_5_text": Qwen35,
                 "qwen3_5_moe_text": Qwen35, "gemma3_text": Gemma3, "gemma4_text": Gemma4,
                 "phi3": Phi3, "lfm2": Lfm2, "glm4_moe_lite": LatentAttention, "gpt_oss": GptOss}
