"""Every operator on a GPU of NVIDIA: beside the same on the CPU, in graphs, on streams, opcheck."""

from __future__ import annotations

import threading
import unittest

import torch

import subbyte.torch
from support import TorchTest, moved, ops
from test_cuda import has_kernels, to_gpu
from test_experts import EXPERTS, HIDDEN, INNER, stack

# Of nvfp4_quantize: layout, shuffling, group, hint, backend, scales per token.
NO_HINTS = (0, False, 16, None, "cuda", False)
HALF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def function_of(name: str):
    """An overload by its name: "kbit_scalar_gemv.out"."""
    found = ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Calls:
    """Arguments of operators on the CPU; what they compute there is compared with elsewhere."""

    def __init__(self) -> None:
        self.k, self.n = 128, 128
        self.w = torch.randn(self.n, self.k)
        self.x = torch.randn(3, self.k).half()
        self.book = torch.sort(torch.randn(8))[0]
        self.vectors = torch.randn(256, 2).half()
        self.flat = ops.quantize_kbit(self.w, self.book, 3)
        self.tiled = ops.repack_kbit(*self.flat, self.k, self.n, 3)
        self.flat_vq = ops.quantize_vq(self.w, self.vectors, 2)
        self.tiled_vq = ops.repack_vq(*self.flat_vq, self.k, self.n, 2)

    def exact(self):
        """(operator, arguments) whose results have the same bits everywhere."""
        numbers, size = self.w.numel(), (self.k, self.n)
        packed = ops.quantize_4bit(self.w, 64, "nf4", torch.uint8)
        fp4 = ops.mxfp4_quantize(self.w)
        linear = ops.mxfp4_quantize(self.w, sfLayout=2)
        words = torch.randint(-2**31, 2**31 - 1, (self.k, self.n // 8), dtype=torch.int32)
        scales = torch.rand(2, self.n).half()
        zeros = torch.randint(-2**31, 2**31 - 1, (2, self.n // 8), dtype=torch.int32)
        codes = torch.randint(0, 256, (self.n, self.k // 2), dtype=torch.uint8)
        offset = torch.randint(0, 255, (5, 6), dtype=torch.uint8)
        return (
            ("quantize_kbit", (self.w, self.book, 3)),
            ("quantize_kbit", (self.w.bfloat16().flatten()[:77], self.book, 3)),
            ("dequantize_kbit", (self.flat[0], self.book, self.flat[1], 3, 99, torch.float16)),
            ("dequantize_kbit_tiled", (self.tiled[0], self.book, self.tiled[1], 3, *size,
                                       torch.bfloat16)),
            ("repack_kbit", (*self.flat, *size, 3)),
            ("quantize_vq", (self.w.half(), self.vectors, 2)),
            ("dequantize_vq", (self.flat_vq[0], self.vectors, self.flat_vq[1], 2, numbers,
                               torch.float32)),
            ("dequantize_vq_tiled", (self.tiled_vq[0], self.vectors, self.tiled_vq[1], 2, *size,
                                     torch.float16)),
            ("repack_vq", (*self.flat_vq, *size, 2)),
            ("quantize_4bit", (self.w, 64, "fp4", torch.uint8)),
            ("dequantize_4bit", (*packed, 64, "nf4", [self.n, self.k], torch.float16)),
            ("quantize_int", (self.w, 4, 32, False)), ("quantize_mxfp4", (self.w,)),
            ("quantize_nvfp4", (self.w,)), ("quantize_nf4", (self.w,)),
            ("quantize_nfl", (self.w, 3)), ("quantize_fp8", (self.w,)),
            ("mxfp4_dequantize", fp4),
            ("mxfp4_dequantize_host", (linear[0], linear[1].view(self.n, -1))),
            ("block_scale_interleave", (offset,)), ("nvfp4_block_scale_interleave", (offset,)),
            ("awq_dequantize", (words, scales, zeros, 0, 0, 0)),
            ("gptq_marlin_repack", (torch.randint(-9, 9, (self.k // 8, self.n),
                                                  dtype=torch.int32), *size, 4)),
            ("awq_marlin_repack", (words, *size, 4)),
            ("_convert_weight_to_int4pack", (codes, 2)),
            ("_convert_weight_to_int4pack_for_cpu", (codes[:64].int() % 16, 2)),
            ("nvfp4_quantize", (self.w, torch.full((1,), 400.0), *NO_HINTS, "MSE")),
            ("nvfp4_quantize", (self.w.half(), torch.full((1,), 400.0), *NO_HINTS, "MAE")))

    def products(self):
        """(operator, arguments) whose weights may be rounded to 16 bits elsewhere."""
        size, words = (self.k, self.n), torch.randint(0, 16, (self.n, self.k), dtype=torch.int32)
        offsets = torch.tensor([0, 1, 1, 3], dtype=torch.int32)
        blocks = self.tiled[1].numel() - 1
        many = [t[:blocks * c].repeat(3) for t, c in zip(self.tiled, (3, 1), strict=True)]
        xpu = (words.view(self.n, -1, 8).long() << torch.arange(0, 32, 4)).sum(-1)
        xpu = torch.where(xpu >= 1 << 31, xpu - (1 << 32), xpu).to(torch.int32)
        byte = (words[:, ::2] << 4 | words[:, 1::2]).to(torch.uint8)
        tiles = ops._convert_weight_to_int4pack(byte, 2)
        packed, absmax = ops.quantize_4bit(self.w, 64, "nf4", torch.uint8)
        pairs = torch.rand(self.k // 64, self.n, 2)
        code = ops.dequantize_4bit((torch.arange(0, 16, 2) * 17 + 1).to(torch.uint8),
                                   torch.ones(1), 64, "nf4", [16], torch.float32)
        return (
            ("kbit_gemm_prod", (self.x, *self.tiled, self.book, *size, 3, 1)),
            ("kbit_scalar_gemv", (self.x, *self.flat, self.book, *size, 3)),
            ("kbit_scalar_gemv_tiled", (self.x, *self.tiled, self.book, *size, 3)),
            ("kbit_grouped_gemm", (self.x, *many, self.book, offsets, *size, 3, 3, 2)),
            ("vq_gemm_prod", (self.x, *self.tiled_vq, self.vectors, *size, 2, 1)),
            ("vq_scalar_gemv", (self.x, *self.flat_vq, self.vectors, *size, 2)),
            ("vq_scalar_gemv_tiled", (self.x, *self.tiled_vq, self.vectors, *size, 2)),
            ("gemm_4bit", (self.x, packed, [self.n, self.k], absmax, 64, "nf4")),
            ("gemv_4bit", (self.x, packed, [self.n, self.k], absmax, code, 64)),
            ("_weight_int4pack_mm", (self.x.bfloat16(), tiles, 64, pairs.bfloat16())),
            ("_weight_int4pack_mm_for_cpu",
             (self.x.bfloat16(), ops._convert_weight_to_int4pack_for_cpu(words, 2), 64,
              pairs.bfloat16())),
            ("_weight_int4pack_mm_with_scales_and_zeros",
             (self.x, xpu, 64, pairs[..., 0].half().contiguous(),
              torch.randint(0, 16, (self.k // 64, self.n), dtype=torch.int8))))


def group_gemm_arguments(groups=(4, 0, 8), n=64, k=128):
    from test_layouts import Flashinfer
    return Flashinfer("gemm").gemm(groups, n, k)


def expert_arguments(kind: str, tokens: int, dtype: torch.dtype):
    inner = 64 if kind == "nf4" else INNER
    gate_up, up_factors, _ = stack(kind, 2 * inner, HIDDEN)
    down, down_factors, _ = stack(kind, HIDDEN, inner)
    x = torch.randn(tokens, HIDDEN).to(dtype)
    named = {"gate_up_factors": up_factors, "down_factors": down_factors,
             "gate_up_bias": torch.randn(EXPERTS, 2 * inner) * 0.1,
             "down_bias": torch.randn(EXPERTS, HIDDEN) * 0.1}
    return x, torch.randn(tokens, EXPERTS), [*gate_up, *down], named


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class EveryOperator(TorchTest):
    def assert_near(self, found: torch.Tensor, want: torch.Tensor, factor: float = 8) -> None:
        self.assertTrue(found.is_cuda)
        self.assertEqual((found.dtype, found.shape), (want.dtype, want.shape))
        if want.numel() == 0:
            return
        off = (found.cpu().double() - want.double()).abs().max().item()
        self.assertLessEqual(off, factor * HALF[want.dtype] * want.double().abs().max().item())

    def test_each_has_a_kernel(self):
        def names(device):
            found = torch._C._dispatch_get_registrations_for_dispatch_key(device)
            return {name.removeprefix("subbyte::") for name in found if "subbyte::" in name}

        self.assertEqual(names("CPU"), names("CUDA"))

    def test_same_bits(self):
        for name, arguments in Calls().exact():
            with self.subTest(name=name):
                want = function_of(name)(*arguments)
                found = function_of(name)(*moved(arguments))
                if isinstance(want, torch.Tensor):
                    want, found = (want,), (found,)
                for a, b in zip(found, want, strict=True):
                    self.assertEqual((a.dtype, a.shape, a.device.type), (b.dtype, b.shape, "cuda"))
                    self.assertTrue(torch.equal(*(t.cpu().reshape(-1).view(torch.uint8)
                                                  for t in (a, b))))

    def test_products(self):
        for name, arguments in Calls().products():
            with self.subTest(name=name):
                want = function_of(name)(*arguments)
                for _ in range(2):  # packed and kept
                    self.assert_near(function_of(name)(*moved(arguments)), want)

    def test_outs(self):
        calls = Calls()
        size, space = (calls.k, calls.n), (torch.empty(3, calls.n), torch.zeros(4).int())
        offsets = torch.tensor([0, 3], dtype=torch.int32)
        for name, out_name, arguments, unused in (
                ("dequantize_kbit_tiled", "dequantize_kbit_tiled_",
                 (calls.tiled[0], calls.book, calls.tiled[1], 3, *size, torch.float16), ()),
                ("kbit_gemm_prod", "kbit_gemm_prod_",
                 (calls.x, *calls.tiled, calls.book, *size, 3, 1), space),
                ("kbit_scalar_gemv", "kbit_scalar_gemv.out",
                 (calls.x, *calls.flat, calls.book, *size, 3), ()),
                ("kbit_grouped_gemm", "kbit_grouped_gemm_",
                 (calls.x, *calls.tiled, calls.book, offsets, *size, 3, 1, 3), space),
                ("vq_gemm_prod", "vq_gemm_prod_",
                 (calls.x, *calls.tiled_vq, calls.vectors, *size, 2, 1), space),
                ("dequantize_vq", "dequantize_vq_",
                 (calls.flat_vq[0], calls.vectors, calls.flat_vq[1], 2, calls.w.numel(),
                  torch.float16), ())):
            with self.subTest(name=out_name):
                on_gpu = moved(arguments)
                want = function_of(name)(*on_gpu)
                out = torch.full_like(want, float("nan"))
                function_of(out_name)(*on_gpu, out, *moved(unused))
                self.assertTrue(torch.equal(out, want))
                with self.assertRaises(RuntimeError):
                    function_of(out_name)(*on_gpu, torch.empty(7).cuda(), *moved(unused))

    def test_rotations(self):
        for dtype in HALF:
            for dim, name in ((32, "hadamard_rotate_"), (256, "hadamard_rotate_"),
                              (512, "hadamard_rotate_full_"), (8192, "hadamard_rotate_full_")):
                for signs in (None, torch.randint(-2**31, 2**31 - 1, (dim // 32,),
                                                  dtype=torch.int32)):
                    with self.subTest(dtype=dtype, dim=dim, signs=signs is not None):
                        x = torch.randn(5, 8192).to(dtype)
                        gpu = x.cuda()
                        getattr(ops, name)(x, dim, signs)
                        getattr(ops, name)(gpu, dim, None if signs is None else signs.cuda())
                        self.assertTrue(torch.equal(gpu.cpu(), x))
        self.assert_refused("hadamard", ops.hadamard_rotate_, torch.randn(2, 96).half().cuda(), 48)

    def test_group_gemm(self):
        for groups in ((4, 0, 8), (12,), (0,), (128, 256, 4)):
            for n, k in ((64, 128), (24, 256)):
                arguments, _ = group_gemm_arguments(groups, n, k)
                for dtype in (torch.bfloat16, torch.float16):
                    with self.subTest(groups=groups, n=n, dtype=dtype):
                        run = ops.group_gemm_mxfp8_mxfp4_nt_groupwise
                        want = run(*arguments, out_dtype=dtype)
                        found = run(*moved(arguments), out_dtype=dtype)
                        self.assert_near(found, want, 2)
                        out = torch.empty_like(found)
                        ops.group_gemm_mxfp8_mxfp4_nt_groupwise_out(*moved(arguments), out=out)
                        self.assertTrue(torch.equal(out, found))
        a, b, a_scale, b_scale, indptr = moved(arguments)
        self.assert_refused("b_scale: expected", run, a, b, a_scale, b_scale[:, :64].contiguous(),
                            indptr)

    def test_experts(self):
        for kind, in_turns, of_all, clamp in (
                ("u4", False, False, None), ("i4", True, True, None), ("i5", False, False, None),
                ("mxfp4", True, False, (1.702, 7.0, 1.0)), ("nvfp4", False, True, None),
                ("nf4", True, False, None)):
            for dtype in HALF:
                for tokens in (0, 1, 9, 200):
                    with self.subTest(kind=kind, dtype=dtype, tokens=tokens):
                        x, logits, weights, named = expert_arguments(kind, tokens, dtype)
                        alpha, limit, offset = clamp or (1.0, None, 0.0)
                        named |= {"alpha": alpha, "limit": limit, "up_offset": offset}
                        want = ops.experts(x, logits, *weights, 2, in_turns, of_all, **named)
                        on_gpu = dict(zip(named, moved(named.values()), strict=True))
                        found = ops.experts(x.cuda(), logits.cuda(), *moved(weights), 2, in_turns,
                                            of_all, **on_gpu)
                        self.assert_near(found, want, 16)
                        out = torch.empty_like(found)
                        ops.experts_out(x.cuda(), logits.cuda(), *moved(weights), 2, in_turns,
                                        of_all, **on_gpu, out=out)
                        self.assertTrue(torch.equal(out, found))

    def test_experts_that_are_chosen(self):
        for ids_of in (torch.int64, torch.int32):
            for tokens in (1, 40):
                x, _, weights, named = expert_arguments("u4", tokens, torch.float16)
                ids = torch.randint(0, EXPERTS, (tokens, 2)).to(ids_of)  # some of them twice
                factors = torch.rand(tokens, 2)
                want = ops.routed_experts(x, factors, ids, *weights, **named)
                on_gpu = dict(zip(named, moved(named.values()), strict=True))
                rest = (*moved(weights),)
                found = ops.routed_experts(x.cuda(), factors.cuda(), ids.cuda(), *rest, **on_gpu)
                self.assert_near(found, want, 16)
                again = torch.empty_like(found)
                ops.routed_experts_out(x.cuda(), factors.cuda(), ids.cuda(), *rest, **on_gpu,
                                       out=again)
                self.assertTrue(torch.equal(again, found))
        ids[3, 1], ids[5, 0] = EXPERTS, -1
        found = ops.routed_experts(x.cuda(), factors.cuda(), ids.cuda(), *rest, **on_gpu)
        is_nan = found.isnan().any(1).cpu()
        self.assertEqual(is_nan.nonzero().flatten().tolist(), [3, 5])
        self.assert_refused("f16 or bf16 on a GPU", ops.routed_experts, x.float().cuda(),
                            factors.cuda(), ids.cuda(), *rest, **on_gpu)

    def graphed(self):
        """(what, arguments) of all that later calls of which launch alone."""
        products = [(name, moved(given)) for name, given in Calls().products()
                    if name != "kbit_grouped_gemm"]
        exact = [(name, moved(given)) for name, given in Calls().exact()
                 if "kbit" in name or "vq" in name]
        x, logits, weights, named = expert_arguments("u4", 9, torch.float16)
        named = dict(zip(named, moved(named.values()), strict=True))
        mixture = [("experts", (x.cuda(), logits.cuda(), *moved(weights), 2), named)]
        groups = [("group_gemm_mxfp8_mxfp4_nt_groupwise", moved(group_gemm_arguments()[0]))]
        return [(*call, {}) if len(call) == 2 else call
                for call in [*products, *exact, *mixture, *groups]]

    def test_graphs_and_streams(self):
        for name, arguments, named in self.graphed():
            with self.subTest(name=name):
                function = function_of(name)
                want = function(*arguments, **named)
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    other = function(*arguments, **named)
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    found = function(*arguments, **named)
                for _ in range(2):
                    graph.replay()
                torch.cuda.synchronize()
                for a, b, c in zip(*((t,) if isinstance(t, torch.Tensor) else t
                                     for t in (found, want, other)), strict=True):
                    self.assertTrue(torch.equal(a, b))
                    self.assertTrue(torch.equal(c, b))

    def test_opcheck(self):
        for name, arguments, named in self.graphed():
            if name == "group_gemm_mxfp8_mxfp4_nt_groupwise":
                # torch cannot compare tensors of 8-bit floats, so the other checks have to do.
                torch.library.opcheck(function_of(name).default, arguments, named, test_utils=(
                    "test_autograd_registration", "test_faketensor"))
                continue
            with self.subTest(name=name):
                self.check_operator(function_of(name).default, *arguments, **named)
        for name, arguments in Calls().exact():
            if name in ("dequantize_4bit", "quantize_4bit", "awq_dequantize", "mxfp4_dequantize",
                        "block_scale_interleave", "_convert_weight_to_int4pack", "quantize_int"):
                with self.subTest(name=name):
                    self.check_operator(function_of(name).default, *moved(arguments))
        self.check_operator(ops.hadamard_rotate_.default, torch.randn(2, 64).half().cuda(), 32)

    def test_autocast_and_inference_mode(self):
        for name, arguments, named in self.graphed():
            want = function_of(name)(*arguments, **named)
            with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
                found = function_of(name)(*arguments, **named)
            for a, b in zip(*((t,) if isinstance(t, torch.Tensor) else t for t in (found, want)),
                            strict=True):
                self.assertTrue(torch.equal(a, b))

    def test_modules_with_the_names_of_others(self):
        from test_compatible import F, awq_ext, flashinfer
        from test_layouts import awq_words
        x = torch.randn(130, 256)
        for quantize, back in ((flashinfer.mxfp4_quantize, flashinfer.mxfp4_dequantize),
                               (flashinfer.mxfp8_quantize, None)):
            want, found = quantize(x), quantize(x.cuda())
            for a, b in zip(found, want, strict=True):
                self.assertTrue(torch.equal(a.cpu().view(torch.uint8), b.view(torch.uint8)))
            if back is not None:
                self.assertTrue(torch.equal(back(*found).cpu(), back(*want)))
        gemm = flashinfer.group_gemm_mxfp8_mxfp4_nt_groupwise
        arguments, _ = group_gemm_arguments()
        self.assert_near(gemm(*moved(arguments)), gemm(*arguments), 2)
        w = torch.randn(128, 64)
        for quant_type in ("nf4", "fp4"):
            codes, state = F.quantize_4bit(w.cuda(), quant_type=quant_type)
            want = F.dequantize_4bit(*F.quantize_4bit(w, quant_type=quant_type))
            self.assertTrue(torch.equal(F.dequantize_4bit(codes, state).cpu(), want))
        packed, absmax, book = F.quantize_kbit(w.cuda(), 4)
        tiles = ops.repack_kbit(packed, absmax, 64, 128, 4)
        y = F.kbit_linear(x[:7, :64].half().cuda(), *tiles, book, 4, 64, 128)
        want = F.kbit_linear(x[:7, :64].half(), *(t.cpu() for t in tiles), book.cpu(), 4, 64, 128)
        self.assert_near(y, want)
        k, n = 256, 64
        columns = (awq_words(torch.randint(0, 16, (k, n))), torch.rand(4, n).half(),
                   awq_words(torch.randint(0, 16, (4, n))))
        given = (x[:5].half(), *columns, 8)
        self.assert_near(awq_ext.gemm_forward_cuda(*moved(given)),
                         awq_ext.gemm_forward_cuda(*given))

    def test_refuses_to_pack_in_a_capture(self):
        weight = to_gpu(subbyte.torch.quantize(torch.randn(64, 64), "u4", 32))
        x = torch.randn(4, 64).half().cuda()
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            self.assert_refused("[torch.capture]", subbyte.torch.linear, x, weight)
        want = subbyte.torch.linear(x, weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = subbyte.torch.linear(x, weight)
        graph.replay()
        self.assertTrue(torch.equal(found, want))

    def test_refuses_by_name(self):
        x = torch.randn(4, 64).half().cuda()
        self.assert_refused("nvfp4_4over6: expected MAE or MSE", ops.nvfp4_quantize, x,
                            torch.ones(1).cuda(), nvfp4_4over6="L1")
        weight = subbyte.torch.quantize(torch.randn(64, 64), "u4", 32)
        own = weight._replace(input_order=torch.zeros(64, dtype=torch.int32))
        self.assert_refused("input_order: expected every input once", subbyte.torch.dequantize,
                            to_gpu(own))

    def test_floats_and_orders(self):
        """x in f32, dense weights, codebooks and orders of inputs, to the numbers of the CPU."""
        dense = torch.randn(96, 128)
        order = torch.randperm(128, dtype=torch.int32)
        weights = [subbyte.torch.quantize(dense, name, 32) for name in ("u4", "i8", "nf4")]
        weights.append(subbyte.torch.quantize(dense, "nfl3"))
        weights.append(weights[0]._replace(input_order=order))
        weights.append(weights[0]._replace(codes=dense.half(), scales=None, zeros=None,
                                           format="f16"))
        for weight in weights:
            for dtype in (torch.float32, torch.float16):
                found = subbyte.torch.dequantize(to_gpu(weight), dtype=dtype)
                want = subbyte.torch.dequantize(weight, dtype=dtype)
                self.assertTrue(torch.equal(found.cpu(), want), weight.format)
            exact = subbyte.torch.dequantize(weight, dtype=torch.float32).double()
            for m in (1, 7, 64, 300):
                x = torch.randn(m, 128)
                bias = torch.randn(96)
                found = subbyte.torch.linear(x.cuda(), to_gpu(weight), bias.cuda()).cpu()
                want = x.double() @ exact.T + bias.double()
                # Each of 129 sums in f32 rounds once, and each weight and the factor.
                bound = 140 * 2.0**-24 * (x.double().abs() @ exact.abs().T + bias.abs())
                self.assertTrue(((found - want).abs() <= bound).all(), (weight.format, m))

    def test_aten_on_cuda(self):
        """Beside aten's own operators, which run here."""
        aten = torch.ops.aten
        codes = torch.randint(0, 256, (256, 512), dtype=torch.uint8).cuda()
        for tiles in (2, 4, 8):
            theirs = aten._convert_weight_to_int4pack(codes, tiles)
            self.assertTrue(torch.equal(ops._convert_weight_to_int4pack(codes, tiles), theirs))
            pairs = torch.rand(1024 // 64, 256, 2).bfloat16().cuda()
            for m in (1, 7, 64):
                x = torch.randn(m, 1024).bfloat16().cuda()
                want = aten._weight_int4pack_mm(x, theirs, 64, pairs)
                self.assert_near(ops._weight_int4pack_mm(x, theirs, 64, pairs), want.cpu(), 8)


@unittest.skipUnless(has_kernels(), "no GPU, or a build without CUDA")
class ManyCalls(TorchTest):
    def test_ten_thousand_calls_do_not_grow(self):
        weight = to_gpu(subbyte.torch.quantize(torch.randn(256, 512), "u4"))
        x = torch.randn(4, 512).half().cuda()
        out = torch.empty(4, 256).half().cuda()
        experts = expert_arguments("u4", 4, torch.float16)
        moe = (experts[0].cuda(), experts[1].cuda(), *moved(experts[2]), 2)

        def run(count: int) -> int:
            for _ in range(count):
                ops.linear_out(x, *weight, out=out)
                ops.experts(*moe)
            torch.cuda.synchronize()
            return torch.cuda.memory_allocated()

        before = run(100)
        reserved = torch.cuda.memory_reserved()
        self.assertEqual(run(10_000), before)
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def test_eight_threads(self):
        weight = to_gpu(subbyte.torch.quantize(torch.randn(256, 512), "u4"))
        x = torch.randn(4, 512).half().cuda()
        want = subbyte.torch.linear(x, weight)
        results: list[bool] = []

        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    results.append(torch.equal(subbyte.torch.linear(x, weight), want))

        torch.cuda.synchronize()
        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(results, [True] * 400)


if __name__ == "__main__":
    unittest.main()
