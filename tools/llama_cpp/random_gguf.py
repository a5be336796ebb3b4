#!/usr/bin/env python3
"""Writes a Qwen3 with random weights as a GGUF file, for llama.cpp's benchmarks.

    tools/llama_cpp/random_gguf.py MODEL/config.json FILE.gguf

The shape is that of a config.json, such as `subbyte synth` writes. Matrices of the layers are Q4_0
(18 bytes for 32 weights), embedding and head f16, norms f32. All layers have the same bytes: speed
does not depend on that, and a file of 8b is written in seconds. There is no tokenizer in it.

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

U32, F32_VALUE, STRING = 4, 6, 8  # types of values
F32, F16, Q4_0 = 0, 1, 2          # types of tensors
ALIGNMENT = 32
Q4_0_GROUP = 32
Q4_0_DEVIATION = 4.64  # of q - 8, q in 0..15


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def pair(key: str, value: str | int | float) -> bytes:
    if isinstance(value, str):
        return string(key) + struct.pack("<I", STRING) + string(value)
    if isinstance(value, int):
        return string(key) + struct.pack("<II", U32, value)
    return string(key) + struct.pack("<If", F32_VALUE, value)


def metadata(config: dict) -> dict[str, str | int | float]:
    return {
        "general.architecture": "qwen3",
        "general.name": "random",
        "general.file_type": Q4_0,
        "qwen3.block_count": config["num_hidden_layers"],
        "qwen3.context_length": config["max_position_embeddings"],
        "qwen3.embedding_length": config["hidden_size"],
        "qwen3.feed_forward_length": config["intermediate_size"],
        "qwen3.attention.head_count": config["num_attention_heads"],
        "qwen3.attention.head_count_kv": config["num_key_value_heads"],
        "qwen3.attention.key_length": config["head_dim"],
        "qwen3.attention.value_length": config["head_dim"],
        "qwen3.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "qwen3.rope.freq_base": float(config["rope_theta"]),
        "qwen3.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "none",
    }


def tensors(config: dict) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, sizes with the outputs first, type."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    dim, vocabulary = config["head_dim"], config["vocab_size"]
    q_size = config["num_attention_heads"] * dim
    kv_size = config["num_key_value_heads"] * dim
    yield "token_embd.weight", (vocabulary, hidden), F16
    yield "output_norm.weight", (hidden,), F32
    if not config["tie_word_embeddings"]:
        yield "output.weight", (vocabulary, hidden), F16
    for i in range(config["num_hidden_layers"]):
        for name, sizes in [("attn_norm", (hidden,)), ("ffn_norm", (hidden,)),
                            ("attn_q_norm", (dim,)), ("attn_k_norm", (dim,)),
                            ("attn_q", (q_size, hidden)), ("attn_k", (kv_size, hidden)),
                            ("attn_v", (kv_size, hidden)), ("attn_output", (hidden, q_size)),
                            ("ffn_gate", (inner, hidden)), ("ffn_up", (inner, hidden)),
                            ("ffn_down", (hidden, inner))]:
            yield f"blk.{i}.{name}.weight", sizes, F32 if len(sizes) == 1 else Q4_0


def size_bytes(sizes: tuple[int, ...], kind: int) -> int:
    count = math.prod(sizes)
    return {F32: 4 * count, F16: 2 * count, Q4_0: count // Q4_0_GROUP * 18}[kind]


def contents(sizes: tuple[int, ...], kind: int, random: np.random.Generator) -> bytes:
    """Weights with the deviation 1 / sqrt(inputs), norms of 1."""
    if kind == F32:
        return np.ones(sizes, np.float32).tobytes()
    deviation = 1 / math.sqrt(sizes[-1])
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
    values = metadata(config)
    listed = list(tensors(config))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values))
    head += b"".join(pair(key, value) for key, value in values.items())
    offset = 0
    for name, sizes, kind in listed:
        head += string(name) + struct.pack("<I", len(sizes))
        head += struct.pack(f"<{len(sizes)}Q", *reversed(sizes))
        head += struct.pack("<IQ", kind, offset)
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
