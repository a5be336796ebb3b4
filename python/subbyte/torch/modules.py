"""Linear layers and experts that multiply with packed weights."""

from __future__ import annotations

from collections.abc import Callable

from typing import TYPE_CHECKING

import numpy
import torch

from .weights import PackedWeight, linear, with_cols

if TYPE_CHECKING:
    import subbyte

ops = torch.ops.subbyte
linear_op, experts_op = ops.linear.default, ops.routed_experts.default
NUMBERS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# What a checkpoint must not lose when a model becomes another type: these are no numbers of it.
TENSORS = ("codes", "scales", "zeros", "tensor_scale", "codebook", "input_order")


def tensor(array: numpy.ndarray) -> torch.Tensor:
    """A copy in memory of torch: an array may be a view of a file."""
    return torch.from_numpy(numpy.array(array))


def packed_weight(matrix: subbyte.Matrix) -> PackedWeight:
    """The tensors of a matrix for torch.ops.subbyte.linear."""
    words = matrix.format.split(" ")
    codes = tensor(matrix.codes)
    if len(words) == 1:
        return PackedWeight(codes.view(NUMBERS[words[0]]), None, None, matrix.format)
    if "rotation" in matrix.format or "rotated" in matrix.format:
        raise ValueError(f"{matrix!r}: rotated weights are no format of torch.ops.subbyte")
    scales = tensor(matrix.scales)
    scales = scales.view(NUMBERS.get(words[words.index("scale") + 1], torch.uint8))
    zeros = None
    if "zero" in words:
        zeros = tensor(matrix.zeros).view(getattr(torch, f"uint{words[-1][1:]}"))
    elif "offset" in words:
        zeros = tensor(matrix.zeros).view(NUMBERS[words[-1]])
    factor = matrix.tensor_scale
    order, book = matrix.input_order, matrix.codebook
    return with_cols(PackedWeight(
        codes, scales, zeros, matrix.format,
        None if factor == 1 else torch.tensor(factor, dtype=torch.float64),
        tensor(book) if book.size else None,
        tensor(order.view(numpy.int32)) if order.size else None), matrix.shape[1])


class Packed(torch.nn.Module):
    """A module whose tensors are moved to devices, and never become another type."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor],
               recurse: bool = True) -> torch.nn.Module:
        device = fn(torch.empty(0)).device
        for name, value in self._buffers.items():
            # The factor of a tensor stays on the CPU: the one number would be waited for.
            if value is not None and name != "tensor_scale":
                self._buffers[name] = value.to(device)
        return self

    def _hold(self, **tensors: torch.Tensor | None) -> None:
        for name, value in tensors.items():
            self.register_buffer(name, value, persistent=False)


class SubbyteLinear(Packed):
    """y = x W^T + bias; `weight` is what subbyte.torch.linear takes. Empty until fill()."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.format = ""

    def fill(self, weight: PackedWeight, bias: torch.Tensor | None) -> None:
        if weight.codes.shape[0] != self.out_features:
            raise ValueError(f"codes: expected {self.out_features} outputs, found "
                             f"{list(weight.codes.shape)}")
        self.format = weight.format
        self._hold(bias=bias, **{name: getattr(weight, name) for name in TENSORS})

    @property
    def weight(self) -> PackedWeight:
        return PackedWeight(self.codes, self.scales, self.zeros, self.format, self.tensor_scale,
                            self.codebook, self.input_order)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = self._buffers  # as attributes they would take as long as the whole operator
        bias = held["bias"]
        if bias is not None and bias.dtype != x.dtype and x.is_cuda:
            bias = bias.to(x.dtype)
        return linear_op(x, held["codes"], held["scales"], held["zeros"], self.format,
                         held["tensor_scale"], held["codebook"], held["input_order"], bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.format!r}"


def stacked(weights: list[PackedWeight]) -> PackedWeight | None:
    """Tensors of all of them with one more dimension, or None where they cannot be one."""
    first = weights[0]
    if any(w.format != first.format or w.codebook is not None or w.input_order is not None
           for w in weights) or "scale" not in first.format or "offset" in first.format:
        return None
    factors = None
    if any(w.tensor_scale is not None for w in weights):
        one = torch.ones((), dtype=torch.float64)
        factors = torch.stack([one if w.tensor_scale is None else w.tensor_scale for w in weights])
    zeros = None if first.zeros is None else torch.stack([w.zeros for w in weights])
    return PackedWeight(torch.stack([w.codes for w in weights]),
                        torch.stack([w.scales for w in weights]), zeros, first.format, factors)


class SubbyteExperts(Packed):
    """Experts of a transformers model: called with tokens, the experts of each and their weights.

    Their matrices are one operator where they have one format; where some have an order of inputs
    or formats of their own they are multiplied expert by expert. `clamp` is alpha, limit and offset
    of gpt-oss's gate. Empty until fill().
    """

    def __init__(self, in_turns: bool, clamp: tuple[float, float, float] | None) -> None:
        super().__init__()
        self.in_turns, self.clamp = in_turns, clamp
        self.formats = ("", "")
        self.singles: list[list[SubbyteLinear]] = []

    def fill(self, gate_up: list[list[PackedWeight]], down: list[PackedWeight],
             gate_up_bias: torch.Tensor | None, down_bias: torch.Tensor | None) -> None:
        """gate_up has a matrix for each expert, or two: gate and up."""
        both = stacked([w for parts in gate_up for w in parts])
        last = stacked(down)
        if both is not None and last is not None:
            self._fill_stacks(both, len(gate_up[0]), last, gate_up_bias, down_bias)
            return
        for e, parts in enumerate(gate_up):
            biases = [None] * len(parts)
            if gate_up_bias is not None:
                biases = list(gate_up_bias[e].chunk(len(parts)))
            weights = [*zip(parts, biases), (down[e], None if down_bias is None else down_bias[e])]
            self.singles.append([self._single(f"{e}_{i}", *w) for i, w in enumerate(weights)])

    def _single(self, name: str, weight: PackedWeight, bias: torch.Tensor | None) -> SubbyteLinear:
        single = SubbyteLinear(0, weight.codes.shape[0])
        single.fill(weight, bias)
        self.add_module(name, single)
        return single

    def _fill_stacks(self, both: PackedWeight, parts: int, last: PackedWeight,
                     gate_up_bias: torch.Tensor | None, down_bias: torch.Tensor | None) -> None:
        def joined(t: torch.Tensor | None) -> torch.Tensor | None:
            """Gate and up of an expert as rows of one matrix."""
            return None if t is None else t.reshape(-1, parts * t.shape[1], *t.shape[2:])

        factors = both.tensor_scale
        if factors is not None and parts == 2:
            factors = factors.view(-1, 2)
        self.formats = (both.format, last.format)
        self._hold(gate_up_codes=joined(both.codes), gate_up_scales=joined(both.scales),
                   gate_up_zeros=joined(both.zeros), gate_up_factors=factors,
                   down_codes=last.codes, down_scales=last.scales, down_zeros=last.zeros,
                   down_factors=last.tensor_scale, gate_up_bias=gate_up_bias, down_bias=down_bias)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor],
               recurse: bool = True) -> torch.nn.Module:
        for child in self.children():
            child._apply(fn)
        return super()._apply(fn)

    def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                top_k_weights: torch.Tensor) -> torch.Tensor:
        if self.singles:
            return self._one_by_one(hidden_states, top_k_index, top_k_weights)
        alpha, limit, offset = self.clamp or (1.0, None, 0.0)
        held, formats = self._buffers, self.formats
        return experts_op(
            hidden_states, top_k_weights, top_k_index, held["gate_up_codes"],
            held["gate_up_scales"], held["gate_up_zeros"], formats[0], held["down_codes"],
            held["down_scales"], held["down_zeros"], formats[1], self.in_turns,
            held["gate_up_factors"], held["down_factors"], held["gate_up_bias"], held["down_bias"],
            alpha, limit, offset)

    def _products(self, expert: int) -> list[Callable[[torch.Tensor], torch.Tensor]]:
        """gate and up, or both in one, and down of an expert."""
        if self.singles:
            return list(self.singles[expert])
        parts = 2 if self.gate_up_factors is not None and self.gate_up_factors.dim() == 2 else 1

        def weight(prefix: str, fmt: str, part: int, parts: int) -> PackedWeight:
            def piece(name: str) -> torch.Tensor | None:
                whole = getattr(self, f"{prefix}_{name}")
                return None if whole is None else whole[expert].chunk(parts)[part]

            factors = getattr(self, f"{prefix}_factors")
            factor = None if factors is None else factors.view(-1, parts)[expert, part]
            return PackedWeight(piece("codes"), piece("scales"), piece("zeros"), fmt, factor)

        def product(prefix: str, fmt: str, part: int, parts: int):
            bias = getattr(self, f"{prefix}_bias")
            bias = None if bias is None else bias[expert].chunk(parts)[part]
            made = weight(prefix, fmt, part, parts)
            return lambda x: linear(x, made, None if bias is None else bias.to(x.dtype))

        return [*(product("gate_up", self.formats[0], i, parts) for i in range(parts)),
                product("down", self.formats[1], 0, 1)]

    def _one_by_one(self, x: torch.Tensor, index: torch.Tensor,
                    weights: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x, dtype=torch.float32)
        for expert in index.unique().tolist():
            token, place = torch.where(index == expert)
            *first, down = self._products(expert)
            sums = torch.cat([product(x[token]) for product in first], -1)
            gate, up = (sums[..., ::2], sums[..., 1::2]) if self.in_turns else sums.chunk(2, -1)
            alpha, limit, offset = self.clamp or (1.0, None, 0.0)
            if limit is not None:
                gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            inner = gate * torch.sigmoid(gate * alpha) * (up + offset)
            y.index_add_(0, token, down(inner).float() * weights[token, place, None].float())
        return y.to(x.dtype)
