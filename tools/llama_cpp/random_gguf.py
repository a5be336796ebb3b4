#!/usr/bin/env python3
"""Writes a Qwen3 or a Qwen3.5 with random weights as a GGUF file, for llama.cpp's benchmarks.

    tools/llama_cpp/random_gguf.py MODEL/config.json FILE.gguf

The shape is that of a config.json, such as `subbyte synth` writes. Matrices of the layers are Q4_0
(18 bytes for 32 weights), embedding and head f16, norms, routers and what else is small f32. All
layers of a kind have the same bytes: speed does not depend on that, and a file of 8b is written in
seconds. There is no tokenizer in it.

GGUF 3: magic, version, counts; key-value pairs; for each tensor its name, sizes (inputs first),
type and offset; then the tensors at multiples of 32 bytes.
"""
from __future__ import annotations

import argparse
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

U32, I32, F32_VALUE, STRING, ARRAY = 4, 5, 6, 8, 9  # types of values
F32, F16, Q4_0 = 0, 1, 2          # types of tensors; F32 are ones
# Types of ours, F32 in the file: numbers of -1, which is the rate of a gated delta net, and random
# ones, as equal scores would send all tokens to the same experts.
MINUS_ONE, RANDOM_F32 = -1, -2
ALIGNMENT = 32
Q4_0_GROUP = 32
Q4_0_DEVIATION = 4.64  # of q - 8, q in 0..15


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


Value = str | int | float | list[int]
Tensor = tuple[str, tuple[int, ...], int]  # name, sizes with the outputs first, type


def pair(key: str, value: Value) -> bytes:
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, I32, len(value))
        return string(key) + head + struct.pack(f"<{len(value)}i", *value)
    if isinstance(value, str):
        return string(key) + struct.pack("<I", STRING) + string(value)
    if isinstance(value, int):
        return string(key) + struct.pack("<II", U32, value)
    return string(key) + struct.pack("<If", F32_VALUE, value)


def common_metadata(config: dict, arch: str) -> dict[str, Value]:
    return {
        "general.architecture": arch,
        "general.name": "random",
        "general.file_type": Q4_0,
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config.get("intermediate_size", 0),
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": config["head_dim"],
        f"{arch}.attention.value_length": config["head_dim"],
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "none",
    }


def common_tensors(config: dict) -> Iterator[Tensor]:
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield "token_embd.weight", (vocabulary, hidden), F16
    yield "output_norm.weight", (hidden,), F32
    if not config["tie_word_embeddings"]:
        yield "output.weight", (vocabulary, hidden), F16


def attention_tensors(config: dict, q_parts: int) -> Iterator[Tensor]:
    """`q_parts`: 2 where a gate follows each query head."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    q_size = config["num_attention_heads"] * dim
    kv_size = config["num_key_value_heads"] * dim
    yield "attn_q_norm.weight", (dim,), F32
    yield "attn_k_norm.weight", (dim,), F32
    yield "attn_q.weight", (q_parts * q_size, hidden), Q4_0
    yield "attn_k.weight", (kv_size, hidden), Q4_0
    yield "attn_v.weight", (kv_size, hidden), Q4_0
    yield "attn_output.weight", (hidden, q_size), Q4_0


def mlp_tensors(hidden: int, inner: int, suffix: str = "",
                experts: tuple[int, ...] = ()) -> Iterator[Tensor]:
    yield f"ffn_gate{suffix}.weight", (*experts, inner, hidden), Q4_0
    yield f"ffn_up{suffix}.weight", (*experts, inner, hidden), Q4_0
    yield f"ffn_down{suffix}.weight", (*experts, hidden, inner), Q4_0


class Qwen3:
    """`qwen3` of llama.cpp."""

    def metadata(self, config: dict) -> dict[str, Value]:
        return {**common_metadata(config, "qwen3"),
                "qwen3.rope.freq_base": float(config["rope_theta"])}

    def layer(self, config: dict, _: int) -> Iterator[Tensor]:
        hidden = config["hidden_size"]
        yield "attn_norm.weight", (hidden,), F32
        yield "ffn_norm.weight", (hidden,), F32
        yield from attention_tensors(config, 1)
        yield from mlp_tensors(hidden, config["intermediate_size"])


class Qwen35:
    """`qwen35` and `qwen35moe` of llama.cpp: layers with gated delta nets, and experts."""

    def metadata(self, config: dict) -> dict[str, Value]:
        arch = "qwen35moe" if "num_experts" in config else "qwen35"
        rope = config["rope_parameters"]
        rotary = int(config["head_dim"] * rope["partial_rotary_factor"])
        values = {
            **common_metadata(config, arch),
            f"{arch}.rope.freq_base": float(rope["rope_theta"]),
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
                f"{arch}.expert_count": config["num_experts"],
                f"{arch}.expert_used_count": config["num_experts_per_tok"],
                f"{arch}.expert_feed_forward_length": config["moe_intermediate_size"],
                f"{arch}.expert_shared_feed_forward_length":
                    config["shared_expert_intermediate_size"]}

    @staticmethod
    def value_width(config: dict) -> int:
        return config["linear_num_value_heads"] * config["linear_value_head_dim"]

    def delta_net(self, config: dict) -> Iterator[Tensor]:
        hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
        values = self.value_width(config)
        channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + values
        yield "attn_qkv.weight", (channels, hidden), Q4_0
        yield "attn_gate.weight", (values, hidden), Q4_0
        yield "ssm_conv1d.weight", (channels, config["linear_conv_kernel_dim"]), F32
        yield "ssm_dt.bias", (heads,), F32
        yield "ssm_a", (heads,), MINUS_ONE
        yield "ssm_beta.weight", (heads, hidden), F16
        yield "ssm_alpha.weight", (heads, hidden), F16
        yield "ssm_norm.weight", (config["linear_value_head_dim"],), F32
        yield "ssm_out.weight", (hidden, values), Q4_0

    def layer(self, config: dict, i: int) -> Iterator[Tensor]:
        hidden = config["hidden_size"]
        yield "attn_norm.weight", (hidden,), F32
        yield "post_attention_norm.weight", (hidden,), F32
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


def architecture_of(config: dict) -> Qwen3 | Qwen35:
    kinds = {"qwen3": Qwen3, "qwen3_5_text": Qwen35, "qwen3_5_moe_text": Qwen35}
    if config["model_type"] not in kinds:
        raise SystemExit(f"random_gguf.py: model_type {config['model_type']!r}, expected one of "
                         f"{', '.join(kinds)}")
    return kinds[config["model_type"]]()


def tensors(config: dict) -> Iterator[Tensor]:
    yield from common_tensors(config)
    architecture = architecture_of(config)
    for i in range(config["num_hidden_layers"]):
        for name, sizes, kind in architecture.layer(config, i):
            yield f"blk.{i}.{name}", sizes, kind


def size_bytes(sizes: tuple[int, ...], kind: int) -> int:
    count = math.prod(sizes)
    return {F16: 2 * count, Q4_0: count // Q4_0_GROUP * 18}.get(kind, 4 * count)


def contents(sizes: tuple[int, ...], kind: int, random: np.random.Generator) -> bytes:
    """Weights with the deviation 1 / sqrt(inputs), norms of 1."""
    if kind in (F32, MINUS_ONE):
        return np.full(sizes, 1 if kind == F32 else -1, np.float32).tobytes()
    deviation = 1 / math.sqrt(sizes[-1])
    if kind == RANDOM_F32:
        return (random.standard_normal(sizes, np.float32) * deviation).tobytes()
    if kind == F16:
        row = (random.standard_normal((256, sizes[-1]), np.float32) * deviation).astype(np.float16)
        repeats = -(-sizes[0] // len(row))
        return np.tile(row, (repeats, 1))[:sizes[0]].tobytes()
    blocks = random.integers(0, 256, (math.prod(sizes) // Q4_0_GROUP, 18), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(deviation / Q4_0_DEVIATION).tobytes(), np.uint8)
    return blocks.tobytes()


def padding(size: int) -> int:
    return -size % ALIGNMENT


def write_gguf(config: dict, path: Path) -> None:
    values = architecture_of(config).metadata(config)
    listed = list(tensors(config))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values))
    head += b"".join(pair(key, value) for key, value in values.items())
    offset = 0
    for name, sizes, kind in listed:
        head += string(name) + struct.pack("<I", len(sizes))
        head += struct.pack(f"<{len(sizes)}Q", *reversed(sizes))
        head += struct.pack("<IQ", max(kind, F32), offset)
        offset += size_bytes(sizes, kind) + padding(size_bytes(sizes, kind))
    random = np.random.default_rng(1)
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
    arguments = parser.parse_args()
    write_gguf(json.loads(arguments.config.read_text()), arguments.file)


if __name__ == "__main__":
    main()
