"""Tensors of more than 2^31 elements on a GPU of NVIDIA."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import TorchTest, ops
from test_cuda import has_kernels, to_gpu


def has_memory(gigabytes: int) -> bool:
    return has_kernels() and torch.cuda.mem_get_info()[0] > gigabytes << 30


@unittest.skipUnless(has_memory(40), "no GPU with 40 GiB that are free")
class MoreThan31Bits(TorchTest):
    """Tensors of more than 2^31 elements, whose last rows are compared with the same alone."""

    ROWS, COLS = (1 << 18) + 64, 8192

    def tearDown(self) -> None:
        torch.cuda.empty_cache()

    def test_activations(self):
        weight = to_gpu(subbyte.torch.quantize(torch.randn(64, self.COLS) * 0.02, "u4"))
        x = torch.randn(self.ROWS, self.COLS, device="cuda", dtype=torch.bfloat16)
        y = subbyte.torch.linear(x, weight)
        off = (y[-256:] - subbyte.torch.linear(x[-256:].clone(), weight)).abs().max().item()
        self.assertLessEqual(off, 2.0**-6 * y[-256:].abs().max().item())
        for name, given in (("mxfp8_quantize", (False,)), ("mxfp4_quantize", ("cuda", None, 2))):
            whole = getattr(ops, name)(x, *given)
            last = getattr(ops, name)(x[-64:].clone(), *given)
            for a, b in zip(whole, last, strict=True):
                self.assertTrue(torch.equal(a.flatten().view(torch.uint8)[-b.numel():],
                                            b.flatten().view(torch.uint8)))
        tail = x[-64:].clone()
        ops.hadamard_rotate_full_(x, self.COLS)
        ops.hadamard_rotate_full_(tail, self.COLS)
        self.assertTrue(torch.equal(x[-64:], tail))

    def test_weights(self):
        book = torch.linspace(-1, 1, 16).cuda()
        w = torch.randn(self.ROWS, self.COLS, device="cuda", dtype=torch.bfloat16)
        packed, absmax = ops.quantize_kbit(w, book, 4)
        last = ops.quantize_kbit(w[-64:].clone(), book, 4)
        blocks = 64 * self.COLS // 32
        self.assertTrue(torch.equal(packed[-(blocks + 1) * 4:-4], last[0][:-4]))
        del w
        back = ops.dequantize_kbit(packed, book, absmax, 4, self.ROWS * self.COLS, torch.bfloat16)
        want = ops.dequantize_kbit(*last[:1], book, last[1], 4, 64 * self.COLS, torch.bfloat16)
        self.assertTrue(torch.equal(back[-want.numel():], want))
        del back, packed
        codes = torch.randint(0, 256, (self.ROWS, self.COLS // 2), dtype=torch.uint8,
                              device="cuda")
        scales = torch.rand(self.ROWS, self.COLS // 128, device="cuda").half()
        whole = subbyte.torch.dequantize(subbyte.torch.PackedWeight(
            codes, scales, None, "i4 g128 scale f16"), torch.bfloat16)
        tail = subbyte.torch.dequantize(subbyte.torch.PackedWeight(
            codes[-64:].clone(), scales[-64:].clone(), None, "i4 g128 scale f16"), torch.bfloat16)
        self.assertTrue(torch.equal(whole[-64:], tail))


if __name__ == "__main__":
    unittest.main()
