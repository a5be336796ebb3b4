#!/usr/bin/env python3
"""Writes a model whose linear layers are what a type of llama.cpp makes of them, as F32.

    tools/llama_cpp/round_weights.py LIBRARY MODEL DST TYPE

MODEL is a directory with one model.safetensors in BF16, F16 or F32; LIBRARY a shared library of
ggml's own quantizers, which in llama.cpp/ggml/src (llama_cpp.sh brings it) is made by

    echo '{ global: ggml_quantize_chunk; ggml_get_type_traits; local: *; };' > symbols
    c++ -O2 -fPIC -ffunction-sections -I../include -I. -c ggml-threading.cpp
    cc -O2 -fPIC -ffunction-sections -I../include -I. -shared ggml.c ggml-quants.c \\
      ggml-threading.o -Wl,--gc-sections,--version-script=symbols -lm -lstdc++ -o libggml_types.so

Every matrix of a layer is rounded by ggml_quantize_chunk() and read back by the type's to_float(),
without an importance matrix; embedding, head and norms stay as they are. So any program that runs
F32 measures what the type costs, apart from how products are computed. Prints one line of JSON:
type, bits of a weight, and signal to noise in dB. Needs numpy.
"""
from __future__ import annotations

import ctypes
import json
import math
import shutil
import struct
import sys
from pathlib import Path

import numpy as np

TYPES = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_K": 10, "q3_K": 11, "q4_K": 12,
         "q5_K": 13, "q6_K": 14, "iq3_xxs": 18, "iq4_nl": 20, "iq3_s": 21, "iq2_s": 22,
         "iq4_xs": 23, "mxfp4": 39}


class TypeTraits(ctypes.Structure):
    """The beginning of ggml's structure of that name."""
    _fields_ = [("type_name", ctypes.c_char_p), ("block", ctypes.c_int64),
                ("interleave", ctypes.c_int64), ("bytes", ctypes.c_size_t),
                ("is_quantized", ctypes.c_bool), ("to_float", ctypes.CFUNCTYPE(
                    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


class Rounder:
    def __init__(self, library: str, name: str) -> None:
        self.type = TYPES[name]
        self.ggml = ctypes.CDLL(library)
        self.ggml.ggml_get_type_traits.restype = ctypes.POINTER(TypeTraits)
        self.ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.ggml.ggml_quantize_chunk.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
        self.traits = self.ggml.ggml_get_type_traits(self.type).contents
        self.bits = 8 * self.traits.bytes / self.traits.block

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        rows, cols = weights.shape
        if cols % self.traits.block != 0:
            raise SystemExit(f"{cols} inputs, expected a multiple of {self.traits.block}")
        weights = np.ascontiguousarray(weights, dtype=np.float32)
        codes = np.zeros(weights.size // self.traits.block * self.traits.bytes, dtype=np.uint8)
        self.ggml.ggml_quantize_chunk(self.type, weights.ctypes.data, codes.ctypes.data, 0, rows,
                                      cols, None)
        rounded = np.empty_like(weights)
        self.traits.to_float(codes.ctypes.data, rounded.ctypes.data, weights.size)
        return rounded


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            words = np.frombuffer(raw[begin:end], dtype="<u2").astype(np.uint32) << 16
            values = words.view(np.float32)
        else:
            kind = {"F16": "<f2", "F32": "<f4"}[entry["dtype"]]
            values = np.frombuffer(raw[begin:end], dtype=kind).astype(np.float32)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, dtype="<f4").tobytes())


def main() -> None:
    if len(sys.argv) != 5 or sys.argv[4] not in TYPES:
        raise SystemExit(f"{__doc__}\ntypes: {', '.join(TYPES)}")
    library, model, to, name = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    rounder = Rounder(library, name)
    tensors = read_safetensors(model / "model.safetensors")
    signal = noise = 0.0
    for key, weights in tensors.items():
        if ".layers." not in key or weights.ndim != 2:
            continue
        rounded = rounder(weights)
        signal += float(np.sum(np.square(weights, dtype=np.float64)))
        noise += float(np.sum(np.square(weights.astype(np.float64) - rounded)))
        tensors[key] = rounded
    to.mkdir(parents=True)
    for file in model.glob("*.json"):
        shutil.copy(file, to)
    config = json.loads((model / "config.json").read_text())
    config["torch_dtype"] = "float32"
    (to / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(to / "model.safetensors", tensors)
    print(json.dumps({"type": name, "bits_per_weight": rounder.bits,
                      "signal_to_noise_db": 10 * math.log10(signal / noise)}))


if __name__ == "__main__":
    main()
