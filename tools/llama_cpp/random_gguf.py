#!/usr/bin/env python3
"""Writes a model with random weights as a GGUF file, to be measured here and in llama.cpp.

    subbyte synth build/shape --shape 8b --layers 1
    tools/llama_cpp/random_gguf.py build/shape/config.json FILE.gguf --layers 36 --mix Q4_K_M

The shape is that of a config.json (architectures.py has which); types are those that
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

from architectures import ARCHITECTURES, Architecture, Tensor, Value
from mixes import F32, MIXES, Mix, Types, contents, size_bytes

U32, I32, F32_VALUE, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of values
ALIGNMENT = 32


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key: str, value: Value) -> bytes:
    if isinstance(value, list) and isinstance(value[0], str):
        head = struct.pack("<IIQ", ARRAY, STRING, len(value))
        return string(key) + head + b"".join(string(text) for text in value)
    if isinstance(value, list) and isinstance(value[0], bool):
        return string(key) + struct.pack("<IIQ", ARRAY, BOOL, len(value)) + bytes(value)
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


def architecture_of(config: dict) -> Architecture:
    if config["model_type"] not in ARCHITECTURES:
        raise SystemExit(f"random_gguf.py: model_type {config['model_type']!r}, expected one of "
                         f"{', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[config["model_type"]]()


def tensors(config: dict, mix: Mix) -> Iterator[Tensor]:
    layers = config["num_hidden_layers"]
    types = Types(mix, config["tie_word_embeddings"], layers)
    architecture = architecture_of(config)
    for name, sizes, kind in architecture.common(config):
        yield name, sizes, types.of(name, kind, sizes[-1])
    for i in range(layers):
        for name, sizes, kind in architecture.layer(config, i):
            yield f"blk.{i}.{name}", sizes, types.of(f"blk.{i}.{name}", kind, sizes[-1])


def padding(size: int) -> int:
    return -size % ALIGNMENT


def write_gguf(config: dict, mix: Mix, path: Path) -> None:
    try:
        values = {**architecture_of(config).metadata(config), "general.file_type": mix.file_type}
        listed = list(tensors(config, mix))
    except KeyError as key:
        raise SystemExit(f"random_gguf.py: config.json of {config['model_type']}, expected {key}, "
                         "found none") from key
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
