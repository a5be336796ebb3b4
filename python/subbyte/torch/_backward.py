"""Gradients of products: grad W for x, and sums of grad for a bias.

Weights become numbers in pieces, so that a backward pass takes no more memory than one of these. On
CPUs they are f32, as sums are; on GPUs they have the type of x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ._formats import is_dense

ops = torch.ops.subbyte
aten = torch.ops.aten
PIECE = 1 << 24  # numbers of a piece


class Call(NamedTuple):
    """A backward pass: the gradient of the result, K, the operands of which gradients are asked
    for, and all arguments by name, without x and residual where the rule does not keep them."""

    grad: torch.Tensor
    cols: int
    wanted: list[str]
    given: object

    @property
    def rows(self) -> torch.Tensor:
        """grad as [M, N]."""
        return self.grad.reshape(-1, self.grad.shape[-1])

    def wants(self, name: str) -> bool:
        return name in self.wanted


def number_of(grad: torch.Tensor) -> torch.dtype:
    """The type in which gradients are multiplied."""
    return torch.float32 if grad.device.type == "cpu" else grad.dtype


def by_rows(grad: torch.Tensor, cols: int, piece: Callable[[int, int], torch.Tensor],
            multiple: int = 1) -> torch.Tensor:
    """grad [M, N] times W [N, cols], of which piece(first, last) makes some rows; rows of all
    pieces but the last are a multiple of `multiple`."""
    number, rows = number_of(grad), grad.shape[1]
    step = max(PIECE // max(cols, 1) // multiple, 1) * multiple
    total = None
    for first in range(0, rows, step):
        last = min(first + step, rows)
        part = (grad[:, first:last].to(number) @ piece(first, last).to(number)).float()
        total = part if total is None else total.add_(part)
    return grad.new_zeros((grad.shape[0], cols)) if total is None else total


def by_cols(grad: torch.Tensor, cols: int, product: Callable[[torch.Tensor], torch.Tensor],
            ) -> torch.Tensor:
    """The same where an operator has its weights in no other way: its products with rows of the
    unit matrix are columns of W. It costs as much as a product with `cols` rows."""
    number = number_of(grad)
    step = max(PIECE // max(cols, grad.shape[1], 1), 1)
    total = torch.empty((grad.shape[0], cols), dtype=number, device=grad.device)
    for first in range(0, cols, step):
        last = min(first + step, cols)
        unit = grad.new_zeros((last - first, cols))
        unit[:, first:last].fill_diagonal_(1)
        total[:, first:last] = grad.to(number) @ product(unit).to(number).T
    return total


def bias_of(sums: torch.Tensor) -> torch.Tensor:
    return sums.sum(0, dtype=torch.float32)


# ---- linear ----


def dense(codes: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
    numbers = codes.float()
    return numbers if factor is None else numbers * factor.to(numbers)


def times_weights(grad: torch.Tensor, cols: int, w: object) -> torch.Tensor:
    """grad [M, N] times the weights of linear's arguments."""
    number = number_of(grad)

    def piece(first: int, last: int) -> torch.Tensor:
        if is_dense(w.format):
            return dense(w.codes[first:last], w.tensor_scale)
        parts = [None if t is None else t[first:last] for t in (w.codes, w.scales, w.zeros)]
        return ops.dequantize(*parts, w.format, w.tensor_scale, w.codebook, None, cols=cols,
                              dtype=number)

    # Rows in 64s leave the addresses of pieces as even as those of the whole.
    stored = by_rows(grad, cols, piece, 64)
    if w.input_order is None:
        return stored
    return torch.empty_like(stored).index_copy_(1, w.input_order.long(), stored)


def split(sums: torch.Tensor, in_turns: bool) -> tuple[torch.Tensor, ...]:
    """Gate and up."""
    return (sums[:, ::2], sums[:, 1::2]) if in_turns else sums.chunk(2, -1)


def joined(gate: torch.Tensor, up: torch.Tensor, in_turns: bool) -> torch.Tensor:
    return torch.stack((gate, up), -1).flatten(-2) if in_turns else torch.cat((gate, up), -1)


def clamped_gate(sums: torch.Tensor, in_turns: bool, alpha: float, limit: float,
                 up_offset: float) -> torch.Tensor:
    gate, up = split(sums, in_turns)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + up_offset)


def through_clamped_gate(grad: torch.Tensor, sums: torch.Tensor, in_turns: bool, alpha: float,
                         limit: float, up_offset: float) -> torch.Tensor:
    """The gradient of sums for that of clamped_gate."""
    gate, up = split(sums, in_turns)
    low, inner = gate.clamp(max=limit), up.clamp(-limit, limit) + up_offset
    sigmoid = torch.sigmoid(alpha * low)
    slope = sigmoid * (1 + alpha * low * (1 - sigmoid))
    return joined(grad * inner * slope * (gate <= limit),
                  grad * low * sigmoid * (up.abs() <= limit), in_turns)


def through_activation(grad: torch.Tensor, sums: torch.Tensor, given: object) -> torch.Tensor:
    """The gradient of the sums of a product for that of what linear makes of them."""
    grad, sums, name = grad.float(), sums.float(), given.activation
    if name == "relu":
        return grad * (sums > 0)
    if name == "gelu":
        return aten.gelu_backward(grad, sums, approximate="tanh")
    if name == "clamped_gate":
        return through_clamped_gate(grad, sums, given.in_turns, given.alpha, given.limit,
                                    given.up_offset)
    gate, up = split(sums, given.in_turns)
    if name == "silu_gate":
        return joined(aten.silu_backward(grad * up, gate), grad * aten.silu(gate), given.in_turns)
    return joined(aten.gelu_backward(grad * up, gate, approximate="tanh"),
                  grad * aten.gelu(gate, approximate="tanh"), given.in_turns)


def linear(call: Call) -> dict[str, torch.Tensor]:
    w, grad = call.given, call.rows
    if w.activation is not None:
        # The sums are computed once more, on CPUs in f32, as the activation had them.
        x = w.x.reshape(-1, call.cols).to(number_of(w.x))
        sums = ops.linear(x, w.codes, w.scales, w.zeros, w.format, w.tensor_scale, w.codebook,
                          w.input_order, w.bias)
        grad = through_activation(grad, sums, w).to(number_of(grad))
    found = {}
    if call.wants("x"):
        found["x"] = times_weights(grad, call.cols, w)
    if call.wants("bias"):
        found["bias"] = bias_of(grad)
    return found


# ---- bitsandbytes ----


def nested_scales(w: object) -> torch.Tensor:
    if w.absmax_8bit is None:
        return w.absmax
    codes = w.absmax_8bit.reshape(-1)
    wide = w.absmax.reshape(-1).repeat_interleave(256)[:codes.numel()]
    return w.absmax_code.reshape(-1)[codes.long()] * wide + w.absmax_offset


def gemm_4bit(call: Call) -> dict[str, torch.Tensor]:
    w, cols = call.given, call.cols
    found = {"bias": bias_of(call.rows)} if call.wants("bias") else {}
    if not call.wants("A"):
        return found
    codes, scales = w.B.reshape(-1).view(torch.uint8), nested_scales(w).reshape(-1)
    number = number_of(call.grad)

    def piece(first: int, last: int) -> torch.Tensor:
        begin, end = first * cols, last * cols
        return ops.dequantize_4bit(
            codes[begin // 2:(end + 1) // 2],
            scales[begin // w.blocksize:(end + w.blocksize - 1) // w.blocksize], w.blocksize,
            w.quant_type, [last - first, cols], number)

    # Pieces begin where a block does, and where a byte does, as blocks are even.
    return {**found, "A": by_rows(call.rows, cols, piece, w.blocksize)}


def gemv_4bit(call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return {"A": by_cols(call.rows, call.cols, lambda unit: ops.gemv_4bit(
        unit, w.B, w.shapeB, w.absmax, w.code, w.blocksize))}


def flat(call: Call, dequantize: Callable[..., torch.Tensor], k: int) -> dict[str, torch.Tensor]:
    w, size = call.given, call.given.N * call.cols
    numbers = dequantize(w.B_packed, w.codebook, w.B_absmax, k, size, number_of(call.grad))[:size]
    return {"A": by_rows(call.rows, call.cols,
                         lambda first, last: numbers.view(w.N, call.cols)[first:last])}


def kbit_flat(call: Call) -> dict[str, torch.Tensor]:
    return flat(call, ops.dequantize_kbit, call.given.k)


def vq_flat(call: Call) -> dict[str, torch.Tensor]:
    return flat(call, ops.dequantize_vq, call.given.p)


def kbit_tiled(call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return {"A": by_cols(call.rows, call.cols, lambda unit: ops.kbit_gemm_prod(
        unit, w.B_packed, w.B_absmax, w.codebook, w.K_dim, w.N, w.k, 1))}


def vq_tiled(call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return {"A": by_cols(call.rows, call.cols, lambda unit: ops.vq_gemm_prod(
        unit, w.B_packed, w.B_absmax, w.codebook, w.K_dim, w.N, w.p, 1))}


def kbit_grouped(call: Call) -> dict[str, torch.Tensor]:
    """Rows of each expert times its own weights; codes of a matrix end with an empty block."""
    w, grad = call.given, call.rows
    blocks = (w.K_dim + 63) // 64 * 2 * w.N
    offsets = w.expert_offsets.tolist()
    total = torch.zeros((grad.shape[0], call.cols), dtype=number_of(grad), device=grad.device)
    for e, (first, last) in enumerate(zip(offsets, offsets[1:], strict=False)):
        if first == last:
            continue
        packed, absmax = (
            torch.cat((t[e * blocks * size:(e + 1) * blocks * size], t.new_zeros(size)))
            for t, size in ((w.B_packed_all, w.k), (w.B_absmax_all, 1)))
        total[first:last] = by_cols(grad[first:last], call.cols, lambda unit: ops.kbit_gemm_prod(
            unit, packed, absmax, w.codebook, w.K_dim, w.N, w.k, 1))
    return {"A_concat": total}


# ---- words of AWQ, Marlin and aten ----


def awq_gemm(call: Call) -> dict[str, torch.Tensor]:
    """Words are rows of inputs, so pieces are columns of the gradient."""
    w, grad, number = call.given, call.rows, number_of(call.grad)
    group = call.cols // w.scales.shape[0]
    step = max(PIECE // grad.shape[1] // group, 1) * group
    total = torch.empty((grad.shape[0], call.cols), dtype=number, device=grad.device)
    for first in range(0, call.cols, step):
        last = min(first + step, call.cols)
        groups = slice(first // group, last // group)
        columns = ops.awq_dequantize(w.qweight[first:last], w.scales[groups], w.qzeros[groups], 0,
                                     0, 0)
        total[:, first:last] = grad.to(number) @ columns.to(number).T
    return {"input": total}


def marlin(call: Call, product: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
    """product(a, bias) is the operator with the weights of the call."""
    found = {}
    if call.wants("a"):
        found["a"] = by_cols(call.rows, call.cols, lambda unit: product(unit, None))
    if call.wants("b_bias"):
        # A bias is permuted as scales are: the operator says where each number goes.
        bias, sums = call.given.b_bias, bias_of(call.rows)
        places = torch.arange(sums.numel(), device=bias.device).reshape(bias.shape)
        zero, place = call.grad.new_zeros((1, call.cols)), torch.zeros_like(sums, dtype=torch.long)
        for shift in (16, 8, 0):  # numbers below 256 are themselves in 16 bits
            digits = product(zero, (places >> shift & 255).to(bias.dtype))
            place = place << 8 | digits.reshape(-1).long()
        found["b_bias"] = torch.empty_like(sums).index_copy_(0, place, sums)
    return found


def marlin_gemm(call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return marlin(call, lambda a, bias: ops.marlin_gemm(
        a, None, w.b_q_weight, bias, w.b_scales, None, w.global_scale, w.b_zeros, None, w.b_q_type,
        a.shape[0], w.size_n, w.size_k, is_zp_float=w.is_zp_float))


def gptq_marlin_gemm(call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return marlin(call, lambda a, bias: ops.gptq_marlin_gemm(
        a, None, w.b_q_weight, bias, w.b_scales, w.global_scale, w.b_zeros, w.g_idx, w.perm, None,
        w.b_q_type, a.shape[0], w.size_n, w.size_k, is_zp_float=w.is_zp_float))


def int4_by(product: Callable[..., torch.Tensor], call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return {"self": by_cols(call.rows, call.cols, lambda unit: product(
        unit, w.mat2, w.qGroupSize, w.qScaleAndZeros))}


def int4_for_cpu(call: Call) -> dict[str, torch.Tensor]:
    return int4_by(ops._weight_int4pack_mm_for_cpu, call)


def int4(call: Call) -> dict[str, torch.Tensor]:
    return int4_by(ops._weight_int4pack_mm, call)


def int4_with_zeros(call: Call) -> dict[str, torch.Tensor]:
    w = call.given
    return {"self": by_cols(
        call.rows, call.cols, lambda unit: ops._weight_int4pack_mm_with_scales_and_zeros(
            unit, w.mat2, w.qGroupSize, w.qScale, w.qZeros))}
