"""Marlin's float zero points and fp8, "4 over 6" of NVFP4, and results in `out`."""

from __future__ import annotations

import unittest

import torch

import subbyte.torch
from support import TorchTest, ops
from test_layouts import U4, gptq_words, permute, scalar_type

E4M3F = scalar_type(4, 3, True)
HALF = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])


class MarlinVariants(TorchTest):
    def gemm(self, x, words, scales, kind, n, k, zeros=None, float_zeros=False):
        space = torch.zeros(8, dtype=torch.int32)
        return ops.marlin_gemm(x, None, words, None, scales, None, None, zeros, space, kind,
                               x.shape[0], n, k, False, True, float_zeros)

    def test_float_zero_points(self):
        """w = (q - zero) * scale, as HQQ has it."""
        k, n = 128, 64
        for group in (64, 128):
            q = torch.randint(0, 16, (k, n))
            scales = (torch.rand(k // group, n) + 0.5).half()
            zeros = (torch.rand(k // group, n) * 15).half()
            wide = [t.double().repeat_interleave(group, 0) for t in (zeros, scales)]
            w = (q.double() - wide[0]) * wide[1]
            terms = (q.double() + wide[0]) * wide[1]
            words = ops.gptq_marlin_repack(gptq_words(q, 4), k, n, 4)
            for m in (1, 9):
                x = torch.randn(m, k).half()
                y = self.gemm(x, words, permute(scales, group < k), U4, n, k,
                              permute(zeros, group < k), True)
                # The product of a zero point and its scale is rounded to f32 once.
                self.assert_product(y, x, w.T, terms=terms.T)
        self.assert_refused("is_zp_float: expected False unless", self.gemm, x.bfloat16(), words,
                            permute(scales, False).bfloat16(), U4, n, k, zeros.bfloat16(), True)

    def test_fp8_weights(self):
        """Scales hold what the exponents of e4m3 and of the activations are apart."""
        k, n = 256, 64
        codes = torch.randn(k, n).to(torch.float8_e4m3fn)
        words = ops.gptq_marlin_repack(gptq_words(codes.view(torch.uint8), 8), k, n, 8)
        for dtype, apart in ((torch.float16, 2.0**8), (torch.bfloat16, 2.0**120)):
            for group in (128, 256):
                scales = (torch.rand(k // group, n) * 0.25 + 0.5).to(dtype)
                w = codes.double() * scales.double().repeat_interleave(group, 0)
                held = (scales.double() * apart).to(dtype)
                x = torch.randn(5, k).to(dtype)
                y = self.gemm(x, words, permute(held, group < k), E4M3F, n, k)
                self.assert_product(y, x, w.T)

    def test_refuses_activations_of_8_bits(self):
        words = torch.zeros(8, 128, dtype=torch.int32)
        x = torch.zeros(2, 128, dtype=torch.int8)
        self.assert_refused("a: expected f16 or bf16, found i8", self.gemm, x, words,
                            torch.ones(1, 64).half(), U4, 64, 128)


class FourOverSix(TorchTest):
    def search(self, x, scale, mode):
        """FlashInfer's rule, a block at a time."""
        codes, scales = [], []
        for block in x.float().view(-1, 16):
            largest = block.abs().max()
            best = None
            for wanted in (largest / 6 * scale, largest / 6 * scale * 1.5):
                s = wanted.clamp(max=448).to(torch.float8_e4m3fn)
                q = (block * (1 / (s.float() * (1 / scale)))).clamp(-6, 6)
                # Halves go to the even code, which is what the middle between two is nearest to.
                at = (q.abs().unsqueeze(-1) - HALF).abs()
                low = at.argmin(-1)
                tie = (low < 7) & (at.gather(-1, low.unsqueeze(-1)).squeeze(-1) ==
                                   at.gather(-1, (low + 1).clamp(max=7).unsqueeze(-1)).squeeze(-1))
                code = torch.where(tie & (low % 2 == 1), low + 1, low)
                off = (HALF[code] * torch.where(q < 0, -1, 1)) * s.float() * (1 / scale) - block
                error = (off * off if mode == "MSE" else off.abs()).cumsum(0)[-1]
                if best is None or error < best[0]:
                    best = error, code + 8 * (torch.signbit(q)).long(), s.view(torch.uint8)
            codes.append(best[1])
            scales.append(best[2])
        full = torch.stack(codes).view(x.shape)
        return (full[:, ::2] | full[:, 1::2] << 4).to(torch.uint8), torch.stack(scales)

    def test_both_errors(self):
        for dtype in (torch.float16, torch.bfloat16):
            x = torch.randn(24, 64).to(dtype)
            scale = (256 * 6 / x.float().abs().max()).view(1)
            plain = ops.nvfp4_quantize(x, scale, 2)
            for mode in ("MAE", "MSE"):
                codes, scales = ops.nvfp4_quantize(x, scale, 2, nvfp4_4over6=mode)
                want = self.search(x, scale, mode)
                self.assertTrue(torch.equal(codes, want[0]))
                self.assertTrue(torch.equal(scales.flatten(), want[1].flatten()))
                self.assertFalse(torch.equal(scales, plain[1]))

                def error(parts):
                    back = ops.e2m1_and_ufp8sf_scale_to_float(*parts, 1 / scale, 16, 1, False)
                    off = back - x.float()
                    return (off * off if mode == "MSE" else off.abs()).sum().item()

                self.assertLess(error((codes, scales)), error(plain))

    def test_layouts_zeros_and_what_is_not_finite(self):
        x = torch.randn(130, 128).half()
        x[3] = 0
        x[5, 7] = float("inf")
        scale = torch.ones(1)
        linear = ops.nvfp4_quantize(x, scale, 2, nvfp4_4over6="MSE")
        plain = ops.nvfp4_quantize(x, scale, 2)
        for row, cols in ((3, slice(0, 64)), (5, slice(0, 8))):
            self.assertTrue(torch.equal(linear[0][row, cols], plain[0][row, cols]))
        for layout in (0, 1):
            codes, scales = ops.nvfp4_quantize(x, scale, layout, nvfp4_4over6="MSE")
            self.assertTrue(torch.equal(codes, linear[0]))
            if layout == 0:
                self.assertTrue(torch.equal(scales.flatten(),
                                            ops.block_scale_interleave(linear[1])))
        self.assert_refused("nvfp4_4over6: expected MAE or MSE", ops.nvfp4_quantize, x, scale,
                            nvfp4_4over6="L2")
        self.check_operator(ops.nvfp4_quantize, x, scale, 0, nvfp4_4over6="MAE")


class Out(TorchTest):
    """What writes into `out` writes what the operator without it returns."""

    def check(self, name, arguments, out_name, *unused, named=False):
        want = getattr(ops, name)(*arguments)
        out = torch.full_like(want, float("nan") if want.is_floating_point() else 1)
        function = ops
        for part in out_name.split("."):
            function = getattr(function, part)
        if named:
            function(*arguments, out=out)
            self.check_operator(function, *arguments, out=out)
        else:
            function(*arguments, out, *unused)
            self.check_operator(function, *arguments, out, *unused)
        self.assertTrue(torch.equal(out, want))
        wrong = torch.empty(7, dtype=want.dtype)
        with self.assertRaises(RuntimeError):
            function(*arguments, **({"out": wrong} if named else {})) if named else function(
                *arguments, wrong, *unused)

    def test_kbit_and_vectors(self):
        k_dim, n = 64, 128
        w = torch.randn(n * k_dim)
        space = torch.empty(2, n), torch.zeros(4, dtype=torch.int32)
        x = torch.randn(2, k_dim).half()
        book = torch.linspace(-1, 1, 8)
        flat = ops.quantize_kbit(w, book, 3)
        tiled = ops.repack_kbit(*flat, k_dim, n, 3)
        sizes = (k_dim, n, 3)
        self.check("dequantize_kbit_tiled", (tiled[0], book, tiled[1], 3, k_dim, n, torch.float16),
                   "dequantize_kbit_tiled_")
        self.check("kbit_gemm_prod", (x, *tiled, book, *sizes, 1), "kbit_gemm_prod_", *space)
        self.check("kbit_scalar_gemv", (x, *flat, book, *sizes), "kbit_scalar_gemv.out")
        self.check("kbit_scalar_gemv_tiled", (x, *tiled, book, *sizes), "kbit_scalar_gemv_tiled_")
        self.check("kbit_scalar_gemv_tiled", (x, *tiled, book, *sizes), "kbit_scalar_gemv_v2_")
        offsets = torch.tensor([0, 2], dtype=torch.int32)
        self.check("kbit_grouped_gemm", (x, *tiled, book, offsets, *sizes, 1, 2),
                   "kbit_grouped_gemm_", *space)
        vectors = torch.randn(256, 2).half()
        flat = ops.quantize_vq(w, vectors, 2)
        tiled = ops.repack_vq(*flat, k_dim, n, 2)
        self.check("dequantize_vq", (flat[0], vectors, flat[1], 2, w.numel(), torch.float16),
                   "dequantize_vq_")
        self.check("dequantize_vq_tiled",
                   (tiled[0], vectors, tiled[1], 2, k_dim, n, torch.float16),
                   "dequantize_vq_tiled_")
        self.check("vq_gemm_prod", (x, *tiled, vectors, k_dim, n, 2, 1), "vq_gemm_prod_", *space)
        self.check("vq_scalar_gemv", (x, *flat, vectors, k_dim, n, 2), "vq_scalar_gemv.out")
        self.check("vq_scalar_gemv_tiled", (x, *tiled, vectors, k_dim, n, 2),
                   "vq_scalar_gemv_tiled_")
        self.assertTrue(torch.equal(ops.vq_scalar_gemv_tiled(x, *tiled, vectors, k_dim, n, 2),
                                    ops.vq_scalar_gemv(x, *flat, vectors, k_dim, n, 2)))

    def test_allocates_nothing_of_torch(self):
        packed = subbyte.torch.quantize(torch.randn(64, 128), "u4")
        x, full = torch.randn(5, 128), torch.empty(64, 128, dtype=torch.float16)
        from test_experts import HIDDEN, INNER, stack
        stacks = [*stack("u4", 2 * INNER, HIDDEN)[0], *stack("u4", HIDDEN, INNER)[0]]
        tokens, logits = torch.randn(3, HIDDEN), torch.randn(3, 6)
        for dtype in (torch.float32, torch.bfloat16):
            rows, y = x.to(dtype), torch.empty(5, 64, dtype=dtype)
            few, mixed = tokens.to(dtype), torch.empty(3, HIDDEN, dtype=dtype)
            for name, call in (
                    ("linear_out", lambda: ops.linear_out(rows, *packed, out=y)),
                    ("dequantize_out", lambda: ops.dequantize_out(
                        *packed, dtype=torch.float16, out=full)),
                    ("experts_out", lambda: ops.experts_out(few, logits, *stacks, 2, out=mixed))):
                with self.subTest(name=name, dtype=dtype):
                    call()
                    with torch.profiler.profile(profile_memory=True) as profile:
                        call()
                    events = profile.key_averages()
                    self.assertTrue(any(name in event.key for event in events))
                    self.assertEqual(sum(abs(e.self_cpu_memory_usage) for e in events), 0)
        # What the profiler would have seen.
        with torch.profiler.profile(profile_memory=True) as profile:
            subbyte.torch.linear(x, packed)
        self.assertGreater(sum(abs(e.self_cpu_memory_usage) for e in profile.key_averages()), 0)

    def test_scales(self):
        self.check("block_scale_interleave", (torch.randint(0, 255, (5, 6), dtype=torch.uint8),),
                   "block_scale_interleave_out", named=True)

    def test_experts(self):
        from test_experts import HIDDEN, INNER, stack
        gate_up, _, _ = stack("u4", 2 * INNER, HIDDEN)
        down, _, _ = stack("u4", HIDDEN, INNER)
        x, logits = torch.randn(3, HIDDEN), torch.randn(3, 6)
        self.check("experts", (x, logits, *gate_up, *down, 2), "experts_out", named=True)
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = ops.experts(x, logits, *gate_up, *down, 2)
        self.assertTrue(torch.equal(y, ops.experts(x, logits, *gate_up, *down, 2)))


if __name__ == "__main__":
    unittest.main()
