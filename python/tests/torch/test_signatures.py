"""A signature says what an operator takes: its kernel and its fake kernel refuse in one line."""

from __future__ import annotations

import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import subbyte.torch
from support import TorchTest, ops


def refused_calls():
    """What is said, and a call with one operand that is wrong."""
    u4 = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
    x, book = torch.randn(3, 64), torch.tensor([-1.0, -0.5, 0.5, 1.0])
    nibbles, absmax = ops.quantize_4bit(torch.randn(16, 64), 64, "nf4", torch.uint8)
    code = torch.linspace(-1, 1, 16)
    packed, scales = ops.quantize_kbit(torch.randn(128 * 64), book, 2)
    words = torch.zeros(64, 4, dtype=torch.int32)
    awq = (words, torch.ones(2, 32).half(), torch.zeros(2, 4, dtype=torch.int32))
    yield ("x: expected a last dimension of 64, found f32 [3, 60]",
           ops.linear, (x[:, :60].contiguous(), *u4))
    yield "x: expected f32 or f16 or bf16, found f64 [3, 64]", ops.linear, (x.double(), *u4)
    yield "x: expected at least 1 dimension, found f32 []", ops.linear, (torch.ones(()), *u4)
    yield "bias: expected sizes [16], found f32 [3]", ops.linear, (x, *u4, torch.randn(3))
    yield ("residual: expected sizes [3, 16], found f32 [4, 16]",
           ops.linear, (x, *u4, None, torch.randn(4, 16)))
    yield "tensor_scale: expected 1 number, found f32 [2]", ops.linear, (
        x, *u4._replace(tensor_scale=torch.ones(2)))
    yield "weights: expected 2 dimensions, found f32 [3]", ops.quantize_nf4, (torch.ones(3),)
    yield ("A: expected a last dimension of 64, found f32 [3, 60]",
           ops.gemv_4bit, (x[:, :60].contiguous(), nibbles, [16, 64], absmax, code, 64))
    yield ("absmax: expected 16 scales, found f32 [15]",
           ops.gemv_4bit, (x, nibbles, [16, 64], absmax[:15].clone(), code, 64))
    yield ("code: expected 16 values, found f32 [4]",
           ops.gemv_4bit, (x, nibbles, [16, 64], absmax, book, 64))
    yield ("A: expected f16 or bf16, found f32 [3, 64]",
           ops.kbit_gemm_prod, (x, packed, scales, book, 64, 128, 2, 1))
    yield ("B_packed: expected i32, found f32 [3, 64]",
           ops.kbit_gemm_prod, (x.half(), x, scales, book, 64, 128, 2, 1))
    yield ("A: expected sizes [3, 32], found f16 [3, 64]",
           ops.kbit_gemm_prod, (x.half(), packed, scales, book, 32, 128, 2, 1))
    yield "input: expected f16, found f32 [3, 64]", ops.awq_gemm, (x, *awq, 8)
    yield ("qzeros: expected sizes [2, 4], found i32 [1, 4]",
           ops.awq_gemm, (x.half(), *awq[:2], awq[2][:1].clone(), 8))
    yield ("mat2: expected sizes [32, 32], found u8 [16, 32]", ops._weight_int4pack_mm_for_cpu,
           (x, torch.zeros(16, 32, dtype=torch.uint8), 32, torch.ones(2, 32, 2)))
    yield ("unswizzled_sf: expected u8 or bf16, found f32 [3, 64]",
           ops.block_scale_interleave, (x,))


class Signatures(TorchTest):
    def test_kernels_and_fake_kernels_refuse_in_one_line(self):
        for line, function, arguments in refused_calls():
            with self.subTest(line=line):
                self.assert_refused(f"{line} [torch.argument]", function, *arguments)
                with FakeTensorMode() as mode:
                    fakes = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
                             for value in arguments]
                    self.assert_refused(line, function, *fakes)

    def test_values_are_those_of_a_list_or_a_range(self):
        x = torch.randn(4, 64)
        self.assert_refused("bits: expected 2 to 8, found 1", ops.quantize_int, x, 1, 32)
        self.assert_refused('quant_type: expected nf4 or fp4, found "nf3"', ops.quantize_4bit, x,
                            64, "nf3", torch.uint8)
        self.assert_refused("quant_storage: expected f32 or f16 or bf16 or u8, found i8",
                            ops.quantize_4bit, x, 64, "nf4", torch.int8)
        self.assert_refused("size_k: expected 1 to 2^24, found 0", ops.gptq_marlin_repack,
                            torch.zeros(8, 64, dtype=torch.int32), 0, 64, 4)
        self.assert_refused("shapeB: expected 2 sizes, found [64]", ops.gemv_4bit, x, x, [64], x,
                            x, 64)


if __name__ == "__main__":
    unittest.main()
