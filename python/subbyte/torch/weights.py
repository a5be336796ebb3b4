"""Packed weights as one object, for programs that do not want to carry six tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import _library
from ._formats import bits_of

ops = torch.ops.subbyte


class PackedWeight(NamedTuple):
    """The tensors of a matrix [N, K] of any format; a tuple, so that torch.compile sees them."""

    codes: torch.Tensor
    scales: torch.Tensor | None
    zeros: torch.Tensor | None
    format: str
    tensor_scale: torch.Tensor | None = None
    codebook: torch.Tensor | None = None
    input_order: torch.Tensor | None = None


# What the names of `subbyte quantize --format` mean here: kind and group.
PROGRAM_NAMES: dict[str, tuple[str, int | None]] = {
    "awq": ("u4", 128), "gptq": ("i4", 128), "gptq_v2": ("i4", 128),
    "compressed-tensors": ("i4", 128), "int8": ("i8", 0), "kbit": ("nfl4", None),
    **{f"kbit{bits}": (f"nfl{bits}", None) for bits in (2, 3, 4, 5)}}


def with_cols(weight: PackedWeight, cols: int) -> PackedWeight:
    """The weight with its number of columns in the format, where bytes of a row do not tell it."""
    row, bits = weight.codes.shape[1], bits_of(weight.format)
    held = row * 8 // bits
    is_told = row * 8 % bits == 0 or ((held - 1) * bits + 7) // 8 < row
    if " " not in weight.format or (is_told and held == cols):
        return weight
    return weight._replace(format=f"{weight.format} cols {cols}")


def group_words(size: int) -> str:
    return "per row" if size == 0 else f"g{size}"


def quantize_integers(weights: torch.Tensor, kind: str, group: int) -> PackedWeight:
    bits, symmetric = int(kind[1:]), kind[0] == "i"
    codes, scales, zeros = ops.quantize_int(weights, bits, group, symmetric)
    words = f"{kind} {group_words(group)} scale f16"
    if symmetric:
        return PackedWeight(codes, scales, None, words)
    return PackedWeight(codes, scales, zeros, f"{words} zero u{16 if bits == 8 else 8}")


def quantize(weights: torch.Tensor, kind: str, group: int | None = None,
             codebook: torch.Tensor | None = None) -> PackedWeight:
    """Quantizes [N, K] to nearest: u2 to u8, i2 to i8, mxfp4, nvfp4, nf4, nfl2 to nfl5, fp8.

    The program's names are taken, too: awq (u4), gptq, gptq_v2 and compressed-tensors (i4), int8
    (i8 with a scale for each row), kbit2 to kbit5 (nfl2 to nfl5). `group` is how many inputs share
    a scale, 0 the whole row; integers have 128 without it and nf4 has 64, the others have one size
    only. `codebook` is for nfl2 to nfl5.
    """
    weights = weights.detach()  # what is quantized is constant
    name = kind
    kind, usual = PROGRAM_NAMES.get(kind, (kind, None))
    group = usual if group is None else group
    if kind[:1] in "ui" and kind[1:] in tuple("2345678"):
        packed = quantize_integers(weights, kind, 128 if group is None else group)
    elif kind == "nf4":
        block = 64 if group is None else group
        codes, scales = ops.quantize_nf4(weights, block)
        packed = PackedWeight(codes, scales, None, f"nf4 {group_words(block)} scale f32")
    elif kind == "mxfp4":
        packed = PackedWeight(*ops.quantize_mxfp4(weights), None, "e2m1 g32 scale e8m0")
    elif kind == "fp8":
        packed = PackedWeight(*ops.quantize_fp8(weights), None, "e4m3 g128 scale f32")
    elif kind == "nvfp4":
        codes, scales, factor = ops.quantize_nvfp4(weights)
        packed = PackedWeight(codes, scales, None, "e2m1 g16 scale e4m3", factor)
    elif kind in ("nfl2", "nfl3", "nfl4", "nfl5"):
        codes, scales, factor = ops.quantize_nfl(weights, int(kind[3:]), codebook)
        packed = PackedWeight(codes, scales, None, f"{kind} g32 scale e4m4", factor, codebook)
    else:
        raise ValueError("kind: expected u2 to u8, i2 to i8, mxfp4, nvfp4, nf4, nfl2 to nfl5, fp8 "
                         f"or one of {', '.join(PROGRAM_NAMES)}, found {name!r}")
    return with_cols(packed, weights.shape[1])


def linear(x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None,
           residual: torch.Tensor | None = None, activation: str | None = None, *,
           in_turns: bool = False, alpha: float = 1.702, limit: float = 7.0,
           up_offset: float = 1.0) -> torch.Tensor:
    """activation(x [..., K] times the weights, transposed, + bias [N]) + residual.

    `activation` is relu, gelu (by tanh), or a gate that halves the outputs: silu_gate, gelu_gate,
    clamped_gate, which alpha, limit and up_offset are for. The first half of the outputs are the
    gate's and the second up's, or with `in_turns` they alternate.
    """
    return ops.linear(x, *weight, bias, residual, activation, in_turns, alpha, limit, up_offset)


def dequantize(weight: PackedWeight, dtype: torch.dtype = torch.float32,
               cols: int | None = None) -> torch.Tensor:
    """The weights as numbers [N, K]; `cols` is K where the format does not say it and a row does
    not end with its last byte."""
    return ops.dequantize(*weight, cols=cols, dtype=dtype)


def forget() -> None:
    """Lets go of the copies that operators keep of weights in the layouts of others."""
    _library.LIBRARY.subbyte_torch_forget()


def kept_bytes() -> int:
    """Bytes of those copies, and of the tensors in host memory that they are made of, which they
    keep alive."""
    return _library.LIBRARY.subbyte_torch_kept_bytes()
