#!/usr/bin/env python3
"""Writes tests/data/ggml/TYPE.bin, two rows of 512 weights in random blocks of each type of ggml
that is read, then the floats that gguf-py makes of them, or for Q1_0 and Q2_0, which it has not,
their formula.

usage: tools/interop/ggml_blocks.py    with gguf of PyPI
"""
from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

ROWS, COLS = 2, 512
FOLDER = Path(__file__).resolve().parents[2] / "tests/data/ggml"
TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
         "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS",
         "TQ1_0", "TQ2_0", "MXFP4", "NVFP4")
FORMULAS = {"Q1_0": (128, 1), "Q2_0": (64, 2)}  # inputs of a block, bits


def dequantize(name: str, blocks: np.ndarray) -> np.ndarray:
    """Of blocks [n][bytes]."""
    if name in FORMULAS:
        size, bits = FORMULAS[name]
        scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        stream = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").reshape(-1, size, bits)
        codes = stream @ (1 << np.arange(bits)).astype(np.int32)
        signs = 2 * codes - 1 if bits == 1 else codes - 1
        return (signs.astype(np.float32) * scales).reshape(-1)
    return gguf.quants.dequantize(blocks, GGMLQuantizationType[name]).reshape(-1)


def is_sound(name: str, block: np.ndarray) -> bool:
    """Whether ggml reads the scales as their format has them, and no number is huge."""
    if name == "NVFP4":
        return bool((block[:4] < 127).all())
    if name == "MXFP4":
        return bool(block[0] < 200)
    with np.errstate(all="ignore"):
        return bool((np.abs(dequantize(name, block[None])) < 1e6).all())


def main() -> None:
    random = np.random.default_rng(60)
    for name in (*TYPES, *FORMULAS):
        size, num_bytes = ((FORMULAS[name][0], 18) if name in FORMULAS
                           else GGML_QUANT_SIZES[GGMLQuantizationType[name]])
        blocks = np.zeros((ROWS * COLS // size, num_bytes), np.uint8)
        for block in blocks:
            while True:
                block[:] = random.integers(0, 256, num_bytes)
                if is_sound(name, block):
                    break
        floats = dequantize(name, blocks).astype("<f4")
        assert floats.size == ROWS * COLS and np.isfinite(floats).all(), name
        (FOLDER / f"{name}.bin").write_bytes(blocks.tobytes() + floats.tobytes())


if __name__ == "__main__":
    main()
