"""Types of ggml as random blocks, and the mixes of llama-quantize: which tensor gets which type.

A mix has a type for matrices, and names those that get more bits: attn_v and ffn_down of the first
and the last eighth of the layers and of every third between them, a joined attn_qkv, and the head,
which is the embedding where there is no other. Norms, routers and filters are F32 in every mix.
"""
from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from random import Random

F32, F16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, MXFP4 = 0, 1, 2, 6, 7, 8, 12, 13, 14, 39
# Types of ours, F32 in the file: numbers of -1, which is the rate of a gated delta net, and random
# ones, as equal scores would send all tokens to the same experts; zeros, as biases would; and a
# matrix, whose type the mix says.
MINUS_ONE, RANDOM_F32, MATRIX, ZERO = -1, -2, -3, -4

BLOCKS = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q5_0: (32, 22), Q5_1: (32, 24), Q8_0: (32, 34),
          Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210),
          MXFP4: (32, 17)}  # weights and bytes
# In place of those whose blocks no row has a multiple of.
SHORT = {Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0}


@dataclass(frozen=True)
class Mix:
    file_type: int   # general.file_type
    usual: int
    more: int        # of the tensors with more bits
    joined: int      # of attn_qkv
    head: int
    embedding: int   # where it is not the head


MIXES = {
    "Q4_0": Mix(2, Q4_0, Q4_0, Q4_0, Q6_K, Q4_0),
    "Q8_0": Mix(7, Q8_0, Q8_0, Q8_0, Q8_0, Q8_0),
    "Q4_K_M": Mix(15, Q4_K, Q6_K, Q5_K, Q6_K, Q4_K),
    "Q5_K_M": Mix(17, Q5_K, Q6_K, Q6_K, Q6_K, Q5_K),
    "Q6_K": Mix(18, Q6_K, Q6_K, Q6_K, Q6_K, Q6_K),
    "Q4_0-F16": Mix(2, Q4_0, Q4_0, Q4_0, F16, F16),  # of nobody: as AWQ has embedding and head
}


def has_more_bits(i: int, count: int) -> bool:
    """Whether the i-th of `count` tensors of a kind does."""
    return i < count // 8 or i >= 7 * count // 8 or (i - count // 8) % 3 == 2


class Types:
    """The types of one model's tensors, which are asked for in the order of the layers."""

    def __init__(self, mix: Mix, tied: bool, layers: int) -> None:
        self.mix = mix
        self.tied = tied
        self.layers = layers
        self.seen = {"attn_v": 0, "ffn_down": 0}

    def of(self, name: str, kind: int, inputs: int) -> int:
        """The type of tensor `name` in place of MATRIX."""
        if kind != MATRIX:
            return kind
        found = self.of_matrix(name)
        return found if inputs % BLOCKS[found][0] == 0 else SHORT.get(found, found)

    def of_matrix(self, name: str) -> int:
        if name == "output.weight" or (name == "token_embd.weight" and self.tied):
            return self.mix.head
        if name == "token_embd.weight":
            return self.mix.embedding
        if ".attn_qkv." in name:
            return self.mix.joined
        for counted in self.seen:
            if f".{counted}" in name:
                i = int(name.split(".")[1]) if counted == "ffn_down" else self.seen[counted]
                self.seen[counted] += 1
                return self.mix.more if has_more_bits(i, self.layers) else self.mix.usual
        return self.mix.usual


def size_bytes(sizes: tuple[int, ...], kind: int) -> int:
    weights, size = BLOCKS[max(kind, F32)]
    if sizes[-1] % weights != 0:
        raise SystemExit(f"random_gguf.py: rows of {sizes[-1]} inputs are no blocks of {weights}")
    return math.prod(sizes) // weights * size


# Of a block's codes where they are uniform, each less the mean (or 8, 16, 0, 32 of types without
# one).
DEVIATIONS = {Q4_0: 4.64, Q5_0: 9.23, Q5_1: 9.23, Q8_0: 73.9, Q4_K: 4.61, Q5_K: 9.23, Q6_K: 18.5,
              MXFP4: 2.93}
SMALL_SCALE = 32
# Eight scales and eight minima of SMALL_SCALE in the 12 bytes of Q4_K and Q5_K.
PACKED_SCALES = bytes([0xA0] * 8 + [0] * 4)
# Random blocks and numbers are repeated after this many: a prime, so that rows differ.
PERIOD = 4093


def block(kind: int, deviation: float, random: Random) -> bytes:
    """Random codes whose weights have that deviation."""
    scale = deviation / DEVIATIONS[kind]
    codes = random.randbytes(BLOCKS[kind][1])
    if kind == MXFP4:
        return bytes([127 + round(math.log2(scale))]) + codes[1:]
    if kind in (Q4_0, Q5_0, Q8_0):
        return struct.pack("<e", scale) + codes[2:]
    if kind == Q5_1:
        return struct.pack("<ee", scale, -15.5 * scale) + codes[4:]
    scale /= SMALL_SCALE
    if kind == Q6_K:
        return codes[:192] + bytes([SMALL_SCALE] * 16) + struct.pack("<e", scale)
    mean = 7.5 if kind == Q4_K else 15.5
    return struct.pack("<ee", scale, scale * mean) + PACKED_SCALES + codes[16:]


def contents(sizes: tuple[int, ...], kind: int, random: Random) -> bytes:
    """Weights with the deviation 1 / sqrt(inputs), norms of 1."""
    deviation = 1 / math.sqrt(sizes[-1])
    if kind in (F32, MINUS_ONE, ZERO):
        period = struct.pack("<f", {F32: 1, MINUS_ONE: -1, ZERO: 0}[kind])
    elif kind in (F16, RANDOM_F32):
        numbers = [random.gauss(0, deviation) for _ in range(PERIOD)]
        period = struct.pack(f"<{PERIOD}{'e' if kind == F16 else 'f'}", *numbers)
    else:
        period = b"".join(block(kind, deviation, random) for _ in range(PERIOD))
    size = size_bytes(sizes, kind)
    return (period * (size // len(period) + 1))[:size]
