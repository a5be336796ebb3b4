"""Layers of GPTQModel with our int4 products in the place of aten's."""

from __future__ import annotations

import copy
import importlib.util
import unittest

import torch

import subbyte.torch
from support import TorchTest
from test_layouts import gptq_words, to_words

K, N, GROUP = 256, 64, 64


@unittest.skipUnless(importlib.util.find_spec("gptqmodel"), "no GPTQModel in this environment")
class Layers(TorchTest):
    def layer(self, kind, order: bool):
        """One with act-order or without, and its weights [K, N] in double precision."""
        groups = torch.arange(K) // GROUP
        if order:
            groups = groups[torch.randperm(K)]
        q, zeros = torch.randint(0, 16, (K, N)), torch.randint(0, 16, (K // GROUP, N))
        scales = (torch.rand(K // GROUP, N) * 0.1 + 0.01).half()
        made = kind(bits=4, group_size=GROUP, sym=False, desc_act=order, in_features=K,
                    out_features=N, bias=False, register_buffers=True)
        made.qweight, made.scales = gptq_words(q, 4), scales
        made.qzeros = to_words(zeros.view(K // GROUP, N // 8, 8), 4)
        made.g_idx = groups.to(torch.int32)
        made.post_init()
        w = (q.double() - zeros.double()[groups]) * scales.double()[groups]
        return made.eval(), w

    def events(self, call) -> tuple[torch.Tensor, set[str]]:
        with torch.profiler.profile() as profile, torch.inference_mode():
            y = call()
        return y, {event.key for event in profile.key_averages()}

    def test_products_are_ours_and_right(self):
        from gptqmodel.nn_modules.qlinear.torch_aten_kernel import TorchAtenLinear
        name = "subbyte::_weight_int4pack_mm_for_cpu"
        for order in (False, True):
            for tokens in (1, 5):
                with self.subTest(order=order, tokens=tokens):
                    layer, w = self.layer(TorchAtenLinear, order)
                    theirs = copy.deepcopy(layer)
                    x = torch.randn(tokens, K).half()
                    with subbyte.torch.Int4OfAten():
                        y, names = self.events(lambda: layer(x))
                    self.assertIn(name, names)
                    want, names = self.events(lambda: theirs(x))
                    self.assertNotIn(name, names)
                    exact = x.double() @ w
                    size = x.double().abs() @ w.abs() + 1
                    # Offsets (8 - zero) s are rounded to f16, in both.
                    self.assertTrue(((y.double() - exact).abs() <= 2.0**-9 * size).all())
                    self.assertTrue(((y - want).double().abs() <= 2.0**-9 * size).all())

    def test_the_fused_layer_runs(self):
        from gptqmodel.nn_modules.qlinear.torch_fused import TorchFusedLinear
        layer, _ = self.layer(TorchFusedLinear, False)
        theirs = copy.deepcopy(layer)
        x = torch.randn(3, K).bfloat16()
        with subbyte.torch.Int4OfAten():
            y, names = self.events(lambda: layer(x))
        want, _ = self.events(lambda: theirs(x))
        self.assertIn("subbyte::_weight_int4pack_mm_for_cpu", names)
        self.assertTrue(torch.allclose(y.float(), want.float(), rtol=2e-2, atol=0.1))


if __name__ == "__main__":
    unittest.main()
