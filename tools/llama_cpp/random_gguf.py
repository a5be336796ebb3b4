#!/usr/bin/env python3
"""Writes a model with random weights as a GGUF file, to be measured here and in llama.cpp.

    subbyte synth build/shape --shape 8b --layers 1
    tools/llama_cpp/random_gguf.py build/shape/config.json FILE.gguf --layers 36 --mix Q4_K_M

The shape is that of a config.json of Qwen3, Qwen3-MoE, Qwen3.5 or Llama; types are those that
llama-quantize gives (mixes.py). All layers of a kind have the same bytes: speed does not depend on
that, and a file of 8b is written in seconds. Its tokenizer has the letters of the bytes, one merge
and as many unused tokens as the vocabulary wants.

GGUF 3: magic, version, counts; key-value pairs; for each tensor its name, sizes (inputs first),
type and offset; then the tensors at multiples of 32 bytes.
"""
from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

from mixes import F32, MATRIX, MINUS_ONE, MIXES, RANDOM_F32, Mix, Types, contents, size_bytes

U32, I32, F32_VALUE, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of values
ALIGNMENT = 32
NORMAL, CONTROL, UNUSED = 1, 3, 5  # types of tokens


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


Value = str | int | float | list[int] | list[str]
Tensor = tuple[str, tuple[int, ...], int]  # name, sizes with the outputs first, type


def pair(key: str, value: Value) -> bytes:
    if isinstance(value, list) and isinstance(value[0], str):
        head = struct.pack("<IIQ", ARRAY, STRING, len(value))
        return string(key) + head + b"".join(string(text) for text in value)
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, I32, len(value))
        return string(key) + head + struct.pack(f"<{len(value)}i", *value)
    if isinstance(value, str):
        return string(key) + struct.pack("<I", STRING) + string(value)
    if isinstance(value, bool):
        return string(key) + struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return string(key) + struct.pack("<II", U32, value)
    return string(key) + struct.pack("<If", F32_VALUE, value)


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


def common_tensors(config: dict) -> Iterator[Tensor]:
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield "token_embd.weight", (vocabulary, hidden), MATRIX
    yield "output_norm.weight", (hidden,), F32
    if not config["tie_word_embeddings"]:
        yield "output.weight", (vocabulary, hidden), MATRIX


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


class Llama:
    """`llama` of llama.cpp, without factors of frequencies."""

    def metadata(self, config: dict) -> dict[str, Value]:
        return {**common_metadata(config, "llama", "llama-bpe"),
                "llama.rope.dimension_count": head_size(config)}

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        yield from norms_of_layer(config)
        yield from attention_tensors(config, norms=False)
        yield from mlp_tensors(config["hidden_size"], config["intermediate_size"])


class Qwen3:
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


class Qwen35:
    """`qwen35` and `qwen35moe` of llama.cpp: layers with gated delta nets, and experts."""

    def metadata(self, config: dict) -> dict[str, Value]:
        arch = "qwen35moe" if "num_experts" in config else "qwen35"
        rope = config["rope_parameters"]
        rotary = int(config["head_dim"] * rope["partial_rotary_factor"])
        values = {
            **common_metadata(config, arch, "qwen35"),
            f"{arch}.rope.dimension_count": rotary,
            # Of time, height and width, which are the same position in text.
            f"{arch}.rope.dimension_sections": [rotary // 2 - 2 * (rotary // 6), rotary // 6,
                                                rotary // 6, 0],
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


Architecture = Llama | Qwen3 | Qwen35
ARCHITECTURES = {"llama": Llama, "qwen3": Qwen3, "qwen3_moe": Qwen3, "qwen3_5_text": Qwen35,
                 "qwen3_5_moe_text": Qwen35}


def architecture_of(config: dict) -> Architecture:
    if config["model_type"] not in ARCHITECTURES:
        raise SystemExit(f"random_gguf.py: model_type {config['model_type']!r}, expected one of "
                         f"{', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[config["model_type"]]()


def tensors(config: dict, mix: Mix) -> Iterator[Tensor]:
    layers = config["num_hidden_layers"]
    types = Types(mix, config["tie_word_embeddings"], layers)
    for name, sizes, kind in common_tensors(config):
        yield name, sizes, types.of(name, kind)
    architecture = architecture_of(config)
    for i in range(layers):
        for name, sizes, kind in architecture.layer(config, i):
            yield f"blk.{i}.{name}", sizes, types.of(f"blk.{i}.{name}", kind)


def padding(size: int) -> int:
    return -size % ALIGNMENT


def write_gguf(config: dict, mix: Mix, path: Path) -> None:
    values = {**architecture_of(config).metadata(config), "general.file_type": mix.file_type}
    listed = list(tensors(config, mix))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values))
    head += b"".join(pair(key, value) for key, value in values.items())
    offset = 0
    for name, sizes, kind in listed:
        head += string(name) + struct.pack("<I", len(sizes))
        head += struct.pack(f"<{len(sizes)}Q", *reversed(sizes))
        head += struct.pack("<IQ", max(kind, F32), offset)
        offset += size_bytes(sizes, kind) + padding(size_bytes(sizes, kind))
    random = Random(1)
    made: dict[tuple[tuple[int, ...], int], bytes] = {}
    unfinished = path.with_name(path.name + ".partial-")
    with unfinished.open("wb") as file:
        file.write(head + bytes(padding(len(head))))
        for _, sizes, kind in listed:
            key = (sizes, kind)
            if key not in made:
                made[key] = contents(sizes, kind, random)
            file.write(made[key] + bytes(padding(len(made[key]))))
    unfinished.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--mix", choices=MIXES, default="Q4_K_M")
    parser.add_argument("--layers", type=int, help="in place of those of the config")
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    if arguments.layers:
        config["num_hidden_layers"] = arguments.layers
    write_gguf(config, MIXES[arguments.mix], arguments.file)


if __name__ == "__main__":
    main()
