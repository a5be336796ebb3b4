"""Operators on a GPU of NVIDIA beside the same on the CPU, which other tests compare."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import TorchTest, ops


def has_kernels() -> bool:
    return torch.cuda.is_available() and torch._C._dispatch_has_kernel_for_dispatch_key(
        "subbyte::linear", "CUDA")


def to_gpu(weight: subbyte.torch.PackedWeight) -> subbyte.torch.PackedWeight:
    """All tensors but the factor of the tensor, which may stay where it is."""
    return subbyte.torch.PackedWeight(*(
        value.cuda() if isinstance(value, torch.Tensor) and name != "tensor_scale" else value
        for name, value in weight._asdict().items()))


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class Cuda(TorchTest):
    def test_dequantize(self):
        for kind in ("u4", "i4", "u8", "mxfp4", "nvfp4", "nf4", "nfl3", "fp8"):
            weight = subbyte.torch.quantize(torch.randn(64, 256), kind)
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                with self.subTest(kind=kind, dtype=dtype):
                    found = subbyte.torch.dequantize(to_gpu(weight), dtype)
                    self.assertTrue(found.is_cuda)
                    self.assertTrue(torch.equal(found.cpu(),
                                                subbyte.torch.dequantize(weight, dtype)))

    def test_quantize(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = (torch.randn(130, 256) * 4).to(dtype)
            factor = (448 * 6 / x.float().abs().max()).view(1)
            for layout in (0, 1, 2):
                for name, given in (("mxfp8_quantize", (None, "cuda", layout)),
                                    ("mxfp4_quantize", ("cuda", None, layout)),
                                    ("nvfp4_quantize", (factor, layout))):
                    with self.subTest(name=name, dtype=dtype, layout=layout):
                        if name == "mxfp8_quantize":
                            given = (True, 32, *given)
                        function = getattr(ops, name)
                        want = function(x, *given)
                        moved = [g.cuda() if isinstance(g, torch.Tensor) else g for g in given]
                        found = function(x.cuda(), *moved)
                        for a, b in zip(found, want, strict=True):
                            self.assertTrue(torch.equal(a.cpu().view(torch.uint8),
                                                        b.view(torch.uint8)))

    def test_linear(self):
        for kind in ("u4", "i4", "mxfp4", "nvfp4", "nf4", "nfl3"):
            weight = subbyte.torch.quantize(torch.randn(256, 512) * 0.05, kind)
            gpu = to_gpu(weight)
            exact = subbyte.torch.dequantize(weight).double()
            for dtype, half in ((torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)):
                for shape in ((512,), (0, 512), (1, 512), (2, 3, 512), (100, 512)):
                    with self.subTest(kind=kind, dtype=dtype, shape=shape):
                        x, bias = torch.randn(shape).to(dtype), torch.randn(256).to(dtype)
                        y = subbyte.torch.linear(x.cuda(), gpu, bias.cuda())
                        self.assertEqual((y.dtype, tuple(y.shape[:-1])), (dtype, shape[:-1]))
                        want = x.double() @ exact.T + bias.double()
                        size = x.double().abs() @ exact.abs().T
                        # Weights may be rounded to the type of the activations, twice.
                        bound = 2 * half * size + half * want.abs() + 1e-6
                        self.assertTrue(((y.cpu().double() - want).abs() <= bound).all())

    def test_epilogues(self):
        """Beside the CPU in f32; sums are rounded to the type of x before an activation."""
        weight = subbyte.torch.quantize(torch.randn(256, 512) * 0.05, "u4")
        gpu = to_gpu(weight)
        for dtype, half in ((torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)):
            for activation in (None, "relu", "gelu", "silu_gate", "gelu_gate", "clamped_gate"):
                for in_turns in (False, True):
                    with self.subTest(dtype=dtype, activation=activation, in_turns=in_turns):
                        outputs = 128 if activation and activation.endswith("gate") else 256
                        x, bias = torch.randn(3, 512).to(dtype), torch.randn(256).to(dtype)
                        residual = torch.randn(3, outputs).to(dtype)
                        y = subbyte.torch.linear(x.cuda(), gpu, bias.cuda(), residual.cuda(),
                                                 activation, in_turns=in_turns)
                        want = subbyte.torch.linear(x.float(), weight, bias.float(),
                                                    residual.float(), activation,
                                                    in_turns=in_turns)
                        w = subbyte.torch.dequantize(weight)
                        size = (x.float().abs() @ w.abs().T).max() + 4
                        bound = 8 * half * size * (1 + size if outputs == 128 else 1)
                        self.assertEqual((y.dtype, y.shape), (dtype, want.shape))
                        self.assertTrue(((y.cpu().float() - want).abs() <= bound).all())
                        self.assertLess((y.cpu().float() - want).abs().mean(), 8 * half)

    def test_sees_what_is_written_to_weights(self):
        gpu = to_gpu(subbyte.torch.quantize(torch.randn(64, 256), "u4"))
        x = torch.randn(4, 256).cuda().half()
        first = subbyte.torch.linear(x, gpu)
        gpu.scales.mul_(2)
        again = subbyte.torch.linear(x, gpu)
        self.assertTrue(torch.allclose(again.float(), 2 * first.float(), rtol=2e-3, atol=2e-3))

    def test_streams_and_graphs(self):
        gpu = to_gpu(subbyte.torch.quantize(torch.randn(256, 512), "nf4"))
        x = torch.randn(2, 512).cuda().half()
        want = subbyte.torch.linear(x, gpu)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            found = subbyte.torch.linear(x, gpu)
        stream.synchronize()
        self.assertTrue(torch.equal(found, want))
        out = torch.empty_like(want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ops.linear_out(x, *gpu, out=out)
        x.mul_(2)
        graph.replay()
        self.assertTrue(torch.equal(out, subbyte.torch.linear(x, gpu)))

    def assert_like_the_cpu(self, function, *arguments):
        """Results beside those of the CPU, whose weights are not rounded to 16 bits."""
        want = function(*arguments)
        moved = [a.cuda() if isinstance(a, torch.Tensor) else a for a in arguments]
        for _ in range(2):  # packed and kept
            found = function(*moved)
            self.assertTrue(found.is_cuda)
            self.assertEqual((found.dtype, found.shape), (want.dtype, want.shape))
            half = 2.0**-11 if want.dtype == torch.float16 else 2.0**-8
            off = (found.cpu().float() - want.float()).abs()
            size = want.float().abs().max()
            self.assertLessEqual(off.max().item(), 8 * half * size.item() + 1e-6)

    def test_products_with_words_of_others(self):
        from test_layouts import U4B8, awq_words, gptq_words, permute
        k, n, group = 256, 128, 64
        q, zeros = torch.randint(0, 16, (k, n)), torch.randint(0, 16, (k // group, n))
        scales = (torch.rand(k // group, n) + 0.5).half()
        for m in (0, 1, 20):
            x = torch.randn(m, k).half()
            if m > 0:
                self.assert_like_the_cpu(ops.awq_gemm, x, awq_words(q), scales, awq_words(zeros),
                                         8)
                words = ops.gptq_marlin_repack(gptq_words(q, 4), k, n, 4)
                bias = torch.randn(n).half()
                space = torch.zeros(8, dtype=torch.int32)
                self.assert_like_the_cpu(ops.marlin_gemm, x, None, words, permute(bias, False),
                                         permute(scales, True), None, None, None, space, U4B8, m,
                                         n, k)
                tiles = ops._convert_weight_to_int4pack((q.T[:, ::2] << 4 | q.T[:, 1::2]).to(
                    torch.uint8).contiguous(), 2)
                pairs = torch.rand(k // group, n, 2).bfloat16()
                self.assert_like_the_cpu(ops._weight_int4pack_mm, x.bfloat16(), tiles, group,
                                         pairs)
                packed, absmax = ops.quantize_4bit(torch.randn(n, k), 64, "nf4", torch.uint8)
                self.assert_like_the_cpu(ops.gemm_4bit, x, packed, [n, k], absmax, 64, "nf4")
                book = torch.linspace(-1, 1, 8)
                flat = ops.quantize_kbit(torch.randn(n * k), book, 3)
                tiled = ops.repack_kbit(*flat, k, n, 3)
                self.assert_like_the_cpu(ops.kbit_gemm_prod, x, *tiled, book, k, n, 3, 1)
        gpu = ops.gptq_marlin_repack(gptq_words(q, 4).cuda(), k, n, 4)
        self.assertTrue(gpu.is_cuda and torch.equal(gpu.cpu(), words))

    def test_refuses(self):
        weight = subbyte.torch.quantize(torch.randn(64, 256), "u4")
        x = torch.randn(2, 256).cuda()
        self.assert_refused("bias: expected the type of x on a GPU", subbyte.torch.linear, x,
                            to_gpu(weight), torch.zeros(64).half().cuda())
        self.assert_refused("codes: expected a tensor on the device of the others",
                            subbyte.torch.linear, x.half(), weight)
        packed, absmax = ops.quantize_4bit(torch.randn(64, 256), 64, "nf4", torch.uint8)
        self.assert_refused("bias: expected a tensor on the device of the others", ops.gemm_4bit,
                            x.half(), packed.cuda(), [64, 256], absmax.cuda(), 64, "nf4",
                            torch.zeros(64).half())

    def test_opcheck(self):
        gpu = to_gpu(subbyte.torch.quantize(torch.randn(64, 256), "u4"))
        x = torch.randn(2, 256).cuda().half()
        self.check_operator(ops.linear, x, *gpu)
        self.check_operator(ops.linear_out, x, *gpu, out=torch.empty(2, 64).cuda().half())
        self.check_operator(ops.dequantize, *gpu, dtype=torch.float16)
        self.check_operator(ops.mxfp4_quantize, x)
        call = torch.compile(lambda x: subbyte.torch.linear(x, gpu) + 1, fullgraph=True,
                             backend="aot_eager")
        self.assertTrue(torch.equal(call(x), subbyte.torch.linear(x, gpu) + 1))


if __name__ == "__main__":
    unittest.main()
