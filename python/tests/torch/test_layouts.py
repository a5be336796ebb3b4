"""FlashInfer's and vLLM's operators against formulas in double precision and pictures."""

from __future__ import annotations

import time
import unittest

import torch

import subbyte.torch
from support import FLOATS, TorchTest, ops

E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6]).double()


def round_up(number: int, multiple: int) -> int:
    return (number + multiple - 1) // multiple * multiple


def swizzle(scales: torch.Tensor, atom: int = 128) -> torch.Tensor:
    """Rows of scales as the tensor cores' atoms, padding 0: by the formula, a byte at a time."""
    rows, cols = scales.shape
    wide = round_up(cols, 4)
    out = torch.zeros(round_up(rows, atom) * wide, dtype=scales.dtype)
    for row in range(rows):
        for col in range(cols):
            if atom == 128:
                at = ((row // 128 * (wide // 4) + col // 4) * 512 + row % 32 * 16
                      + row % 128 // 32 * 4 + col % 4)
            else:
                at = (row // 8 * (wide // 4) + col // 4) * 32 + row % 8 * 4 + col % 4
            out[at] = scales[row, col]
    return out


def unpack_fp4(codes: torch.Tensor) -> torch.Tensor:
    return E2M1[torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).long()]


def mx_scale(x: torch.Tensor, largest: float) -> torch.Tensor:
    """E8M0 codes of groups of 32: amax / largest rounded up to a power of two."""
    amax = x.double().view(x.shape[0], -1, 32).abs().amax(-1)
    exponent = torch.ceil(torch.log2(amax / largest))
    return torch.where(amax == 0, 0, exponent + 127).to(torch.uint8)


class Flashinfer(TorchTest):
    def test_mxfp8(self):
        for dtype in FLOATS:
            for rows, cols, alignment in ((3, 64, 32), (130, 96, 128), (1, 32, 32)):
                x = (torch.randn(rows, cols) * 5).to(dtype)
                want = mx_scale(x, 448)
                power = torch.exp2(want.double() - 127).repeat_interleave(32, 1)
                codes = (x.double() / power).float().to(torch.float8_e4m3fn)
                padded = round_up(cols, alignment)
                for layout, atom in ((0, 128), (1, 8), (2, 0)):
                    q, sf = ops.mxfp8_quantize(x, alignment=alignment, sf_swizzle_layout=layout)
                    self.assertEqual((q.dtype, tuple(q.shape)),
                                     (torch.float8_e4m3fn, (rows, padded)))
                    self.assertTrue(torch.equal(q[:, :cols].view(torch.uint8),
                                                codes.view(torch.uint8)))
                    full = torch.zeros(rows, padded // 32, dtype=torch.uint8)
                    full[:, :cols // 32] = want
                    self.assertTrue(torch.equal(sf, swizzle(full, atom) if atom else
                                                full.flatten()))
                default = ops.mxfp8_quantize(x, True, alignment)[1]
                self.assertTrue(torch.equal(default, swizzle(full)))
        q, sf = ops.mxfp8_quantize(torch.randn(2, 3, 64), False)
        self.assertEqual((tuple(q.shape), sf.numel()), ((2, 3, 64), 12))
        q, sf = ops.mxfp8_quantize(torch.randn(0, 64))
        self.assertEqual((tuple(q.shape), sf.numel()), ((0, 64), 0))

    def test_mxfp4_and_back(self):
        x = torch.randn(9, 96)
        linear = mx_scale(x, 6)
        power = torch.exp2(linear.double() - 127).repeat_interleave(32, 1)
        for layout, atom in ((0, 128), (1, 8), (2, 0)):
            q, sf = ops.mxfp4_quantize(x, sfLayout=layout)
            self.assertTrue(torch.equal(sf.flatten(), swizzle(linear, atom) if atom else
                                        linear.flatten()))
            values = unpack_fp4(q)
            nearest = (x.double().unsqueeze(-1) / power.unsqueeze(-1) - E2M1).abs().amin(-1)
            self.assertTrue(torch.equal((x.double() / power - values).abs(), nearest))
            back = ops.mxfp4_dequantize(q, sf, layout)
            self.assertTrue(torch.equal(back.double(), values * power))
        self.assertTrue(torch.equal(ops.mxfp4_dequantize_host(q, linear), back))

    def test_nvfp4_and_back(self):
        x = torch.randn(5, 64)
        factor = (448 * 6 / x.abs().max()).view(1)
        for layout, atom in ((0, 128), (1, 8), (2, 0)):
            q, sf = ops.nvfp4_quantize(x, factor, layout)
            amax = x.double().view(5, 4, 16).abs().amax(-1)
            want = (amax / 6 * factor.double()).float().to(torch.float8_e4m3fn)
            bytes8 = want.view(torch.uint8)
            self.assertTrue(torch.equal(sf.flatten(), swizzle(bytes8, atom) if atom else
                                        bytes8.flatten()))
            back = ops.e2m1_and_ufp8sf_scale_to_float(
                q, sf.flatten(), 1 / factor, 16, 1, layout != 2, layout == 1)
            scale = (want.double() / factor.double()).repeat_interleave(16, 1)
            self.assertTrue(torch.allclose(back.double(), unpack_fp4(q) * scale, rtol=1e-6))
            # Half of the widest step of E2M1 and what the scale was rounded by.
            self.assertLess(((back - x).abs() / scale).max().item(), 1 + 6 / 16)

    def test_interleave(self):
        for dtype in (torch.uint8, torch.bfloat16):
            scales = torch.randint(0, 200, (2, 130, 6)).to(dtype)
            want = torch.cat([swizzle(one) for one in scales])
            self.assertTrue(torch.equal(ops.block_scale_interleave(scales), want))
            self.assertTrue(torch.equal(ops.nvfp4_block_scale_interleave(scales[0]),
                                        swizzle(scales[0])))

    def gemm(self, groups: tuple[int, ...], n: int, k: int):
        m = sum(groups)
        codes = torch.randint(0, 256, (len(groups), n, k // 2), dtype=torch.uint8)
        scales = torch.randint(120, 130, (len(groups), n, k // 32), dtype=torch.uint8)
        a = torch.randn(m, k).to(torch.float8_e4m3fn)
        a_scales = torch.randint(120, 130, (m, k // 32), dtype=torch.uint8)
        indptr = torch.tensor([sum(groups[:i]) for i in range(len(groups) + 1)],
                              dtype=torch.int32)
        rows = [(int(indptr[i]) + 127 * i) // 128 * 128 for i in range(len(groups) + 1)]
        buffer = torch.zeros(rows[-1], k // 32, dtype=torch.uint8)
        wide = torch.exp2(scales.double() - 127).repeat_interleave(32, 2)
        w = unpack_fp4(codes) * wide
        x = a.double() * torch.exp2(a_scales.double() - 127).repeat_interleave(32, 1)
        want = torch.cat([x[indptr[i]:indptr[i + 1]] @ w[i].T for i in range(len(groups))])
        for i in range(len(groups)):
            buffer[rows[i]:rows[i] + groups[i]] = a_scales[indptr[i]:indptr[i + 1]]
        b_scale = torch.stack([swizzle(one).view(-1, k // 32) for one in scales])
        return (a, codes, swizzle(buffer).view(-1, k // 32), b_scale, indptr), want

    def test_group_gemm(self):
        for groups in ((4, 0, 8), (12,), (0,)):
            arguments, want = self.gemm(groups, 16, 128)
            for dtype in (torch.bfloat16, torch.float16):
                y = ops.group_gemm_mxfp8_mxfp4_nt_groupwise(*arguments, out_dtype=dtype)
                half = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
                self.assertTrue(torch.allclose(y.double(), want, rtol=half, atol=1e-3))
                out = torch.empty_like(y)
                ops.group_gemm_mxfp8_mxfp4_nt_groupwise_out(*arguments, out=out)
                self.assertTrue(torch.equal(out, y))
            old = ops.group_gemm_mxfp4_nt_groupwise(*arguments)
            self.assertEqual(old.dtype, torch.bfloat16)
        self.assert_refused("group_gemm.tile_n", ops.group_gemm_mxfp8_mxfp4_nt_groupwise,
                            *arguments, tile_n=48)
        self.assert_refused("m_indptr: expected sizes [2]",
                            ops.group_gemm_mxfp8_mxfp4_nt_groupwise, *arguments[:4],
                            torch.zeros(3, dtype=torch.int32))
        self.assert_refused("out_dtype: expected bf16 or f16, found f32",
                            ops.group_gemm_mxfp8_mxfp4_nt_groupwise, *arguments,
                            out_dtype=torch.float32)

    def test_refuses(self):
        x = torch.randn(2, 64)
        self.assert_refused("blocks.shape", ops.mxfp8_quantize, torch.randn(2, 48))
        self.assert_refused("sfLayout: expected 0 (128x4)", ops.mxfp4_quantize, x, sfLayout=3)
        self.assert_refused("do_shuffle", ops.nvfp4_quantize, x, torch.ones(1), 0, True)
        self.assert_refused("a_sf: expected 512 scales", ops.mxfp4_dequantize,
                            torch.zeros(2, 32, dtype=torch.uint8),
                            torch.zeros(4, dtype=torch.uint8))

    def test_opcheck(self):
        x = torch.randn(3, 64)
        q, sf = ops.mxfp4_quantize(x)
        arguments, _ = self.gemm((4, 8), 16, 128)
        for name, given in (("mxfp4_quantize", (x,)), ("nvfp4_quantize", (x, torch.ones(1))),
                            ("mxfp4_dequantize", (q, sf)),
                            ("mxfp4_dequantize_host", (q, torch.zeros(3, 2, dtype=torch.uint8))),
                            ("e2m1_and_ufp8sf_scale_to_float",
                             (q, torch.zeros(128, 4, dtype=torch.uint8))),
                            ("block_scale_interleave", (sf,))):
            self.check_operator(getattr(ops, name), *given)
        # torch cannot compare tensors of 8-bit floats, so the other checks have to do.
        only = ("test_autograd_registration", "test_faketensor")
        torch.library.opcheck(ops.mxfp8_quantize, (x,), test_utils=only)
        torch.library.opcheck(ops.group_gemm_mxfp8_mxfp4_nt_groupwise, arguments, test_utils=only)
        call = torch.compile(lambda *a: ops.group_gemm_mxfp8_mxfp4_nt_groupwise(*a),
                             fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(call(*arguments),
                                    ops.group_gemm_mxfp8_mxfp4_nt_groupwise(*arguments)))


def scalar_type(exponent: int, mantissa: int, signed: bool = False, bias: int = 0) -> int:
    """The number of a type in vLLM, with IEEE's NaN for integers."""
    return exponent | mantissa << 8 | signed << 16 | bias << 17 | 1 << 50


U4, U4B8, U8B128, E2M1F = (scalar_type(0, 4), scalar_type(0, 4, bias=8),
                           scalar_type(0, 8, bias=128), scalar_type(2, 1, True))


def to_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """[..., 32 / bits] codes, the first in the low bits, as int32 [...]."""
    words = (codes.long() << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def gptq_words(q: torch.Tensor, bits: int) -> torch.Tensor:
    """q [K, N] as GPTQ has it."""
    k, n = q.shape
    return to_words(q.view(k * bits // 32, 32 // bits, n).transpose(1, 2), bits)


def awq_words(q: torch.Tensor, bits: int = 4) -> torch.Tensor:
    order = [0, 2, 4, 6, 1, 3, 5, 7] if bits == 4 else [0, 2, 1, 3]
    k, n = q.shape
    return to_words(q.view(k, n * bits // 32, 32 // bits)[..., order], bits)


def marlin_words(q: torch.Tensor, bits: int) -> torch.Tensor:
    """q [K, N] in tiles of 16 x 64, by the order in which a warp reads: columns in steps of 8."""
    k, n = q.shape
    out = torch.zeros(k // 16, n * 16 * bits // 32, 32 // bits, dtype=torch.long)
    for kt in range(k // 16):
        for nt in range(n // 64):
            for lane in range(32):
                k0 = kt * 16 + lane % 4 * 2
                for warp in range(4):
                    n0 = nt * 64 + warp * 16 + lane // 4
                    first = [q[k0 + d, n0] for d in (0, 1, 8, 9)]
                    second = [q[k0 + d, n0 + 8] for d in (0, 1, 8, 9)]
                    eight = first + second
                    if bits == 4:
                        at = (nt * 32 + lane) * 4 + warp
                        out[kt, at] = torch.stack([eight[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)])
                    else:
                        at = (nt * 32 + lane) * 8 + warp * 2
                        out[kt, at] = torch.stack([first[i] for i in (0, 2, 1, 3)])
                        out[kt, at + 1] = torch.stack([second[i] for i in (0, 2, 1, 3)])
    return to_words(out, bits)


def scale_order(grouped: bool) -> list[int]:
    if grouped:
        return [i + 8 * j for i in range(8) for j in range(8)]
    return [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]


def permute(scales: torch.Tensor, grouped: bool) -> torch.Tensor:
    order = scale_order(grouped)
    return scales.reshape(-1, len(order))[:, order].reshape(scales.shape).contiguous()


class Marlin(TorchTest):
    def test_repack(self):
        for bits in (4, 8):
            q = torch.randint(0, 1 << bits, (48, 128))
            want = marlin_words(q, bits)
            found = ops.gptq_marlin_repack(gptq_words(q, bits), 48, 128, bits)
            self.assertTrue(torch.equal(found, want))
            found = ops.awq_marlin_repack(awq_words(q, bits), 48, 128, bits)
            self.assertTrue(torch.equal(found, want))
            perm = torch.randperm(48, dtype=torch.int32)
            found = ops.gptq_marlin_repack(gptq_words(q, bits), perm, 48, 128, bits)
            self.assertTrue(torch.equal(found, marlin_words(q[perm.long()], bits)))
            for wrong in (-1, int(perm[5]), 48):
                perm[9] = wrong
                self.assert_refused(f"perm: expected every input once, found {wrong} at column 9",
                                    ops.gptq_marlin_repack.perm, gptq_words(q, bits), perm, 48,
                                    128, bits)
        empty = torch.empty(0, dtype=torch.int32)
        found = ops.gptq_marlin_repack(gptq_words(q, 8), empty, 48, 128, 8)
        self.assertTrue(torch.equal(found, want))

    def gemm(self, x, words, scales, kind, n, k, bias=None, zeros=None, factor=None):
        return ops.marlin_gemm(x, None, words, bias, scales, None, factor, zeros,
                               torch.zeros(8, dtype=torch.int32), kind, x.shape[0], n, k)

    def test_integers(self):
        k, n = 128, 64
        for dtype in (torch.float16, torch.bfloat16):
            for bits, kind, middle in ((4, U4B8, 8), (8, U8B128, 128)):
                for group in (32, 128):
                    q = torch.randint(0, 1 << bits, (k, n))
                    scales = (torch.rand(k // group, n) + 0.5).to(dtype)
                    w = (q.double() - middle) * scales.double().repeat_interleave(group, 0)
                    words = ops.gptq_marlin_repack(gptq_words(q, bits), k, n, bits)
                    bias = torch.randn(n).to(dtype)
                    for m in (0, 1, 5, 40):
                        with self.subTest(dtype=dtype, bits=bits, group=group, m=m):
                            x = torch.randn(m, k).to(dtype)
                            y = self.gemm(x, words, permute(scales, group < k), kind, n, k,
                                          permute(bias, False))
                            self.assert_product(y, x, w.T, bias)

    def test_zero_points(self):
        k, n, group = 128, 128, 64
        q = torch.randint(0, 16, (k, n))
        scales = (torch.rand(k // group, n) + 0.5).half()
        zeros = torch.randint(0, 16, (k // group, n))
        wide = [t.double().repeat_interleave(group, 0) for t in (zeros, scales)]
        w = (q.double() - wide[0]) * wide[1]
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        packed = to_words(permute(zeros, True).view(-1, n // 8, 8)[..., order], 4)
        words = ops.awq_marlin_repack(awq_words(q), k, n, 4)
        x = torch.randn(3, k).half()
        y = self.gemm(x, words, permute(scales, True), U4, n, k, zeros=packed)
        self.assert_product(y, x, w.T)

    def test_fp4(self):
        k, n = 64, 64
        q = torch.randint(0, 16, (k, n))
        words = ops.gptq_marlin_repack(gptq_words(q, 4), k, n, 4)

        def order(scales):
            rows = permute(scales, True)
            return rows.view(-1, 4)[:, [0, 2, 1, 3]].reshape(rows.shape).contiguous()

        for dtype in (torch.float16, torch.bfloat16):
            x = torch.randn(4, k).to(dtype)
            bytes8 = torch.randint(120, 130, (k // 32, n), dtype=torch.uint8)
            w = E2M1[q] * torch.exp2(bytes8.double() - 127).repeat_interleave(32, 0)
            y = self.gemm(x, words, order(bytes8), E2M1F, n, k)
            self.assert_product(y, x, w.T)
            scales = (torch.rand(k // 16, n) * 100 + 230).to(torch.float8_e4m3fn)
            w = E2M1[q] * scales.double().repeat_interleave(16, 0) * 0.01
            halves = (scales.double() * 128).half().view(torch.int16).to(torch.int32)
            held = (halves >> 7 & 255).to(torch.uint8)
            unit = 2.0**7 if dtype == torch.float16 else 2.0**119
            factor = torch.tensor([0.01 * unit])
            y = self.gemm(x, words, order(held).view(torch.float8_e4m3fn), E2M1F, n, k,
                          factor=factor)
            self.assert_product(y, x, w.T * (factor.double().item() / unit / 0.01))

    def test_act_order(self):
        k, n, group = 64, 64, 32
        g_idx = torch.randperm(k) // group
        perm = torch.argsort(g_idx, stable=True).to(torch.int32)
        q = torch.randint(0, 16, (k, n))
        scales = (torch.rand(2, n) + 0.5).half()
        w = (q.double() - 8) * scales.double()[g_idx]
        words = ops.gptq_marlin_repack(gptq_words(q, 4), perm, k, n, 4)
        x = torch.randn(3, k).half()
        sorted_idx = g_idx[perm.long()].to(torch.int32)
        workspace = torch.zeros(8, dtype=torch.int32)
        y = ops.gptq_marlin_gemm(x, None, words, None, permute(scales, True), None, None,
                                 sorted_idx, perm, workspace, U4B8, 3, n, k, True)
        self.assert_product(y, x, w.T)
        self.assert_refused("layout.input_order", ops.gptq_marlin_gemm, x, None, words, None,
                            permute(scales, True), None, None, sorted_idx.flip(0).contiguous(),
                            perm, workspace, U4B8, 3, n, k, True)

    def test_awq(self):
        k, n, group = 64, 32, 32
        q, zeros = torch.randint(0, 16, (k, n)), torch.randint(0, 16, (2, n))
        scales = (torch.rand(2, n) + 0.5).half()
        wide = [t.double().repeat_interleave(group, 0) for t in (zeros, scales)]
        w = (q.double() - wide[0]) * wide[1]
        words, packed = awq_words(q), awq_words(zeros)
        for m in (0, 1, 7):
            x = torch.randn(m, k).half()
            self.assert_product(ops.awq_gemm(x, words, scales, packed, 8), x, w.T)
        found = ops.awq_dequantize(words, scales, packed, 0, 0, 0)
        self.assertTrue(torch.equal(found, w.half()))
        self.check_operator(ops.awq_gemm, x, words, scales, packed, 8)
        self.check_operator(ops.awq_dequantize, words, scales, packed, 0, 0, 0)

    def test_refuses_and_opcheck(self):
        k, n = 64, 64
        q = torch.randint(0, 16, (k, n))
        gptq = gptq_words(q, 4)
        words = ops.gptq_marlin_repack(gptq, k, n, 4)
        scales = torch.ones(2, n).half()
        x = torch.randn(2, k).half()
        self.assert_refused("layout.shape", ops.gptq_marlin_repack, gptq[:, :32], k, 32, 4)
        self.assert_refused("num_bits: expected 4 or 8, found 3", ops.gptq_marlin_repack, gptq, k,
                            n, 3)
        self.assert_refused("is_a_8bit: expected False", ops.gptq_marlin_repack, gptq, k, n, 4,
                            True)
        self.assert_refused("b_q_type: expected u4", self.gemm, x, words, scales,
                            scalar_type(0, 3), n, k)
        self.assert_refused("b_zeros: expected zero points", self.gemm, x, words, scales, U4, n, k)
        self.assert_refused("a: expected f16 or bf16", self.gemm, x.float(), words, scales, U4B8,
                            n, k)
        self.check_operator(ops.gptq_marlin_repack.default, gptq, k, n, 4)
        perm = torch.randperm(k, dtype=torch.int32)
        self.check_operator(ops.gptq_marlin_repack.perm, gptq, perm, k, n, 4)
        self.check_operator(ops.awq_marlin_repack, awq_words(q), k, n, 4)
        space = torch.zeros(8, dtype=torch.int32)
        self.check_operator(ops.marlin_gemm, x, None, words, None, scales, None, None, None, space,
                            U4B8, 2, n, k)
        self.check_operator(ops.gptq_marlin_gemm, x, None, words, None, scales, None, None, None,
                            None, space, U4B8, 2, n, k)

    def test_thousands_are_kept_and_found(self):
        """As a model has them, which asks for them in turns; a call costs as much as with one."""
        n, k, count = 16, 32, 5000
        x = torch.randn(1, k)
        codes = torch.randint(0, 16, (count, n, k), dtype=torch.int32)
        words = [ops._convert_weight_to_int4pack_for_cpu(one, 2) for one in codes]
        scales = torch.rand(1, n, 2)

        def seconds(tiles) -> float:
            begin = time.thread_time()
            for one in tiles:
                ops._weight_int4pack_mm_for_cpu(x, one, 32, scales)
            return time.thread_time() - begin

        subbyte.torch.forget()
        seconds(words)
        kept = subbyte.torch.kept_bytes()
        of_each = min(seconds(words) for _ in range(3))
        self.assertEqual(subbyte.torch.kept_bytes(), kept)
        self.assertGreaterEqual(kept, count * n * k // 2)
        of_one = min(seconds(words[:1] * count) for _ in range(3))
        self.assertLess(of_each, 4 * of_one)  # caches forget them, too
        subbyte.torch.forget()

    def test_copies_are_kept_and_let_go(self):
        subbyte.torch.forget()
        k, n = 64, 64
        words = ops.gptq_marlin_repack(gptq_words(torch.randint(0, 16, (k, n)), 4), k, n, 4)
        scales, x = torch.ones(2, n).half(), torch.randn(2, k).half()
        first = self.gemm(x, words, scales, U4B8, n, k)
        kept = subbyte.torch.kept_bytes()
        # Words and scales are held, beside what was made of them.
        self.assertEqual(kept, 2 * (n * k // 2 + n * 2 * 2))
        self.assertTrue(torch.equal(self.gemm(x, words, scales, U4B8, n, k), first))
        self.assertEqual(subbyte.torch.kept_bytes(), kept)
        scales.mul_(2)
        self.assertTrue(torch.equal(self.gemm(x, words, scales, U4B8, n, k), first * 2))
        self.assertEqual(subbyte.torch.kept_bytes(), kept)
        subbyte.torch.forget()
        self.assertEqual(subbyte.torch.kept_bytes(), 0)


if __name__ == "__main__":
    unittest.main()
