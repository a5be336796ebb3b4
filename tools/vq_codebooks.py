#!/usr/bin/env python3
"""Writes src/quantize/vq_codebooks.cc: the vectors that vq2 and vq4 choose from.

    tools/vq_codebooks.py > src/quantize/vq_codebooks.cc        (needs numpy; half a minute)

Weights that were rotated are like normal random numbers, so both codebooks are trained once, on
blocks of 32 of these: k-means of 256 vectors, whose error counts by the square of the scale. Each
block has the scale with which its error is smallest, of its largest magnitude and one a quarter of
an octave below and above, as the quantizer takes it. The largest number is made 1. Another version
of numpy may give other last bits; the table in the source is what counts.
"""
from __future__ import annotations

import numpy as np

BLOCKS = 1 << 15
ITERATIONS = 60
OFFSETS = (-4, 0, 4)  # in sixteenths of an octave, as E4M4 has them
SCALES = np.array([(1 + m / 16) * 2.0**e for e in range(-6, 6) for m in range(16)], np.float32)
HEAD = """\
// The vectors of vq2 and vq4, numbers of f16, trained on normal random numbers: written by
// tools/vq_codebooks.py.

#include "quantize/vq.h"

namespace subbyte {
namespace {
"""
TAIL = """
}  // namespace

std::span<const uint16_t> vq_codebook(int bits) {
  if (bits == 2) return kVectorsOf4;
  return kVectorsOf2;
}

}  // namespace subbyte"""


def nearest(vectors: np.ndarray, codebook: np.ndarray) -> np.ndarray:
    codes = np.empty(len(vectors), np.int32)
    half = (codebook**2).sum(1) / 2
    for i in range(0, len(vectors), 1 << 16):
        codes[i : i + (1 << 16)] = (vectors[i : i + (1 << 16)] @ codebook.T - half).argmax(1)
    return codes


def quantize(x: np.ndarray, codebook: np.ndarray, offsets: tuple[int, ...]) -> tuple:
    """Errors, scales and codes of blocks."""
    size = codebook.shape[1]
    base = np.searchsorted(SCALES, abs(x).max(1))
    best = None
    for offset in offsets:
        scales = SCALES[base + offset]
        codes = nearest((x / scales[:, None]).reshape(-1, size), codebook).reshape(len(x), -1)
        errors = ((x - codebook[codes].reshape(x.shape) * scales[:, None]) ** 2).sum(1)
        if best is None:
            best = (errors, scales, codes)
            continue
        better = errors < best[0]
        for whole, part in zip(best, (errors, scales, codes)):
            whole[better] = part[better]
    return best


def train(size: int) -> np.ndarray:
    random = np.random.default_rng(20261126)
    x = random.standard_normal((BLOCKS, 32)).astype(np.float32)
    vectors = (x / abs(x).max(1)[:, None]).reshape(-1, size)
    codebook = vectors[random.choice(len(vectors), 256, False)].copy()
    for i in range(ITERATIONS):
        _, scales, codes = quantize(x, codebook, OFFSETS if i > ITERATIONS // 2 else (0,))
        codes = codes.reshape(-1)
        weights = np.repeat(scales**2, 32 // size)
        vectors = (x / scales[:, None]).reshape(-1, size)
        total = np.bincount(codes, weights, 256)
        sums = [np.bincount(codes, weights * vectors[:, j], 256) for j in range(size)]
        used = total > 0
        codebook[used] = (np.stack(sums, 1)[used] / total[used, None]).astype(np.float32)
    codebook /= abs(codebook).max()
    return codebook[np.lexsort(codebook.T[::-1])].astype(np.float16)


def main() -> None:
    print(HEAD)
    for size in (4, 2):
        print(f"constexpr uint16_t kVectorsOf{size}[] = {{")
        numbers = [f"0x{number:04X}," for number in train(size).view(np.uint16).reshape(-1)]
        for i in range(0, len(numbers), 12):
            print("    " + " ".join(numbers[i : i + 12]))
        print("};")
    print(TAIL)


if __name__ == "__main__":
    main()
