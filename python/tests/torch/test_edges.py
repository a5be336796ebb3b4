"""Whole numbers at the edges of 64 bits, of every operator that takes any: a result or a line."""

from __future__ import annotations

import random
import unittest

import torch

import subbyte.torch
from support import TorchTest, ops

EDGES = (-2**63, -2**63 + 1, -2**32, -1, 0, 1, 2, 7, 8, 31, 32, 64, 2**24 + 1, 2**31, 2**32, 2**40,
         2**62, 2**63 - 1)
BOOK = torch.tensor([-1.0, -0.5, 0.5, 1.0])


def calls():
    """Operators with arguments that are right; the whole numbers among them are changed."""
    w = torch.randn(64, 64)
    words = torch.zeros(8, 64, dtype=torch.int32)
    packed, absmax = ops.quantize_kbit(torch.randn(128 * 64), BOOK, 2)
    vectors = torch.randn(256 * 2).half()
    p_vq, a_vq = ops.quantize_vq(torch.randn(128 * 64), vectors, 2)
    tiles = ops._convert_weight_to_int4pack_for_cpu(torch.zeros(64, 64, dtype=torch.int32), 2)
    x = torch.randn(2, 64)
    nibbles = torch.zeros(64 * 32, 1, dtype=torch.uint8)
    scales = torch.ones(2, 64).half()
    u4 = subbyte.torch.quantize(w, "u4", 32)
    yield ops.quantize_int, (w, 4, 32, False)
    yield ops.quantize_nf4, (w, 64)
    yield ops.quantize_nfl, (w, 2)
    yield (lambda *a: ops.dequantize(*u4, cols=a[0], dtype=torch.float32)), (64,)
    yield ops._convert_weight_to_int4pack_for_cpu, (torch.zeros(64, 64, dtype=torch.int32), 2)
    yield ops._convert_weight_to_int4pack, (torch.zeros(64, 64, dtype=torch.uint8), 2)
    yield ops._weight_int4pack_mm_for_cpu, (x, tiles, 32, torch.ones(2, 64, 2))
    yield ops.gptq_marlin_repack, (words, 64, 64, 4)
    yield ops.gptq_marlin_repack.perm, (words, torch.arange(64, dtype=torch.int32), 64, 64, 4)
    yield ops.awq_marlin_repack, (torch.zeros(64, 8, dtype=torch.int32), 64, 64, 4)
    yield ops.marlin_gemm, (x.half(), None, torch.zeros(4, 128, dtype=torch.int32), None, scales,
                            None, None, None, None, 4 << 8 | 8 << 17, 2, 64, 64)
    yield ops.quantize_kbit, (torch.randn(64), BOOK, 2)
    yield ops.dequantize_kbit, (packed, BOOK, absmax, 2, 128 * 64, torch.float32)
    yield ops.dequantize_kbit_tiled, (packed, BOOK, absmax, 2, 64, 128, torch.float32)
    yield ops.repack_kbit, (packed, absmax, 64, 128, 2)
    yield ops.kbit_gemm_prod, (x.half(), packed, absmax, BOOK, 64, 128, 2, 1)
    yield ops.kbit_scalar_gemv, (x.half(), packed, absmax, BOOK, 64, 128, 2)
    yield ops.kbit_grouped_gemm, (x.half(), packed, absmax, BOOK,
                                  torch.tensor([0, 2], dtype=torch.int32), 64, 128, 2, 1, 2)
    yield ops.quantize_vq, (torch.randn(64), vectors, 2)
    yield ops.dequantize_vq, (p_vq, vectors, a_vq, 2, 128 * 64, torch.float32)
    yield ops.dequantize_vq_tiled, (p_vq, vectors, a_vq, 2, 64, 128, torch.float32)
    yield ops.repack_vq, (p_vq, a_vq, 64, 128, 2)
    yield ops.vq_gemm_prod, (x.half(), p_vq, a_vq, vectors, 64, 128, 2, 1)
    yield ops.hadamard_rotate_, (torch.randn(256).half(), 64)
    yield ops.hadamard_rotate_full_, (torch.randn(1024).half(), 512)
    yield ops.quantize_4bit, (w, 64, "nf4", torch.uint8)
    yield ops.dequantize_4bit, (nibbles, torch.ones(64), 64, "nf4", [64, 64], torch.float32)
    yield (lambda b, n, k: ops.gemv_4bit(x, nibbles, [n, k], torch.ones(64), torch.linspace(
        -1, 1, 16), b)), (64, 64, 64)
    yield ops.experts, (x, torch.randn(2, 1), *(t.unsqueeze(0) for t in u4[:3]), u4.format,
                        *(t.unsqueeze(0) for t in subbyte.torch.quantize(
                            torch.randn(64, 32), "u4", 32)[:3]), u4.format, 1)


class Edges(TorchTest):
    def test_every_whole_number_at_every_edge(self):
        for function, arguments in calls():
            function(*arguments)
            places = [i for i, a in enumerate(arguments) if type(a) is int]
            self.assertTrue(places, function)
            for place in places:
                for edge in EDGES:
                    with self.subTest(function=str(function), place=place, edge=edge):
                        self.try_call(function, arguments, {place: edge})

    def test_several_numbers_at_once(self):
        rng = random.Random(57)
        for function, arguments in calls():
            places = [i for i, a in enumerate(arguments) if type(a) is int]
            for _ in range(60):
                changed = {place: rng.choice(EDGES) for place in places if rng.random() < 0.7}
                with self.subTest(function=str(function), changed=changed):
                    self.try_call(function, arguments, changed)

    def try_call(self, function, arguments, changed) -> None:
        values = [changed.get(i, a.clone() if isinstance(a, torch.Tensor) else a)
                  for i, a in enumerate(arguments)]
        try:
            function(*values)
        except RuntimeError as error:
            line = str(error).splitlines()[0]
            self.assertGreater(len(line), 10)


if __name__ == "__main__":
    unittest.main()
