"""experts against a loop over tokens in double precision."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import FLOATS, TorchTest, ops

EXPERTS, HIDDEN, INNER = 6, 64, 32


def stack(kind: str, rows: int, cols: int):
    """Tensors of all experts, and their weights in double precision."""
    parts = [subbyte.torch.quantize(torch.randn(rows, cols) * 0.3, kind, 32 if kind[0] in "ui"
                                    else None) for _ in range(EXPERTS)]
    tensors = [None if parts[0][i] is None else torch.stack([part[i] for part in parts])
               for i in range(3)]
    factors = None
    if parts[0].tensor_scale is not None:
        factors = torch.stack([part.tensor_scale for part in parts])
    exact = torch.stack([subbyte.torch.dequantize(part).double() for part in parts])
    return [*tensors, parts[0].format], factors, exact


def reference(x, logits, gate_up, down, top_k, in_turns, of_all, bias, alpha, limit, up_offset):
    """One token and one expert at a time."""
    y = torch.zeros(x.shape, dtype=torch.float64)
    for t in range(x.shape[0]):
        chosen = torch.topk(logits[t], top_k).indices
        weights = torch.softmax(logits[t].double(), -1)[chosen]
        if not of_all:
            weights = torch.softmax(logits[t].double()[chosen], -1)
        for e, weight in zip(chosen.tolist(), weights, strict=True):
            both = gate_up[e] @ x[t].double() + bias[0][e].double()
            gate, up = (both[::2], both[1::2]) if in_turns else both.chunk(2)
            gate = gate.clamp(max=limit)
            up = up.clamp(-limit, limit)
            inner = gate * torch.sigmoid(alpha * gate) * (up + up_offset)
            y[t] += weight * (down[e] @ inner + bias[1][e].double())
    return y


class Experts(TorchTest):
    def test_formats_layouts_and_rules(self):
        for kind, in_turns, of_all, clamp in (
                ("u4", False, False, None), ("i4", True, True, None), ("i5", False, False, None),
                ("mxfp4", True, False, (1.702, 7.0, 1.0)), ("nvfp4", False, True, None),
                ("nf4", True, False, None)):
            gate_up, up_factors, w1 = stack(kind, 2 * INNER, HIDDEN)
            cols = INNER if kind != "nf4" else 64
            down, down_factors, w2 = stack(kind, HIDDEN, cols)
            if kind == "nf4":  # blocks of 64 do not fit an inner size of 32
                gate_up, up_factors, w1 = stack(kind, 128, HIDDEN)
            inner = w2.shape[2]
            bias = torch.randn(EXPERTS, 2 * inner) * 0.1, torch.randn(EXPERTS, HIDDEN) * 0.1
            alpha, limit, offset = clamp or (1.0, float("inf"), 0.0)
            for dtype in FLOATS:
                for tokens in (0, 1, 9):
                    with self.subTest(kind=kind, dtype=dtype, tokens=tokens):
                        x = torch.randn(tokens, HIDDEN).to(dtype)
                        logits = torch.randn(tokens, EXPERTS)
                        y = ops.experts(x, logits, *gate_up, *down, 2, in_turns, of_all,
                                        up_factors, down_factors, *bias, alpha,
                                        None if clamp is None else limit, offset)
                        want = reference(x, logits, w1, w2, 2, in_turns, of_all, bias, alpha,
                                         limit, offset)
                        self.assertEqual((y.dtype, y.shape), (dtype, x.shape))
                        # Sums in f32 (docs/kernels/accuracy.md) and one rounding of the result.
                        half = {torch.float32: 0, torch.float16: 2.0**-11,
                                torch.bfloat16: 2.0**-8}[dtype]
                        size = want.abs().max().item() if tokens else 0
                        error = (y.double() - want).abs() - half * want.abs()
                        self.assertTrue((error <= 2.0**-12 * size).all())

    def test_experts_that_are_chosen(self):
        """The same as with logits, and gate and up with factors of their own."""
        for kind in ("u4", "nvfp4"):
            gate_up, up_factors, w1 = stack(kind, 2 * INNER, HIDDEN)
            down, down_factors, w2 = stack(kind, HIDDEN, INNER)
            x, logits = torch.randn(7, HIDDEN), torch.randn(7, EXPERTS)
            best = torch.topk(logits, 2)
            weights = torch.softmax(best.values, -1)
            want = ops.experts(x, logits, *gate_up, *down, 2, False, False, up_factors,
                               down_factors)
            for ids in (best.indices, best.indices.int()):
                y = ops.routed_experts(x, weights, ids, *gate_up, *down, False, up_factors,
                                       down_factors)
                self.assertTrue(torch.allclose(y, want, rtol=1e-5, atol=1e-6))
            halves = torch.tensor([[1.0, 0.5]]).double() * torch.ones(EXPERTS, 1)
            if up_factors is not None:
                halves = halves * up_factors.view(-1, 1)
            y = ops.routed_experts(x, weights, best.indices, *gate_up, *down, False, halves,
                                   down_factors)
            w1[:, INNER:] *= 0.5
            bias = torch.zeros(EXPERTS, 2 * INNER), torch.zeros(EXPERTS, HIDDEN)
            want = reference(x, logits, w1, w2, 2, False, False, bias, 1.0, float("inf"), 0.0)
            self.assertTrue(((y - want).abs() <= 2.0**-12 * want.abs().max()).all())
        arguments = (x, weights, best.indices, *gate_up, *down, False, up_factors, down_factors)
        self.check_operator(ops.routed_experts, *arguments)
        out = torch.empty_like(x)
        ops.routed_experts_out(*arguments, out=out)
        self.assertTrue(torch.equal(out, ops.routed_experts(*arguments)))
        wrong = best.indices.clone()
        wrong[3, 1] = EXPERTS
        self.assert_refused("expert_ids: expected experts below 6, found 6", ops.routed_experts, x,
                            weights, wrong, *gate_up, *down)
        self.assert_refused("expert_ids: expected sizes [7, 2]", ops.routed_experts, x, weights,
                            wrong[:, :1], *gate_up, *down)

    def test_factors_are_of_each_call(self):
        """Copies of weights that no kernel reads hold none, and so need not be made anew."""
        for kind, group in (("u4", 32), ("u5", 32), ("i6", 16), ("u7", 32), ("u4", 20)):
            hidden = inner = 64 if group != 20 else 60
            def stacked(rows, cols):
                parts = [subbyte.torch.quantize(torch.randn(rows, cols), kind, group)
                         for _ in range(EXPERTS)]
                return [None if parts[0][i] is None else torch.stack([p[i] for p in parts])
                        for i in range(3)] + [parts[0].format]
            gate_up, down = stacked(2 * inner, hidden), stacked(hidden, inner)
            x, logits = torch.randn(3, hidden), torch.randn(3, EXPERTS)

            def call(up, last):
                return ops.experts(x, logits, *gate_up, *down, 2, gate_up_factors=up,
                                   down_factors=last)

            one, three = torch.ones(EXPERTS), torch.full((EXPERTS,), 3.0)
            found = [call(one, one), call(three, one), call(three, three), call(None, None)]
            kept = subbyte.torch.kept_bytes()
            three.mul_(2)
            found.append(call(three, one))
            self.assertEqual(subbyte.torch.kept_bytes(), kept)
            for y, factors in zip(found, ((1, 1), (3, 1), (3, 3), (1, 1), (6, 1)), strict=True):
                subbyte.torch.forget()
                want = call(*(torch.full((EXPERTS,), float(f)) for f in factors))
                self.assertTrue(torch.equal(y, want), (kind, factors))

    def test_refuses_and_opcheck(self):
        gate_up, _, _ = stack("u4", 2 * INNER, HIDDEN)
        down, _, _ = stack("u4", HIDDEN, INNER)
        x, logits = torch.randn(3, HIDDEN), torch.randn(3, EXPERTS)
        self.assert_refused("top_k: expected 1 to 6, found 7", ops.experts, x, logits, *gate_up,
                            *down, 7)
        self.assert_refused("router_logits: expected sizes [3, 6]", ops.experts, x,
                            torch.randn(2, EXPERTS), *gate_up, *down, 2)
        self.assert_refused("down_codes: expected sizes [6, 64, 16]", ops.experts, x, logits,
                            *gate_up, down[0][:, :, :8], *down[1:], 2)
        self.check_operator(ops.experts, x, logits, *gate_up, *down, 2)


if __name__ == "__main__":
    unittest.main()
