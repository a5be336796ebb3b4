"""Packed weights as one object, for programs that do not want to carry six tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import _library
from ._formats import bits_of, canonical, group_of, is_dense

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


def with_cols(weight: PackedWeight, cols: int) -> PackedWeight:
    """The weight with its number of columns in the format, where bytes of a row do not tell it."""
    row, bits = weight.codes.shape[1], bits_of(weight.format)
    held = row * 8 // bits
    is_told = row * 8 % bits == 0 or ((held - 1) * bits + 7) // 8 < row
    if is_dense(weight.format) or (is_told and held == cols):
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
    """Quantizes [N, K] to nearest, to a format by any name of it (docs/quantize.md).

    `kind` is an element (u2 to u8, i2 to i8, nfl2 to nfl5), a name of `subbyte quantize --format`
    (awq, gptq, mxfp4, nvfp4, nf4, fp8, kbit4), or the canonical text ("u4 g128 scale f16 zero u8").
    `group` is how many inputs of integers and nf4 share a scale, 0 the whole row; without it, it is
    what the format usually has, halved until it divides the inputs. `codebook` is for nfl2 to nfl5.
    """
    weights = weights.detach()  # what is quantized is constant
    words = canonical(kind, weights.shape[-1] if weights.dim() else 0)
    if " " in kind and group not in (None, group_of(words)):
        raise ValueError(f"group: expected that of {kind!r}, or none, found {group}")
    group = group_of(words) if group is None else group
    element, scale = words.split(" ")[0], words.partition(" scale ")[2].split(" ")[0]
    if element[0] in "ui":
        packed = quantize_integers(weights, element, group)
    elif element == "nf4":
        codes, scales = ops.quantize_nf4(weights, group)
        packed = PackedWeight(codes, scales, None, f"nf4 {group_words(group)} scale f32")
    elif (element, scale) == ("e2m1", "e8m0"):
        packed = PackedWeight(*ops.quantize_mxfp4(weights), None, words)
    elif (element, scale) == ("e2m1", "e4m3"):
        codes, scales, factor = ops.quantize_nvfp4(weights)
        packed = PackedWeight(codes, scales, None, words, factor)
    elif element == "e4m3":
        packed = PackedWeight(*ops.quantize_fp8(weights), None, words)
    elif element.startswith("nfl"):
        codes, scales, factor = ops.quantize_nfl(weights, int(element[3:]), codebook)
        packed = PackedWeight(codes, scales, None, words, factor, codebook)
    else:
        raise ValueError(f"kind: expected a format that is not rotated, found {kind!r}")
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
