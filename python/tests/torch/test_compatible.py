"""subbyte.flashinfer, subbyte.bitsandbytes.functional and subbyte.awq_ext: names and refusals."""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
from pathlib import Path

import torch

import subbyte.torch
from support import TorchTest, ops

sys.path.append(str(Path(__file__).parents[2]))  # where only the operators were built


def module(name: str):
    """A module of the package, which may be a file beside the folder of the operators."""
    path = Path(__file__).parents[2] / "subbyte" / Path(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"subbyte.{name}", path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


flashinfer, awq_ext = module("flashinfer"), module("awq_ext")
F = module("bitsandbytes.functional")


class FlashInfer(TorchTest):
    def test_quantizers_and_back(self):
        x = torch.randn(130, 256)
        q, sf = flashinfer.mxfp8_quantize(x)
        self.assertEqual((q.dtype, sf.dim()), (torch.float8_e4m3fn, 1))
        back = flashinfer.mxfp8_dequantize_host(q, sf)
        self.assertLess(((back - x).abs() / x.abs().amax()).max(), 2.0**-4)
        linear = flashinfer.mxfp8_quantize(x, False)
        self.assertTrue(torch.equal(flashinfer.mxfp8_dequantize_host(*linear, False), back))
        for layout in flashinfer.SfLayout:
            codes, scales = flashinfer.mxfp4_quantize(x, sfLayout=layout)
            self.assertEqual(scales.dim(), 2)
            back = flashinfer.mxfp4_dequantize(codes, scales, layout)
            self.assertLess((back - x).abs().mean(), 0.15)
        codes, scales = flashinfer.mxfp4_quantize(x, sfLayout=flashinfer.SfLayout.layout_linear)
        self.assertTrue(torch.equal(flashinfer.mxfp4_dequantize_host(codes, scales), back))

    def test_fp4(self):
        x = torch.randn(24, 64).half()
        scale = flashinfer.make_nvfp4_global_scale(x, False)
        self.assertEqual(scale.item(), (448 * 6 / x.float().abs().max()).item())
        plain = flashinfer.nvfp4_quantize(x, scale)
        for a, b in zip(plain, flashinfer.fp4_quantize(x, scale), strict=True):
            self.assertTrue(torch.equal(a, b))
        inverse = flashinfer.fp4_quantize(x, 1 / scale, is_global_scale_inversed=True)
        self.assertTrue(torch.equal(plain[0], inverse[0]))
        for a, b in zip(flashinfer.fp4_quantize(x, None, 32, True), flashinfer.mxfp4_quantize(x),
                        strict=True):
            self.assertTrue(torch.equal(a, b))
        config = flashinfer.NVFP44Over6Config(256, "MSE")
        scale = flashinfer.make_nvfp4_global_scale(x, False, nvfp4_4over6_config=config)
        found = flashinfer.nvfp4_quantize(x, scale, nvfp4_4over6=config)
        self.assertTrue(torch.equal(
            found[0], ops.nvfp4_quantize(x, scale, nvfp4_4over6="MSE")[0]))
        os.environ["FLASHINFER_NVFP4_4OVER6"] = "1"
        try:
            again = flashinfer.nvfp4_quantize(x, scale)
            off = flashinfer.nvfp4_quantize(x, scale, nvfp4_4over6=None)
        finally:
            del os.environ["FLASHINFER_NVFP4_4OVER6"]
        self.assertTrue(torch.equal(again[0],
                                    ops.nvfp4_quantize(x, scale, nvfp4_4over6="MAE")[0]))
        self.assertTrue(torch.equal(off[0], ops.nvfp4_quantize(x, scale)[0]))

    def test_group_gemm(self):
        a, a_scale = flashinfer.mxfp8_quantize(torch.randn(8, 128))
        b, b_scale = flashinfer.mxfp4_quantize(torch.randn(128, 128))
        indptr = torch.tensor([0, 8], dtype=torch.int32)
        arguments = (a, b.unsqueeze(0), a_scale.view(128, -1), b_scale.unsqueeze(0), indptr)
        gemm = flashinfer.group_gemm_mxfp4_nt_groupwise
        y = gemm(*arguments)
        want = (flashinfer.mxfp8_dequantize_host(a, a_scale) @
                flashinfer.mxfp4_dequantize(b, b_scale).T)
        self.assertEqual(y.dtype, torch.bfloat16)
        self.assertTrue(torch.allclose(y.float(), want, rtol=2**-7, atol=2**-6))
        out = torch.empty(8, 128, dtype=torch.float16)
        self.assertIs(gemm(*arguments, out=out), out)
        self.assertTrue(torch.allclose(out.float(), want, rtol=2**-9, atol=2**-6))
        for words, changed in (("tile_n must be", {"tile_n": 48}),
                               ("mma_sm must be", {"mma_sm": 3}),
                               ("out_dtype must be", {"out_dtype": torch.float32}),
                               ("out must be", {"out": out[:4]})):
            with self.assertRaisesRegex(ValueError, words):
                gemm(*arguments, **changed)
        with self.assertRaisesRegex(ValueError, "a must be a float8"):
            gemm(a.view(torch.uint8), *arguments[1:])

    def test_interleave_and_refusals(self):
        scales = torch.randint(0, 255, (5, 6), dtype=torch.uint8)
        out = torch.empty(128 * 8, dtype=torch.uint8)
        self.assertIs(flashinfer.block_scale_interleave(scales, out=out), out)
        self.assertTrue(torch.equal(out, flashinfer.nvfp4_block_scale_interleave(scales)))
        with self.assertRaises(AssertionError):
            flashinfer.mxfp8_quantize(torch.randn(2, 33))
        with self.assertRaises(NotImplementedError):
            flashinfer.fp4_quantize(torch.randn(2, 32), sf_vec_size=64)
        with self.assertRaises(ValueError):
            flashinfer.mxfp8_quantize(torch.randn(2, 32), backend="cutlass")
        with self.assertRaisesRegex(NotImplementedError, "do_shuffle"):
            flashinfer.nvfp4_quantize(torch.randn(2, 32), torch.ones(1), do_shuffle=True)


class Bitsandbytes(TorchTest):
    def test_beside_the_original(self):
        try:
            import bitsandbytes.functional as theirs
        except ImportError:
            self.skipTest("bitsandbytes is not installed")
        self.assertTrue(torch.equal(F.create_dynamic_map(), theirs.create_dynamic_map()))
        w = torch.randn(64, 128)
        for kind in ("nf4", "fp4"):
            self.assertTrue(torch.equal(F.get_4bit_type(kind),
                                        theirs.get_4bit_type(kind, device="cpu")))
            for nested in (False, True):
                ours = F.quantize_4bit(w, compress_statistics=nested, quant_type=kind)
                want = theirs.quantize_4bit(w, compress_statistics=nested, quant_type=kind)
                self.assertTrue(torch.equal(ours[0], want[0]))
                self.assertTrue(torch.equal(ours[1].absmax, want[1].absmax))
                self.assertEqual(ours[1].nested, want[1].nested)
                back = F.dequantize_4bit(*ours)
                self.assertTrue(torch.allclose(back, theirs.dequantize_4bit(*want), atol=1e-6))
                # States of the original serve our functions.
                self.assertTrue(torch.allclose(F.dequantize_4bit(*want), back, atol=1e-6))
                x = torch.randn(1, 128)
                self.assertTrue(torch.allclose(F.gemv_4bit(x, ours[0], state=ours[1]), x @ back.T,
                                               atol=1e-4))
        flat = torch.randn(1000)
        ours, want = F.quantize_blockwise(flat, blocksize=256), theirs.quantize_blockwise(
            flat, blocksize=256)
        # Ours is the nearest value; theirs is one further where two are almost as near.
        self.assertLessEqual((ours[0].int() - want[0].int()).abs().max(), 1)
        off = [(F.dequantize_blockwise(*q) - flat).abs() for q in (ours, want)]
        self.assertTrue((off[0] <= off[1] + 1e-7).all())
        self.assertTrue(torch.equal(F.dequantize_blockwise(*want),
                                    theirs.dequantize_blockwise(*want)))

    def test_refuses_as_the_original(self):
        w = torch.randn(4, 64)
        for words, call in (
                ("invalid blocksize 48", lambda: F.quantize_4bit(w, blocksize=48)),
                ("quant_type must be", lambda: F.quantize_4bit(w, quant_type="int4")),
                ("only supports 16/32-bit floats", lambda: F.quantize_4bit(w.double())),
                ("requires both absmax and out", lambda: F.dequantize_4bit(w)),
                ("state cannot be None", lambda: F.gemv_4bit(w, w)),
                ("blocksize must be positive", lambda: F.quantize_blockwise(w, blocksize=0))):
            with self.assertRaisesRegex(ValueError, words):
                call()

    def test_kbit(self):
        w = torch.randn(128, 64)
        for k in range(2, 6):
            packed, absmax, book = F.quantize_kbit(w, k)
            back = F.dequantize_kbit(packed, absmax, book, k, w.numel(), torch.float32)
            back = back.view(128, 64)
            tiles = ops.repack_kbit(packed, absmax, 64, 128, k)
            x = torch.randn(7, 64).half()
            y = F.kbit_linear(x, *tiles, book, k, 64, 128)
            self.assert_product(y, x, back.double())
            # The quantizer's bytes are those of the encoder here.
            blocks = w.abs().view(-1, 32).amax(1)
            self.assertTrue(torch.equal(F.encode_absmax_e4m4(blocks), absmax[:-1]))
        for value, want in ((1.99, 1.9375), (40.0, 20.0), (0.0, 0.0), (2.0**-14, 2.0**-14)):
            code = F.encode_absmax_e4m4(torch.tensor([value]))
            self.assertEqual(F.decode_absmax_e4m4(code).item(), want)
        # One place below a power of two its logarithm is a float, a whole number.
        for power in range(-10, 5):
            below = torch.tensor([2.0**power]).nextafter(torch.zeros(1))
            want = ops.quantize_kbit(below, book, 5)[1][0].item()
            self.assertEqual(F.encode_absmax_e4m4(below).item(), want, power)
        self.assertEqual(F.encode_absmax_e4m4(torch.tensor([0.0019531248835846782])).item(), 0x20)
        for size, code in ((1e30, "scale_overflow"), (32.0, "scale_overflow"), (1e-30, "loss")):
            words = f"[quantize.{code}]"
            self.assert_refused(words, ops.quantize_kbit, torch.full((64,), size), book, 5)
            vectors = torch.randn(512).half()
            self.assert_refused(words, ops.quantize_vq, torch.full((64,), size), vectors, 2)
        x = torch.randn(2, 512).half()
        self.assertIs(F.hadamard_rotate(x, 0), x)
        with self.assertRaises(ValueError):
            F.hadamard_rotate(x, 48)


class AwqExt(TorchTest):
    def test_words_of_columns_and_of_rows(self):
        from test_layouts import awq_words, to_words
        k, n, group = 256, 64, 64
        q, zeros = torch.randint(0, 16, (k, n)), torch.randint(0, 16, (k // group, n))
        scales = (torch.rand(k // group, n) + 0.5).half()
        wide = [t.double().repeat_interleave(group, 0) for t in (zeros, scales)]
        w = (q.double() - wide[0]) * wide[1]
        x = torch.randn(5, k).half()
        columns = awq_words(q), scales, awq_words(zeros)
        self.assert_product(awq_ext.gemm_forward_cuda(x, *columns, 8), x, w.T)
        self.assertTrue(torch.equal(
            awq_ext.dequantize_weights_cuda(*columns, 0, 0, 0, False), w.half()))
        padded = torch.zeros(n, 8, dtype=torch.long)
        padded[:, :k // group] = zeros.T
        wide = torch.zeros(n, 8).half()
        wide[:, :k // group] = scales.T
        rows = (to_words(q.T.reshape(n, k // 8, 8), 4), wide,
                to_words(padded.view(n, 1, 8), 4))
        self.assert_product(awq_ext.gemv_forward_cuda(x, *rows, group), x, w.T)
        self.assert_product(awq_ext.gemmv2_forward_cuda(x, *rows, group, 8), x, w.T)
        with self.assertRaisesRegex(ValueError, "Group size should be 64 or 128"):
            awq_ext.gemv_forward_cuda(x, *rows, 32)
        with self.assertRaisesRegex(ValueError, "OC is not multiple"):
            awq_ext.gemm_forward_cuda(x, *(t[:, :t.shape[1] // 2].contiguous() for t in columns), 8)


if __name__ == "__main__":
    unittest.main()
