"""Quantizers, and repacking for others, on a GPU of NVIDIA: the bits of the CPU."""

from __future__ import annotations

import unittest

import torch

from support import FLOATS, TorchTest, moved, ops
from test_cuda import has_kernels

# Of nvfp4_quantize, after the layout: shuffling, group, hint, backend, scales per token.
NO_HINTS = (False, 16, None, "cuda", False)
NAN, INFINITY = float("nan"), float("inf")


def some_numbers(*shape: int) -> torch.Tensor:
    """Zeros of both signs, also whole groups, subnormals, ties and numbers of all sizes."""
    x = torch.randn(shape).flatten()
    kind = torch.arange(x.numel()) // 32 % 16
    x = torch.where(kind == 1, 0.0, x)
    x = torch.where(kind == 3, -0.0, x)
    x = torch.where(kind == 5, x * 2.0**-140, x)
    x = torch.where(kind == 7, torch.randint(-24, 25, x.shape).float(), x)
    x = torch.where(kind == 9, x * 2.0 ** torch.randint(-30, 10, x.shape), x)
    x = torch.where((kind == 11) & (torch.arange(x.numel()) % 3 != 0), -0.0, x)
    return x.view(shape)


def quantizers():
    """(operator, arguments after the weights, what columns come in)."""
    for bits in range(2, 9):
        for symmetric in (False, True):
            for group in (0, 1, 5, 20, 24, 64, 512):
                yield ops.quantize_int, (bits, group, symmetric), group or 1
    for rule in ("ocp_floor", "ceil", "bump_175", "search"):
        yield ops.quantize_mxfp4, (rule,), 32
    for search in (False, True):
        yield ops.quantize_nvfp4, (search,), 16
    for block in (0, 12, 64, 4096):
        yield ops.quantize_nf4, (block,), block or 1
    for bits in range(2, 6):
        yield ops.quantize_nfl, (bits,), 32
        yield ops.quantize_nfl, (bits, torch.randn(1 << bits).sort()[0]), 32
    yield ops.quantize_fp8, (), 1


# One of each, with columns in 64s.
EACH = ((ops.quantize_int, (4, 64)), (ops.quantize_int, (3, 32, True)), (ops.quantize_mxfp4, ()),
        (ops.quantize_nvfp4, (True,)), (ops.quantize_nvfp4, (False,)), (ops.quantize_nf4, ()),
        (ops.quantize_nfl, (3,)), (ops.quantize_fp8, ()))


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class Quantizers(TorchTest):
    def test_same_bits(self):
        for function, rest, unit in quantizers():
            for rows, units in ((1, 1), (3, 3), (131, 5)):
                for dtype in FLOATS:
                    cols = unit * units if unit > 1 else 37 * units
                    with self.subTest(function=str(function), rest=rest, cols=cols, dtype=dtype):
                        w = some_numbers(rows, cols).to(dtype)
                        self.assert_same_as_the_cpu(function, w, *rest)

    def test_large_and_small_numbers(self):
        for function, rest in EACH:
            if function is ops.quantize_int:
                continue  # scales of f16
            for power in (-120, -60, 60, 100):
                with self.subTest(function=str(function), power=power):
                    w = some_numbers(64, 256) * 2.0**power
                    self.assert_same_as_the_cpu(function, w, *rest)

    def test_strides_and_odd_addresses(self):
        for function, rest in EACH:
            for dtype in FLOATS:
                with self.subTest(function=str(function), dtype=dtype):
                    w = some_numbers(128, 64).to(dtype)
                    want = function(w, *rest)
                    self.assert_same(function(w.t().contiguous().cuda().t(), *rest), want)
                    memory = torch.zeros(w.numel() + 1, dtype=dtype).cuda()
                    memory[1:] = w.flatten()
                    self.assert_same(function(memory[1:].view(w.shape), *rest), want)

    def message(self, function, *arguments) -> str:
        with self.assertRaises(RuntimeError) as caught:
            function(*arguments)
        return str(caught.exception)

    def test_refuses_what_the_cpu_refuses(self):
        cases = []
        for function, rest in EACH:
            for value in (NAN, INFINITY, -INFINITY):
                w = torch.randn(140, 192)
                w[135, 77], w[139, 3] = value, NAN
                cases.append((function, (w, *rest)))
            cases += [(function, (torch.zeros(shape), *rest)) for shape in ((0, 64), (3, 0))]
            if function is not ops.quantize_fp8:
                cases.append((function, (torch.zeros(2, 65), *rest)))
        large = torch.randn(4, 64)
        large[2, 5] = 1e6
        cases += [(ops.quantize_int, (large, 4, 32)), (ops.quantize_int, (large, 2, 32, True)),
                  (ops.quantize_int, (torch.randn(4, 64), 4, -8))]
        for function, arguments in cases:
            with self.subTest(function=str(function)):
                self.assertEqual(self.message(function, *moved(arguments)),
                                 self.message(function, *arguments))

    def test_graphs(self):
        for function, rest in (*EACH, (ops.quantize_int, (3, 4))):
            with self.subTest(function=str(function)):
                w = torch.randn(130, 64).half().cuda()
                self.assert_same_in_a_graph(function, w, *rest)
                w[1, 1] = NAN  # which a capture cannot wait for
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    function(w, *rest)

    def test_opcheck(self):
        for function, rest in EACH:
            self.check_operator(function, torch.randn(4, 64).cuda(), *rest)


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class FourOverSix(TorchTest):
    def test_same_bits(self):
        for mode in ("MAE", "MSE"):
            for dtype in FLOATS:
                for shape in ((0, 32), (1, 32), (9, 96), (130, 4128)):
                    for layout in (0, 1, 2):
                        for scale in (400.0, 2.0**-60, 2.0**60):
                            with self.subTest(mode=mode, dtype=dtype, shape=shape, scale=scale):
                                x = some_numbers(*shape).to(dtype)
                                self.assert_same_as_the_cpu(
                                    ops.nvfp4_quantize, x, torch.tensor([scale]), layout,
                                    *NO_HINTS, mode)

    def test_what_is_not_finite(self):
        x = some_numbers(64, 256)
        x[::3, 5], x[::5, 77], x[1::7, 130] = NAN, INFINITY, -INFINITY
        for dtype in FLOATS:
            for mode in (None, "MAE", "MSE"):
                self.assert_same_as_the_cpu(ops.nvfp4_quantize, x.to(dtype), torch.tensor([3.0]),
                                            0, *NO_HINTS, mode)

    def test_where_the_scale_is(self):
        x, scale = torch.randn(40, 64).half(), torch.tensor([317.0])
        for mode in (None, "MAE"):
            want = ops.nvfp4_quantize(x, scale, 0, *NO_HINTS, mode)
            self.assert_same(ops.nvfp4_quantize(x.cuda(), scale, 0, *NO_HINTS, mode), want)
            self.assert_same(ops.nvfp4_quantize(x.cuda(), scale.cuda(), 0, *NO_HINTS, mode), want)
            memory = torch.zeros(x.numel() + 1).half().cuda()
            memory[1:] = x.flatten()
            self.assert_same(ops.nvfp4_quantize(memory[1:].view(x.shape), scale, 0, *NO_HINTS,
                                                mode), want)

    def test_graphs(self):
        for mode in (None, "MAE", "MSE"):
            self.assert_same_in_a_graph(ops.nvfp4_quantize, *moved((
                torch.randn(40, 64).half(), torch.tensor([317.0]), 0, *NO_HINTS, mode)))


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class NearestScales(TorchTest):
    def test_same_bits(self):
        for k in range(2, 6):
            for book in (torch.linspace(-1, 1, 1 << k), torch.randn(1 << k).sort()[0] * 3):
                for dtype in FLOATS:
                    for shape in ((1,), (33,), (40, 33), (300, 256)):
                        with self.subTest(k=k, dtype=dtype, shape=shape):
                            # Scales of E4M4 end below 32.
                            w = some_numbers(*shape).clamp(-31, 31).to(dtype)
                            w.view(-1)[::100] = 1.97  # where the encoders differ
                            self.assert_same_as_the_cpu(ops.quantize_kbit, w, book, k,
                                                        nearest_scales=True)

    def test_refuses_what_no_scale_holds(self):
        book = torch.linspace(-1, 1, 8)
        for size, code in ((32.0, "quantize.scale_overflow"), (1e-30, "quantize.loss")):
            for w in (torch.full((64,), size), torch.full((64,), size).cuda()):
                self.assert_refused(code, ops.quantize_kbit, w, book.to(w.device), 3,
                                    nearest_scales=True)

    def test_graphs(self):
        w, book = torch.randn(40, 64).cuda(), torch.linspace(-1, 1, 8).cuda()
        self.assert_same_in_a_graph(ops.quantize_kbit, w, book, 3, nearest_scales=True)


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class Repacking(TorchTest):
    def test_marlin(self):
        for bits in (4, 8):
            for k, n in ((16, 64), (80, 192), (256, 128)):
                words = torch.randint(-2**31, 2**31 - 1, (k * bits // 32, n), dtype=torch.int32)
                order = torch.randperm(k, dtype=torch.int32)
                self.assert_same_as_the_cpu(ops.gptq_marlin_repack, words, k, n, bits)
                for perm in (order, order[:0]):
                    self.assert_same_as_the_cpu(ops.gptq_marlin_repack.perm, words, perm, k, n,
                                                bits)
                columns = torch.randint(-2**31, 2**31 - 1, (k, n * bits // 32), dtype=torch.int32)
                self.assert_same_as_the_cpu(ops.awq_marlin_repack, columns, k, n, bits)
        for wrong, column in ((-1, 3), (int(order[5]), 5), (k, 3)):
            order[3] = wrong
            expected = f"perm: expected every input once, found {wrong} at column {column}"
            self.assert_refused(expected,
                                ops.gptq_marlin_repack.perm, words.cuda(), order.cuda(), k, n, 8)

    def test_aten(self):
        for n, k in ((16, 64), (48, 128), (80, 256), (192, 512)):
            codes = torch.randint(0, 16, (n, k), dtype=torch.int32)
            convert = ops._convert_weight_to_int4pack_for_cpu
            self.assert_same_as_the_cpu(convert, codes, 2)
            packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
            for tiles in (2, 4, 8):
                if k % (16 * tiles) == 0:
                    self.assert_same_as_the_cpu(ops._convert_weight_to_int4pack, packed, tiles)
        for wrong in (16, -1):
            codes[7, 9] = wrong
            self.assert_refused(f"self: expected codes of 0 to 15, found {wrong}", convert,
                                codes.cuda(), 2)

    def test_graphs(self):
        words = torch.randint(-9, 9, (8, 64), dtype=torch.int32).cuda()
        order = torch.randperm(64, dtype=torch.int32).cuda()
        codes = torch.randint(0, 16, (64, 64), dtype=torch.int32).cuda()
        for function, arguments in (
                (ops.gptq_marlin_repack, (words, 64, 64, 4)),
                (ops.gptq_marlin_repack.perm, (words, order, 64, 64, 4)),
                (ops.awq_marlin_repack, (words.view(64, 8), 64, 64, 4)),
                (ops._convert_weight_to_int4pack, (codes.to(torch.uint8)[:, :32], 2)),
                (ops._convert_weight_to_int4pack_for_cpu, (codes, 2))):
            with self.subTest(function=str(function)):
                self.assert_same_in_a_graph(function, *arguments)


if __name__ == "__main__":
    unittest.main()
