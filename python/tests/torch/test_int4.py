"""aten's int4 operators: the same bytes and, within rounding, the same products."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import FLOATS, TorchTest, ops

aten = torch.ops.aten


def problem(rows: int, cols: int, group: int, dtype: torch.dtype):
    q = torch.randint(0, 16, (rows, cols), dtype=torch.int32)
    scales = torch.stack([torch.rand(cols // group, rows) + 0.5,
                          torch.randn(cols // group, rows)], dim=-1).to(dtype)
    wide = [scales[..., i].T.double().repeat_interleave(group, 1) for i in (0, 1)]
    parts = (q.double() - 8) * wide[0], wide[1]
    return q, scales, parts[0] + parts[1], parts[0].abs() + parts[1].abs()


class Int4(TorchTest):
    def test_tiles_have_the_bytes_of_aten(self):
        for rows, cols in ((16, 2), (32, 64), (48, 34), (64, 32), (112, 128), (176, 6)):
            q = torch.randint(0, 16, (rows, cols), dtype=torch.int32)
            want = aten._convert_weight_to_int4pack_for_cpu(q, 2)
            found = ops._convert_weight_to_int4pack_for_cpu(q, 2)
            self.assertTrue(torch.equal(found, want), (rows, cols))
            view = ops._convert_weight_to_int4pack_for_cpu(q.T.contiguous().T, 8)
            self.assertTrue(torch.equal(view, want))

    def test_products_on_tiles(self):
        for dtype in FLOATS:
            for rows, cols, group in ((16, 32, 32), (48, 256, 64), (96, 512, 256)):
                q, scales, w, terms = problem(rows, cols, group, dtype)
                tiles = aten._convert_weight_to_int4pack_for_cpu(q, 2)
                for m in (0, 1, 4, 33):
                    with self.subTest(dtype=dtype, rows=rows, m=m):
                        x = torch.randn(m, cols).to(dtype)
                        y = ops._weight_int4pack_mm_for_cpu(x, tiles, group, scales)
                        self.assert_product(y, x, w, terms=terms)
                        theirs = aten._weight_int4pack_mm_for_cpu(x, tiles, group, scales)
                        self.assertEqual(y.shape, theirs.shape)
                        self.assertEqual(y.dtype, theirs.dtype)

    def test_infinite_activations_are_those_of_aten(self):
        q, scales, _, _ = problem(32, 64, 32, torch.float32)
        tiles = ops._convert_weight_to_int4pack_for_cpu(q, 2)
        for value in (float("inf"), float("-inf"), float("nan")):
            x = torch.randn(3, 64)
            x[1, 5] = value
            y = ops._weight_int4pack_mm_for_cpu(x, tiles, 32, scales)
            theirs = aten._weight_int4pack_mm_for_cpu(x, aten._convert_weight_to_int4pack_for_cpu(
                q, 2), 32, scales)
            self.assertTrue(torch.equal(y[1].isnan(), theirs[1].isnan()), value)
            self.assertTrue(torch.equal(y[1].nan_to_num(), theirs[1].nan_to_num()), value)
            self.assertTrue(torch.allclose(y[::2], theirs[::2], rtol=1e-4, atol=1e-4))

    def test_words_of_cuda(self):
        """Every word by the picture: word j of lane L, from the low nibble up."""
        for tiles in (2, 4, 8):
            rows, cols = 24, 256
            q, scales, w, terms = problem(rows, cols, 64, torch.bfloat16)
            byte = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
            words = ops._convert_weight_to_int4pack(byte, tiles)
            self.assertEqual(tuple(words.shape), (rows // 8, cols // (16 * tiles), 32, tiles // 2))
            for nibble, step in enumerate((0, 8, 16, 24, 1, 9, 17, 25)):
                found = words.to(torch.int64) >> 4 * nibble & 15
                for lane in (0, 5, 31):
                    for j in range(tiles // 2):
                        n = torch.arange(rows // 8) * 8 + lane // 4
                        k = torch.arange(cols // (16 * tiles)) * 16 * tiles + 32 * j
                        want = q[n][:, k + 2 * (lane % 4) + step]
                        self.assertTrue(torch.equal(found[:, :, lane, j], want.long()))
            x = torch.randn(3, cols, dtype=torch.bfloat16)
            y = ops._weight_int4pack_mm(x, words, 64, scales)
            self.assert_product(y, x, w, terms=terms)

    def test_words_of_xpu(self):
        for dtype in (torch.float16, torch.bfloat16):
            q = torch.randint(0, 16, (24, 128), dtype=torch.int32)
            words = sum(q[:, i::8].long() << 4 * i for i in range(8))
            words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
            s = (torch.rand(4, 24) + 0.5).to(dtype)
            z = torch.randint(0, 16, (4, 24), dtype=torch.int8)
            wide = [t.T.double().repeat_interleave(32, 1) for t in (s, z)]
            w = (q.double() - wide[1]) * wide[0]
            x = torch.randn(2, 128).to(dtype)
            y = ops._weight_int4pack_mm_with_scales_and_zeros(x, words, 32, s, z)
            self.assert_product(y, x, w)

    def test_refuses_what_aten_refuses(self):
        q, scales, _, _ = problem(32, 64, 32, torch.float32)
        x = torch.randn(2, 64)
        tiles = ops._convert_weight_to_int4pack_for_cpu(q, 2)
        convert, multiply = ("_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu")
        for name, arguments in ((convert, (q.long(), 2)), (convert, (q[:8], 2)),
                                (convert, (q[0], 2)), (convert, (q[:, :63], 2)),
                                (multiply, (x, tiles, 48, scales)),
                                (multiply, (x[0], tiles, 32, scales)),
                                (multiply, (x, tiles, 32, scales.half())),
                                (multiply, (x, tiles, 32, scales[..., 0]))):
            with self.subTest(name=name, shape=arguments[0].shape):
                self.assertRaises((RuntimeError, IndexError), getattr(aten, name), *arguments)
                self.assertRaises(RuntimeError, getattr(ops, name), *arguments)
        self.assert_refused("codes of 0 to 15, found 16", getattr(ops, convert),
                            torch.full((16, 2), 16, dtype=torch.int32), 2)

    def test_takes_the_place_of_aten(self):
        q, scales, w, terms = problem(32, 64, 32, torch.bfloat16)
        x = torch.randn(3, 64, dtype=torch.bfloat16)
        tiles = aten._convert_weight_to_int4pack_for_cpu(q, 2)
        theirs = aten._weight_int4pack_mm_for_cpu(x, tiles, 32, scales)
        byte = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
        self.assertRaises(NotImplementedError, aten._convert_weight_to_int4pack, byte, 2)
        with subbyte.torch.Int4OfAten():
            ours = aten._weight_int4pack_mm_for_cpu(x, tiles, 32, scales)
            self.assertTrue(torch.equal(ours, ops._weight_int4pack_mm_for_cpu(
                x, tiles, 32, scales)))
            words = aten._convert_weight_to_int4pack(byte, 2)
            y = aten._weight_int4pack_mm(x, words, 32, scales)
            self.assert_product(y, x, w, terms=terms)
            self.assertRaisesRegex(RuntimeError, "torch.argument", aten._weight_int4pack_mm, x,
                                   words, 48, scales)
        self.assertRaises(NotImplementedError, aten._convert_weight_to_int4pack, byte, 2)
        again = aten._weight_int4pack_mm_for_cpu(x, tiles, 32, scales)
        self.assertTrue(torch.equal(again, theirs))

    def test_opcheck_and_compile(self):
        q, scales, _, _ = problem(32, 64, 32, torch.float32)
        x = torch.randn(2, 64)
        byte = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
        tiles = ops._convert_weight_to_int4pack_for_cpu(q, 2)
        words = ops._convert_weight_to_int4pack(byte, 2)
        self.check_operator(ops._convert_weight_to_int4pack_for_cpu, q, 2)
        self.check_operator(ops._convert_weight_to_int4pack, byte, 2)
        self.check_operator(ops._weight_int4pack_mm_for_cpu, x, tiles, 32, scales)
        self.check_operator(ops._weight_int4pack_mm, x, words, 32, scales)
        self.check_operator(ops._weight_int4pack_mm_with_scales_and_zeros, x,
                            torch.zeros(32, 8, dtype=torch.int32), 32, scales[..., 0],
                            torch.zeros(2, 32, dtype=torch.int8))
        call = torch.compile(lambda x: ops._weight_int4pack_mm_for_cpu(x, tiles, 32, scales) * 2,
                             fullgraph=True, backend="aot_eager")
        want = ops._weight_int4pack_mm_for_cpu(x, tiles, 32, scales) * 2
        self.assertTrue(torch.equal(call(x), want))


if __name__ == "__main__":
    unittest.main()
