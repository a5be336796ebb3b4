"""Weights that a GPU of NVIDIA packs: products with one-hot rows, whose every bit is known."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import TorchTest, ops
from test_cuda import has_kernels, to_gpu

# Element, its bits, group (0: a row), type of scales, kind of zero points.
FORMATS = (("u2", 2, 32, "f16", "zero u8"), ("u3", 3, 64, "f32", "zero u8"),
           ("u4", 4, 16, "bf16", "zero u8"), ("u4", 4, 128, "f16", None),
           ("u8", 8, 32, "f16", "zero u16"), ("i3", 3, 64, "f16", None),
           ("i4", 4, 32, "bf16", "offset bf16"), ("i8", 8, 0, "f16", "offset f16"),
           ("e2m1", 4, 32, "e8m0", None), ("e2m1", 4, 16, "e4m3", None),
           ("nf4", 4, 64, "f32", None), ("nfl3", 3, 32, "f16", None),
           ("nfl5", 5, 32, "f16", None), ("e4m3", 8, 128, "f32", None))
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def powers(kind: str, *shape: int) -> torch.Tensor:
    """Powers of two, 1/8 to 2, as scales: nothing is rounded by them."""
    exponents = torch.randint(-3, 2, shape)
    if kind == "e8m0":
        return (exponents + 127).to(torch.uint8)
    if kind == "e4m3":
        return (exponents + 7 << 3).to(torch.uint8)
    return torch.exp2(exponents.double()).to(TYPES[kind])


def random_weight(rows: int, cols: int, element: str, bits: int, group: int, scale: str,
                  zero: str | None) -> subbyte.torch.PackedWeight:
    groups = (cols + group - 1) // group if group else 1
    codes = torch.randint(0, 256, (rows, (cols * bits + 7) // 8), dtype=torch.uint8)
    if element == "e4m3":
        codes = torch.where(codes & 127 == 127, 0, codes)  # no NaN
    zeros = None
    words = f"{element} {f'g{group}' if group else 'per row'} scale {scale}"
    if zero is not None:
        words += f" {zero}"
        if zero.startswith("offset"):
            zeros = (torch.randint(-8, 9, (rows, groups)) / 8).to(TYPES[zero.split()[1]])
        else:
            zeros = torch.randint(0, (1 << bits) + 1, (rows, groups)).to(
                torch.uint8 if zero == "zero u8" else torch.uint16)
    return subbyte.torch.PackedWeight(codes, powers(scale, rows, groups), zeros, words)


def shifted(tensor: torch.Tensor) -> torch.Tensor:
    """A copy one element after the begin of its memory."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    memory[1:] = tensor.flatten()
    return memory[1:].view(tensor.shape)


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class Packing(TorchTest):
    def assert_same_numbers(self, weight, gpu, cols: int) -> None:
        """A product with a row of the unit matrix is a column of the weights, rounded once."""
        for dtype in (torch.float16, torch.bfloat16):
            want = subbyte.torch.dequantize(weight, dtype, cols)
            unit = torch.eye(cols, dtype=dtype)
            for first, count in ((0, cols), (cols - 1, 1), (3, 7)):
                found = subbyte.torch.linear(unit[first:first + count].cuda(), gpu)
                self.assertTrue(torch.equal(found.cpu().T, want[:, first:first + count]))

    def test_every_code_scale_and_zero_point(self):
        for given in FORMATS:
            for rows, cols in ((24, 128), (130, 200), (1, 768)):
                if given[2] and cols % given[2] and given[2] > 64:
                    continue
                with self.subTest(format=given, rows=rows, cols=cols):
                    weight = random_weight(rows, cols, *given)
                    self.assert_same_numbers(weight, to_gpu(weight), cols)

    def test_at_odd_addresses(self):
        cols = 192
        weight = random_weight(40, cols, "u4", 4, 64, "f16", "zero u8")
        gpu = to_gpu(weight)
        gpu = gpu._replace(codes=shifted(gpu.codes), scales=shifted(gpu.scales),
                           zeros=shifted(gpu.zeros))
        self.assertEqual(gpu.codes.data_ptr() % 2, 1)
        self.assert_same_numbers(weight, gpu, cols)

    def test_with_act_order_and_a_codebook(self):
        cols = 192
        weight = random_weight(40, cols, "u4", 4, 64, "f16", "zero u8")._replace(
            input_order=torch.randperm(cols).to(torch.int32))
        self.assert_same_numbers(weight, to_gpu(weight), cols)
        book = torch.sort(torch.randn(8).half().float())[0].bfloat16().float()
        weight = random_weight(40, cols, "nfl3", 3, 32, "f16", None)._replace(codebook=book)
        self.assert_same_numbers(weight, to_gpu(weight), cols)

    def test_what_the_kernels_have_in_another_format(self):
        """Wider codes, or smaller groups: the host makes them, and the GPU packs those."""
        for given in (("u5", 5, 32, "f16", "zero u8"), ("i6", 6, 64, "f16", None),
                      ("nf4", 4, 128, "f32", None)):
            with self.subTest(format=given):
                cols = 256
                weight = random_weight(24, cols, *given)
                self.assert_same_numbers(weight, to_gpu(weight), cols)

    def test_words_of_others(self):
        absmax = powers("f32", 64 * 128 // 64)
        packed = torch.randint(0, 256, (64 * 128 // 2, 1), dtype=torch.uint8)
        want = ops.dequantize_4bit(packed, absmax, 64, "nf4", [64, 128], torch.float16)
        unit = torch.eye(128).half()
        found = ops.gemm_4bit(unit.cuda(), packed.cuda(), [64, 128], absmax.cuda(), 64, "nf4")
        self.assertTrue(torch.equal(found.cpu().T, want))

    def test_holds_what_it_packs_and_no_more(self):
        subbyte.torch.forget()
        gpu = to_gpu(random_weight(1024, 4096, "u4", 4, 128, "f16", "zero u8"))
        x = torch.randn(1, 4096).half().cuda()
        before = torch.cuda.memory_allocated()
        y = subbyte.torch.linear(x, gpu)
        del y
        kept = subbyte.torch.kept_bytes()
        grown = torch.cuda.memory_allocated() - before
        self.assertGreaterEqual(kept, 1024 * 4096 // 2)
        self.assertLess(abs(grown - kept), 4096)  # torch rounds up to 512

    def test_another_stream_reads_it(self):
        """The first call waits for its stream, so that a second one elsewhere may read at once."""
        weight = to_gpu(random_weight(512, 512, "u4", 4, 128, "f16", "zero u8"))
        unit = torch.eye(512).half().cuda()
        want = subbyte.torch.dequantize(weight, torch.float16)
        slow, other = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(slow):
            torch.cuda._sleep(200_000_000)
            subbyte.torch.linear(unit, weight)
        with torch.cuda.stream(other):
            found = subbyte.torch.linear(unit, weight)
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(found.T, want))

    def test_refuses_values_as_the_host_does(self):
        x = torch.randn(2, 192).half()
        weight = random_weight(40, 192, "u4", 4, 64, "f16", "zero u8")
        weight.zeros[3, 1] = 17
        self.assert_refused("zero point 10 of u4 g64", subbyte.torch.linear, x.cuda(),
                            to_gpu(weight))
        order = torch.arange(192, dtype=torch.int32)
        order[5] = 192
        weight = random_weight(40, 192, "u4", 4, 64, "f16", None)._replace(input_order=order)
        self.assert_refused("input_order: expected every input once", subbyte.torch.linear,
                            x.cuda(), to_gpu(weight))
        book = torch.full((8,), float("nan"))
        weight = random_weight(40, 192, "nfl3", 3, 32, "f16", None)._replace(codebook=book)
        self.assert_refused("codebook: expected", subbyte.torch.linear, x.cuda(), to_gpu(weight))


if __name__ == "__main__":
    unittest.main()
