"""bitsandbytes' 4-bit operators beside bitsandbytes' own; kbit beside formulas."""

from __future__ import annotations

import importlib.util
import unittest

import torch

from support import FLOATS, TorchTest, ops

HAS_BNB = importlib.util.find_spec("bitsandbytes") is not None
if HAS_BNB:
    import bitsandbytes  # noqa: F401
    from bitsandbytes.functional import get_4bit_type
SHAPES = ((64,), (4, 64), (3, 40), (5, 7), (2, 3, 64), (1,), (129,))


def half(x: torch.Tensor) -> torch.Tensor:
    """Both codes of each byte, the first number in the high half."""
    return torch.stack([x >> 4, x & 15], dim=-1).flatten()


@unittest.skipUnless(HAS_BNB, "no bitsandbytes in this environment")
class FourBits(TorchTest):
    def test_what_is_not_finite(self):
        """A block with NaN has the scale NaN and the code of the largest number."""
        a = torch.randn(5 * 64 - 3)
        a[3], a[64], a[-1], a[130], a[200] = *[float("nan")] * 3, float("inf"), -float("inf")
        for kind in ("nf4", "fp4"):
            want = torch.ops.bitsandbytes.quantize_4bit(a, 64, kind, torch.uint8)
            found = ops.quantize_4bit(a, 64, kind, torch.uint8)
            self.assertTrue(torch.allclose(found[1], want[1], rtol=0, atol=0, equal_nan=True))
            # -0 and 0 of FP4 are one number.
            codes = [half(x[0].flatten()) for x in (found, want)]
            self.assertTrue(torch.equal(*(torch.where(c == 8, 0, c) if kind == "fp4" else c
                                          for c in codes)))

    def test_same_bytes(self):
        theirs = torch.ops.bitsandbytes
        for kind in ("nf4", "fp4"):
            for dtype in FLOATS:
                for shape in SHAPES:
                    with self.subTest(kind=kind, dtype=dtype, shape=shape):
                        a = (torch.randn(shape) * 3).to(dtype)
                        want = theirs.quantize_4bit(a, 64, kind, torch.uint8)
                        found = ops.quantize_4bit(a, 64, kind, torch.uint8)
                        self.assertEqual(found[0].shape, want[0].shape)
                        self.assertTrue(torch.equal(found[1], want[1]))
                        # -0 and 0 of FP4 are one number.
                        codes = [half(x[0].flatten()) for x in (found, want)]
                        if kind == "fp4":
                            codes = [torch.where(c == 8, 0, c) for c in codes]
                        self.assertTrue(torch.equal(*codes))
                        for to in FLOATS:
                            back = [f(want[0], want[1], 64, kind, list(shape), to)
                                    for f in (theirs.dequantize_4bit, ops.dequantize_4bit)]
                            # Theirs makes [1, n] of [n], other than its own fake kernel.
                            self.assertEqual(tuple(back[1].shape), shape)
                            self.assertTrue(torch.equal(back[0].view(shape), back[1]))

    def test_zeros_and_other_storage(self):
        a = torch.zeros(128)
        for f in (torch.ops.bitsandbytes.quantize_4bit, ops.quantize_4bit):
            self.assertEqual(f(a, 64, "nf4", torch.uint8)[1].tolist(), [0, 0])
        a = torch.randn(4, 64)
        for storage in (torch.uint8, torch.bfloat16, torch.float16, torch.float32):
            want = torch.ops.bitsandbytes.quantize_4bit(a, 32, "nf4", storage)
            found = ops.quantize_4bit(a, 32, "nf4", storage)
            self.assertTrue(torch.equal(found[0].view(torch.uint8), want[0].view(torch.uint8)))
            self.assertEqual((found[0].dtype, found[0].shape), (want[0].dtype, want[0].shape))

    def test_products(self):
        for kind in ("nf4", "fp4"):
            code = get_4bit_type(kind, device="cpu")
            for rows, cols, block in ((16, 128, 64), (8, 96, 64), (6, 40, 64), (3, 7, 32)):
                w = torch.randn(rows, cols)
                packed, absmax = ops.quantize_4bit(w, block, kind, torch.uint8)
                exact = ops.dequantize_4bit(packed, absmax, block, kind, [rows, cols],
                                            torch.float32).double()
                for dtype in FLOATS:
                    for shape in ((cols,), (0, cols), (1, cols), (2, 3, cols), (17, cols)):
                        with self.subTest(kind=kind, rows=rows, dtype=dtype, shape=shape):
                            x = torch.randn(shape).to(dtype)
                            bias = torch.randn(rows).to(dtype)
                            y = ops.gemm_4bit(x, packed, [rows, cols], absmax, block, kind, bias)
                            self.assert_product(y, x, exact, bias)
                            y = ops.gemv_4bit(x, packed, [rows, cols], absmax, code, block)
                            self.assert_product(y, x, exact)
                            out = torch.empty_like(y)
                            ops.gemv_4bit.out(x, packed, [rows, cols], absmax, code, block, out)
                            self.assertTrue(torch.equal(out, y))
                            if x.numel():
                                want = torch.ops.bitsandbytes.gemm_4bit(
                                    x, packed, [rows, cols], absmax, block, kind, bias)
                                self.assertEqual((want.shape, want.dtype), (y.shape, y.dtype))

    def test_nested_scales(self):
        w = torch.randn(16, 1024)
        packed, absmax = ops.quantize_4bit(w, 32, "nf4", torch.uint8)
        offset = absmax.mean()
        code = torch.linspace(-1, 1, 256)
        bytes8, factors = torch.ops.bitsandbytes.quantize_blockwise(absmax - offset, code, 256)
        x = torch.randn(2, 1024)
        arguments = ([16, 1024], factors, 32, "nf4", None, bytes8, code, offset)
        scales = code[bytes8.long()] * factors.repeat_interleave(256)[:absmax.numel()] + offset
        exact = ops.dequantize_4bit(packed, scales, 32, "nf4", [16, 1024], torch.float32)
        y = ops.gemm_4bit(x, packed, *arguments)
        self.assert_product(y, x, exact.double())
        want = torch.ops.bitsandbytes.gemm_4bit(x, packed, *arguments)
        self.assertTrue(torch.allclose(y, want, rtol=1e-4, atol=1e-3))
        self.check_operator(ops.gemm_4bit, x, packed, *arguments)


class Checks(TorchTest):
    def test_refuses(self):
        a = torch.randn(4, 64)
        packed, absmax = ops.quantize_4bit(a, 64, "nf4", torch.uint8)
        self.assert_refused("blocksize: expected a power of two from 32 to 4096, found 48",
                            ops.quantize_4bit, a, 48, "nf4", torch.uint8)
        self.assert_refused('quant_type: expected nf4 or fp4, found "nf5"', ops.quantize_4bit, a,
                            64, "nf5", torch.uint8)
        self.assert_refused("absmax: expected 2 scales", ops.dequantize_4bit, packed, absmax, 128,
                            "nf4", [4, 64], torch.float32)
        self.assert_refused("A: expected 160 bytes for 320 numbers", ops.dequantize_4bit, packed,
                            absmax, 64, "nf4", [5, 64], torch.float32)
        self.assert_refused("A: expected a last dimension of 64", ops.gemm_4bit,
                            torch.randn(2, 60), packed, [4, 64], absmax, 64, "nf4")

    def test_opcheck_and_compile(self):
        a, x = torch.randn(4, 64), torch.randn(2, 64)
        packed, absmax = ops.quantize_4bit(a, 64, "nf4", torch.uint8)
        code = torch.linspace(-1, 1, 16)
        self.check_operator(ops.quantize_4bit, a, 64, "nf4", torch.uint8)
        back = (packed, absmax, 64, "nf4", [4, 64], torch.float16)
        self.check_operator(ops.dequantize_4bit.default, *back)
        self.check_operator(ops.dequantize_4bit.out, *back, torch.empty(4, 64).half())
        product = (x, packed, [4, 64], absmax, code, 64)
        self.check_operator(ops.gemv_4bit.default, *product)
        self.check_operator(ops.gemv_4bit.out, *product, torch.empty(2, 4))
        self.check_operator(ops.gemm_4bit, x, packed, [4, 64], absmax, 64, "nf4")
        call = torch.compile(lambda x: ops.gemm_4bit(x, packed, [4, 64], absmax, 64, "nf4") + 1,
                             fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(call(x), ops.gemm_4bit(x, packed, [4, 64], absmax, 64, "nf4")
                                    + 1))


class Kbit(TorchTest):
    def codes(self, packed: torch.Tensor, k: int, blocks: int) -> torch.Tensor:
        """Codes of a flat buffer, from its bit planes."""
        planes = packed[:blocks * k].view(blocks, k, 1).long()
        bits = planes >> torch.arange(32) & 1
        return (bits << torch.arange(k).view(1, k, 1)).sum(1)

    def scales(self, absmax: torch.Tensor) -> torch.Tensor:
        e, m = (absmax >> 4).double(), (absmax & 15).double()
        return torch.where(e == 0, 2.0**-10 * m / 16, torch.exp2(e - 11) * (1 + m / 16))

    def test_flat_and_tiled(self):
        for k in range(2, 6):
            n, k_dim = 128, 96
            w = torch.randn(n, k_dim)
            book = torch.sort(torch.randn(2**k))[0]
            packed, absmax = ops.quantize_kbit(w, book, k)
            blocks = n * k_dim // 32
            self.assertEqual((packed.numel(), absmax.numel()), ((blocks + 1) * k, blocks + 1))
            values = book[self.codes(packed, k, blocks)].double()
            exact = (values * self.scales(absmax[:blocks]).unsqueeze(1)).view(n, k_dim)
            found = ops.dequantize_kbit(packed, book, absmax, k, n * k_dim, torch.float32)
            self.assertTrue(torch.equal(found.view(n, k_dim), exact.float()))
            tiles, scales = ops.repack_kbit(packed, absmax, k_dim, n, k)
            found = ops.dequantize_kbit_tiled(tiles, book, scales, k, k_dim, n, torch.float32)
            self.assertTrue(torch.equal(found, exact.float()))
            for dtype in (torch.float16, torch.bfloat16):
                for m in (0, 1, 4, 9):
                    x = torch.randn(m, k_dim).to(dtype)
                    y = ops.kbit_gemm_prod(x, tiles, scales, book, k_dim, n, k, 1)
                    self.assert_product(y, x, exact)
                    if m <= 4:
                        y = ops.kbit_scalar_gemv(x, packed, absmax, book, k_dim, n, k)
                        self.assert_product(y, x, exact)
                        y = ops.kbit_scalar_gemv_tiled(x, tiles, scales, book, k_dim, n, k)
                        self.assert_product(y, x, exact)
            x = torch.randn(5, k_dim).half()
            self.assert_refused("kbit.rows", ops.kbit_scalar_gemv, x, packed, absmax, book, k_dim,
                                n, k)
            offsets = torch.tensor([0, 3, 3, 5], dtype=torch.int32)
            blocks = tiles.numel() // k - 1
            many = [t[:blocks * c].repeat(3) for t, c in ((tiles, k), (scales, 1))]
            y = ops.kbit_grouped_gemm(x, *many, book, offsets, k_dim, n, k, 3, 3)
            self.assert_product(y, x, exact)

    def test_the_encoder_of_scales_is_chosen_by_a_flag(self):
        """1.97 becomes 1.9375 there, where the nearest is 2; 40 would become 20."""
        book = torch.linspace(-1, 1, 16)
        for largest, theirs, nearest in ((1.97, 1.9375, 2.0), (31.6, 31.0, 31.0), (1.5, 1.5, 1.5)):
            a = torch.randn(32).clamp(-1, 1) * largest
            a[7] = largest
            for flag, want in ((False, theirs), (True, nearest)):
                packed, absmax = ops.quantize_kbit(a, book, 4, nearest_scales=flag)
                self.assertEqual(self.scales(absmax[:1]).item(), want)
                back = ops.dequantize_kbit(packed, book, absmax, 4, 32, torch.float32)
                self.assertEqual(back[7].item(), want)
                if flag:  # the nearest of what the stored scale gives
                    off = (a.unsqueeze(1) - book * want).abs().amin(1)
                    self.assertTrue(torch.allclose((back - a).abs(), off, atol=1e-6))
        self.assertTrue(torch.equal(ops.quantize_kbit(a, book, 4)[0],
                                    ops.quantize_kbit(a, book, 4, nearest_scales=False)[0]))
        a[7] = 40
        for flag in (False, True):
            self.assert_refused("expected numbers below 32", ops.quantize_kbit, a, book, 4,
                                nearest_scales=flag)

    def test_vectors(self):
        for p in (2, 4):
            n, k_dim = 128, 64
            book = torch.randn(256, p).half()
            packed, absmax = ops.quantize_vq(torch.randn(n, k_dim), book, p)
            index = packed.view(torch.uint8)[:n * k_dim // p].long()
            scales = self.scales(absmax[:n * k_dim // 32]).repeat_interleave(32)
            exact = (book[index].double().flatten() * scales).view(n, k_dim)
            found = ops.dequantize_vq(packed, book, absmax, p, n * k_dim, torch.float32)
            self.assertTrue(torch.equal(found.view(n, k_dim), exact.float()))
            tiles, tiled = ops.repack_vq(packed, absmax, k_dim, n, p)
            found = ops.dequantize_vq_tiled(tiles, book, tiled, p, k_dim, n, torch.float32)
            self.assertTrue(torch.equal(found, exact.float()))
            x = torch.randn(3, k_dim).half()
            self.assert_product(ops.vq_gemm_prod(x, tiles, tiled, book, k_dim, n, p, 1), x, exact)
            self.assert_product(ops.vq_scalar_gemv(x, packed, absmax, book, k_dim, n, p), x, exact)

    def test_hadamard(self):
        matrix = torch.ones(1, 1, dtype=torch.float64)
        while matrix.shape[0] < 64:
            matrix = torch.kron(torch.tensor([[1.0, 1], [1, -1]], dtype=torch.float64), matrix)
        x = torch.randn(6, 128).half()
        signs = torch.tensor([0x0F0F0F0F, -1], dtype=torch.int32)
        flips = 1 - 2.0 * (signs.long().unsqueeze(1) >> torch.arange(32) & 1).flatten()
        want = ((x.double().view(-1, 64) * flips) @ matrix / 8).view(6, 128)
        ops.hadamard_rotate_(x, 64, signs)
        self.assertTrue(torch.allclose(x.double(), want, rtol=2**-10, atol=1e-3))
        full = torch.randn(2, 512).half()
        before = full.clone()
        ops.hadamard_rotate_full_(full, 512)
        ops.hadamard_rotate_full_(full, 512)
        self.assertTrue(torch.allclose(full, before, atol=8e-3))

    def test_opcheck(self):
        book = torch.linspace(-1, 1, 8)
        packed, absmax = ops.quantize_kbit(torch.randn(128, 64), book, 3)
        tiles, scales = ops.repack_kbit(packed, absmax, 64, 128, 3)
        x = torch.randn(2, 64).half()
        vectors = torch.randn(256, 2).half()
        coded = ops.quantize_vq(torch.randn(128, 64), vectors, 2)
        for name, arguments in (
                ("quantize_kbit", (torch.randn(77), book, 3)),
                ("dequantize_kbit", (packed, book, absmax, 3, 99, torch.float16)),
                ("dequantize_kbit_", (packed, book, absmax, 3, 99, torch.float16,
                                      torch.zeros(128).half())),
                ("dequantize_kbit_tiled", (tiles, book, scales, 3, 64, 128, torch.float32)),
                ("repack_kbit", (packed, absmax, 64, 128, 3)),
                ("kbit_gemm_prod", (x, tiles, scales, book, 64, 128, 3, 1)),
                ("kbit_scalar_gemv", (x, packed, absmax, book, 64, 128, 3)),
                ("kbit_scalar_gemv_tiled", (x, tiles, scales, book, 64, 128, 3)),
                ("kbit_grouped_gemm", (x, tiles, scales, book,
                                       torch.tensor([0, 2], dtype=torch.int32), 64, 128, 3, 1, 2)),
                ("quantize_vq", (torch.randn(70), vectors, 2)),
                ("dequantize_vq", (coded[0], vectors, coded[1], 2, 128 * 64, torch.float32)),
                ("repack_vq", (*coded, 64, 128, 2)),
                ("vq_scalar_gemv", (x, *coded, vectors, 64, 128, 2)),
                ("hadamard_rotate_", (torch.randn(2, 64).half(), 32)),
                ("hadamard_rotate_full_", (torch.randn(2, 512).half(), 512))):
            with self.subTest(name=name):
                self.check_operator(getattr(ops, name).default, *arguments)


if __name__ == "__main__":
    unittest.main()
