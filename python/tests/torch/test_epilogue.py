"""Bias, residual, activations and gates of `linear`, against double precision."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import FLOATS, HALF_STEP, TorchTest, ops

ACTIVATIONS = (None, "relu", "gelu", "silu_gate", "gelu_gate", "clamped_gate")


def reference(sums, activation, in_turns, alpha, limit, up_offset):
    """The results in double precision, and how much an error of 1 in all sums can change them."""
    if activation is None:
        return sums, torch.ones_like(sums)
    if activation == "relu":
        return sums.clamp(min=0), torch.ones_like(sums)
    steepest = 1.13  # of gelu; of silu it is 1.1
    if activation == "gelu":
        return torch.nn.functional.gelu(sums, approximate="tanh"), torch.full_like(sums, steepest)
    gate, up = (sums[..., ::2], sums[..., 1::2]) if in_turns else sums.chunk(2, -1)
    if activation == "clamped_gate":
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit) + up_offset
        active = gate * torch.sigmoid(alpha * gate)
    elif activation == "gelu_gate":
        active = torch.nn.functional.gelu(gate, approximate="tanh")
    else:
        active = torch.nn.functional.silu(gate)
    return active * up, steepest * up.abs() + active.abs()


class Epilogue(TorchTest):
    def check(self, y, x, w, bias, residual, activation, in_turns, clamp):
        sums = x.double() @ w.T + bias.double()
        size = (x.double().abs() @ w.abs().T + bias.double().abs()).amax(-1, keepdim=True)
        exact, slope = reference(sums, activation, in_turns, *clamp)
        error = size * (2.0**-16 + (w.shape[1] + 40) * 2.0**-24)  # docs/kernels/accuracy.md
        bound = slope * error + exact.abs() * 2.0**-20
        if residual is not None:
            exact = exact + residual.double()
        bound = bound + exact.abs() * HALF_STEP[y.dtype] + 2.0**-24
        self.assertEqual((y.dtype, y.shape), (x.dtype, exact.shape))
        self.assertTrue(((y.double() - exact).abs() <= bound).all())

    def test_every_activation_every_type_any_batch(self):
        for kind in ("u4", "nvfp4", "i5"):
            packed = subbyte.torch.quantize(torch.randn(1100, 64) * 0.2, kind, 32 if kind[0] in "ui"
                                            else None)
            w = subbyte.torch.dequantize(packed).double()
            for activation in ACTIVATIONS:
                outputs = 550 if activation and activation.endswith("gate") else 1100
                for dtype in FLOATS:
                    for shape in ((64,), (0, 64), (2, 3, 64)):
                        for in_turns in (False, True):
                            with self.subTest(kind=kind, activation=activation, dtype=dtype,
                                              shape=shape, in_turns=in_turns):
                                x = torch.randn(shape).to(dtype)
                                bias = torch.randn(1100).to(dtype)
                                residual = torch.randn(*shape[:-1], outputs).to(dtype)
                                clamp = (1.5, 0.75, 0.5)
                                y = subbyte.torch.linear(
                                    x, packed, bias, residual, activation, in_turns=in_turns,
                                    alpha=clamp[0], limit=clamp[1], up_offset=clamp[2])
                                self.check(y, x, w, bias, residual, activation, in_turns, clamp)

    def test_is_the_plain_product_where_nothing_follows(self):
        packed = subbyte.torch.quantize(torch.randn(48, 64), "u4", 32)
        for dtype in FLOATS:
            x = torch.randn(5, 64).to(dtype)
            zeros = torch.zeros(5, 48, dtype=dtype)
            self.assertTrue(torch.equal(subbyte.torch.linear(x, packed, None, zeros),
                                        subbyte.torch.linear(x, packed)))

    def test_nan_stays(self):
        packed = subbyte.torch.quantize(torch.randn(48, 64), "u4", 32)
        x = torch.randn(2, 64)
        x[1, 3] = float("nan")
        for activation in ACTIVATIONS:
            y = subbyte.torch.linear(x, packed, None, None, activation)
            self.assertTrue(y[1].isnan().all())
            self.assertFalse(y[0].isnan().any())

    def test_writes_into_out_and_over_its_residual(self):
        packed = subbyte.torch.quantize(torch.randn(48, 64), "u4", 32)
        x, residual = torch.randn(3, 64), torch.randn(3, 24)
        want = subbyte.torch.linear(x, packed, None, residual, "silu_gate")
        ops.linear_out(x, *packed, None, residual, "silu_gate", out=residual)
        self.assertTrue(torch.equal(residual, want))

    def test_inference_and_autocast_change_nothing(self):
        packed = subbyte.torch.quantize(torch.randn(48, 64), "i5", 32)
        for dtype in FLOATS:
            x = torch.randn(3, 64).to(dtype)
            want = subbyte.torch.linear(x, packed, None, None, "gelu_gate")
            with torch.inference_mode():
                self.assertTrue(torch.equal(
                    subbyte.torch.linear(x, packed, None, None, "gelu_gate"), want))
            for kind in (torch.bfloat16, torch.float16):
                with torch.autocast("cpu", dtype=kind):
                    y = subbyte.torch.linear(x, packed, None, None, "gelu_gate")
                    # What autocast has made small is multiplied as it is.
                    small = subbyte.torch.linear(torch.ones(2, 3) @ torch.ones(3, 64), packed)
                self.assertTrue(torch.equal(y, want))
                self.assertEqual(small.dtype, kind)

    def test_refuses(self):
        p = subbyte.torch.quantize(torch.randn(15, 64), "u4", 32)
        x = torch.randn(2, 64)
        linear = subbyte.torch.linear
        self.assert_refused("activation: expected relu, gelu, silu_gate", linear, x, p, None, None,
                            "tanh")
        self.assert_refused("as many outputs of gate as of up, found 15 outputs", linear, x, p,
                            None, None, "silu_gate")
        self.assert_refused("residual: expected sizes [2, 15], found f32 [3, 15]", linear, x, p,
                            None, torch.randn(3, 15))
        self.assert_refused("residual: expected f32, found f16", linear, x, p, None,
                            torch.randn(2, 15).half())

    def test_opcheck_and_compile(self):
        packed = subbyte.torch.quantize(torch.randn(48, 64), "u4", 32)
        x, bias = torch.randn(2, 64), torch.randn(48)
        for activation, outputs in (("relu", 48), ("clamped_gate", 24)):
            residual = torch.randn(2, outputs)
            self.check_operator(ops.linear, x, *packed, bias, residual, activation)
            self.check_operator(ops.linear_out, x, *packed, bias, residual, activation,
                                out=torch.empty(2, outputs))
            compiled = torch.compile(
                lambda x, r=residual, a=activation: subbyte.torch.linear(x, packed, bias, r, a),
                fullgraph=True, backend="aot_eager")
            self.assertTrue(torch.equal(
                compiled(x), subbyte.torch.linear(x, packed, bias, residual, activation)))


if __name__ == "__main__":
    unittest.main()
