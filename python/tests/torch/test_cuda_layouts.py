"""Weights and scales of other software on a GPU of NVIDIA: the bits of the CPU."""

from __future__ import annotations

import unittest

import torch

from support import FLOATS, TorchTest, moved, ops
from test_cuda import has_kernels


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class Layouts(TorchTest):
    def test_nibbles(self):
        for kind in ("nf4", "fp4"):
            for dtype in FLOATS:
                for shape in ((0,), (1,), (5, 7), (129,), (40, 4096)):
                    for blocksize in (32, 64, 4096):
                        with self.subTest(kind=kind, dtype=dtype, shape=shape, size=blocksize):
                            x = (torch.randn(shape) * 3).to(dtype)
                            x.view(-1)[:2] = 0
                            given = (x, blocksize, kind, torch.uint8)
                            self.assert_same_as_the_cpu(ops.quantize_4bit, *given)
                            packed, absmax = ops.quantize_4bit(*given)
                            back = (packed, absmax, blocksize, kind, list(shape), dtype)
                            self.assert_same_as_the_cpu(ops.dequantize_4bit, *back)

    def test_nibbles_with_nothing_but_zeros_or_with_nan(self):
        x = torch.zeros(3, 64)
        x[1, 5] = float("nan")
        x[2, 7] = 1e-40
        given = (x.flatten()[:-3], 64, "nf4", torch.uint8)
        for found, want in zip(ops.quantize_4bit(*moved(given)), ops.quantize_4bit(*given),
                               strict=True):
            self.assertTrue(torch.allclose(found.cpu(), want, rtol=0, atol=0, equal_nan=True))

    def test_nibbles_to_and_from_odd_addresses(self):
        packed, absmax = moved(ops.quantize_4bit(torch.randn(512), 64, "nf4", torch.uint8))
        memory = torch.zeros(257, dtype=torch.uint8).cuda()
        memory[1:] = packed.flatten()
        want = ops.dequantize_4bit(packed, absmax, 64, "nf4", [512], torch.float16)
        out = torch.zeros(513).half().cuda()
        ops.dequantize_4bit.out(memory[1:].view(-1, 1), absmax, 64, "nf4", [512], torch.float16,
                                out[1:])
        self.assertTrue(torch.equal(out[1:], want) and out[0] == 0)
        self.assert_refused("absmax: expected a tensor on the device of the others",
                            ops.dequantize_4bit, packed, absmax.cpu(), 64, "nf4", [512],
                            torch.float16)

    def test_scales(self):
        for shape in ((0, 4), (1, 1), (5, 6), (130, 12), (3, 129, 5)):
            for dtype in (torch.uint8, torch.bfloat16):
                with self.subTest(shape=shape, dtype=dtype):
                    x = torch.randint(1, 255, shape).to(dtype)
                    self.assert_same_as_the_cpu(ops.block_scale_interleave, x)
                    want = ops.block_scale_interleave(x)
                    out = torch.full_like(want, 7).cuda()
                    ops.block_scale_interleave_out(x.cuda(), out=out)
                    self.assert_same(out, want)

    def test_fp4(self):
        x = torch.randn(70, 96)
        factor = torch.tensor([0.3])
        for layout in (0, 1, 2):
            given = ops.mxfp4_quantize(x, sfLayout=layout)
            self.assert_same_as_the_cpu(ops.mxfp4_dequantize, *given, layout)
            swizzled, eight = layout != 2, layout == 1
            codes, scales = ops.nvfp4_quantize(x, 1 / factor, layout)
            back = ops.e2m1_and_ufp8sf_scale_to_float
            self.assert_same_as_the_cpu(back, codes, scales, factor, 16, 1, swizzled, eight)
            self.assert_same_as_the_cpu(back, *given, None, 32, 0, swizzled, eight)
        memory = torch.zeros(codes.numel() + 1, dtype=torch.uint8).cuda()
        memory[1:] = codes.flatten()
        found = back(memory[1:].view(codes.shape), scales.cuda(), factor.cuda(), 16, 1, False)
        self.assert_same(found, back(codes, scales, factor, 16, 1, False))

    def test_awq(self):
        for dtype in (torch.float16, torch.bfloat16):
            for k, n, groups in ((64, 8, 1), (256, 136, 4)):
                with self.subTest(dtype=dtype, k=k, n=n):
                    words = torch.randint(-2**31, 2**31 - 1, (k, n // 8), dtype=torch.int32)
                    zeros = torch.randint(-2**31, 2**31 - 1, (groups, n // 8), dtype=torch.int32)
                    scales = torch.randn(groups, n).to(dtype)
                    self.assert_same_as_the_cpu(ops.awq_dequantize, words, scales, zeros, 0, 0, 0)

    def test_graphs(self):
        packed, absmax = moved(ops.quantize_4bit(torch.randn(512), 64, "nf4", torch.uint8))
        codes, scales = moved(ops.mxfp4_quantize(torch.randn(70, 96)))
        words = torch.randint(-9, 9, (64, 8), dtype=torch.int32).cuda()
        for function, arguments in (
                (ops.quantize_4bit, (torch.randn(100).cuda(), 64, "fp4", torch.uint8)),
                (ops.dequantize_4bit, (packed, absmax, 64, "nf4", [512], torch.float16)),
                (ops.mxfp4_dequantize, (codes, scales)),
                (ops.block_scale_interleave, (scales.view(-1, 4),)),
                (ops.awq_dequantize, (words, torch.rand(1, 64).half().cuda(), words[:1], 0, 0, 0))):
            with self.subTest(function=str(function)):
                self.assert_same_in_a_graph(function, *arguments)


if __name__ == "__main__":
    unittest.main()
