"""linear and dequantize for every format of weights, against double precision."""

from __future__ import annotations

import gc
import threading
import time
import unittest

import torch

import subbyte.torch
from support import FLOATS, TorchTest, ops

KINDS = ("u2", "u3", "u4", "u5", "u6", "u7", "u8", "i2", "i3", "i4", "i5", "i6", "i7", "i8",
         "mxfp4", "nvfp4", "nf4", "nfl2", "nfl3", "nfl4", "nfl5", "fp8")


def codes_of(weight, cols: int) -> torch.Tensor:
    """Codes of a canonical matrix, read bit by bit: [N, K]."""
    element = weight.format.split(" ")[0]
    bits = {"e2m1": 4, "e4m3": 8, "nf4": 4}.get(element) or int(element.strip("unfil"))
    rows = weight.codes.to(torch.int64)
    stream = ((rows.unsqueeze(-1) >> torch.arange(8)) & 1).flatten(1)[:, :cols * bits]
    return (stream.view(rows.shape[0], cols, bits) << torch.arange(bits)).sum(-1)


class Linear(TorchTest):
    def test_integers_mean_what_the_format_says(self):
        """The oracle reads codes, scales and zero points by itself."""
        w = torch.randn(24, 96)
        for bits in range(2, 9):
            for symmetric in (False, True):
                packed = subbyte.torch.quantize(w, f"{'i' if symmetric else 'u'}{bits}", 32)
                codes = codes_of(packed, 96).double()
                zero = (torch.full((24, 3), 2.0**(bits - 1), dtype=torch.float64) if symmetric else
                        packed.zeros.to(torch.int32).double())
                wide = [t.double().repeat_interleave(32, 1) for t in (zero, packed.scales)]
                exact = (codes - wide[0]) * wide[1]
                found = subbyte.torch.dequantize(packed, torch.float32)
                self.assertTrue(torch.equal(found, exact.float()), (bits, symmetric))
                x = torch.randn(3, 96)
                self.assert_product(subbyte.torch.linear(x, packed), x, exact)

    def test_refuses_weights_without_rows_or_columns(self):
        for function, rest in ((ops.quantize_int, (4, 32)), (ops.quantize_mxfp4, ()),
                               (ops.quantize_nvfp4, ()), (ops.quantize_nf4, ()),
                               (ops.quantize_nfl, (3,)), (ops.quantize_fp8, ())):
            for shape in ((0, 64), (3, 0)):
                self.assert_refused("[quantize.shape]", function, torch.zeros(shape), *rest)

    def test_e2m1_and_nf4_mean_their_tables(self):
        w = torch.randn(16, 128)
        half = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
        mx = subbyte.torch.quantize(w, "mxfp4")
        values = torch.cat([half, -half])[codes_of(mx, 128)]
        scales = torch.exp2(mx.scales.float() - 127).repeat_interleave(32, 1)
        self.assertTrue(torch.equal(subbyte.torch.dequantize(mx), values * scales))
        nv = subbyte.torch.quantize(w, "nvfp4")
        values = torch.cat([half, -half])[codes_of(nv, 128)].double()
        scales = nv.scales.view(torch.float8_e4m3fn)
        self.assertTrue(torch.equal(subbyte.torch.dequantize(nv._replace(scales=scales)),
                                    subbyte.torch.dequantize(nv)))
        exact = values * scales.double().repeat_interleave(16, 1) * nv.tensor_scale
        found = subbyte.torch.dequantize(nv).double()
        self.assertTrue(torch.allclose(found, exact, rtol=2**-22, atol=0))

    def test_every_format_every_type_any_batch(self):
        w = torch.randn(40, 128)
        for kind in KINDS:
            packed = subbyte.torch.quantize(w, kind)
            exact = subbyte.torch.dequantize(packed).double()
            for dtype in FLOATS:
                for shape in ((128,), (0, 128), (1, 128), (2, 3, 128), (19, 128)):
                    with self.subTest(kind=kind, dtype=dtype, shape=shape):
                        x = torch.randn(shape).to(dtype)
                        bias = torch.randn(40).to(dtype)
                        y = subbyte.torch.linear(x, packed, bias)
                        self.assert_product(y, x, exact, bias)

    def test_dense(self):
        for dtype in FLOATS:
            w, x = torch.randn(5, 7).to(dtype), torch.randn(3, 7)
            name = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
            self.assert_product(ops.linear(x, w, None, None, name), x, w.double())

    def test_dense_with_the_factor_of_the_tensor(self):
        order = torch.randperm(24, dtype=torch.int32)
        for dtype, name in zip(FLOATS, ("f32", "f16", "bf16"), strict=True):
            w, x, factor = torch.randn(5, 24).to(dtype), torch.randn(3, 24), torch.tensor(0.37)
            for perm in (None, order):
                weight = (w, None, None, name, factor, None, perm)
                exact = w.double() * factor.double()
                if perm is not None:
                    exact = torch.empty_like(exact).index_copy_(1, perm.long(), exact)
                self.assert_product(ops.linear(x, *weight), x, exact)
                found = ops.dequantize(*weight, dtype=torch.float32)
                self.assertTrue(torch.equal(found, (exact.float())), (name, perm))

    def test_odd_sizes_and_groups(self):
        """No kernel takes inputs or groups that are not in 8s: they become f32 once."""
        for kind, cols, group in (("u4", 21, 0), ("u4", 30, 10), ("u4", 66, 33), ("u4", 1, 0),
                                  ("u3", 41, 0), ("u3", 42, 14), ("u5", 60, 12), ("i7", 9, 3)):
            packed = subbyte.torch.quantize(torch.randn(3, cols), kind, group)
            exact = subbyte.torch.dequantize(packed).double()
            self.assertEqual(exact.shape, (3, cols))
            self.assertTrue(torch.equal(subbyte.torch.dequantize(packed, cols=cols).double(),
                                        exact))
            x = torch.randn(2, cols)
            self.assert_product(subbyte.torch.linear(x, packed), x, exact)
            self.assert_refused(f"x: expected a last dimension of {cols}", subbyte.torch.linear,
                                torch.randn(2, cols + 1), packed)

    def test_columns_are_said_where_bytes_do_not_tell(self):
        packed = subbyte.torch.quantize(torch.randn(3, 41), "u3", 0)
        self.assertEqual(packed.format, "u3 per row scale f16 zero u8 cols 41")
        bare = packed._replace(format="u3 per row scale f16 zero u8")
        self.assert_refused("format: expected the columns of rows that end within a byte",
                            subbyte.torch.dequantize, bare)
        self.assertTrue(torch.equal(subbyte.torch.dequantize(bare, cols=41),
                                    subbyte.torch.dequantize(packed)))
        self.assert_refused("cols: expected the 41 of the format, found 42",
                            subbyte.torch.dequantize, packed, cols=42)
        fake = torch._subclasses.FakeTensorMode()
        with fake:
            shapes = [fake.from_tensor(t) for t in packed[:3]]
            self.assertEqual(ops.dequantize(*shapes, packed.format, dtype=torch.float32).shape,
                             (3, 41))

    def test_an_infinite_input_is_one_of_the_product(self):
        """Of kernels, which take numbers apart, all results of its row would be NaN."""
        weight = torch.randn(16, 64)
        for kind in ("u4", "i4", "u5", "mxfp4", "i8"):
            packed = subbyte.torch.quantize(weight, kind, 32 if kind[0] in "ui" else None)
            exact = subbyte.torch.dequantize(packed)
            for dtype in FLOATS:
                x = torch.randn(3, 64).to(dtype)
                x[1, 5], x[2, 7] = float("inf"), float("nan")
                y, want = subbyte.torch.linear(x, packed), x.float() @ exact.T
                self.assertTrue(torch.equal(y[1].isinf(), want[1].isinf()), (kind, dtype))
                self.assertTrue(torch.equal(y[1].float()[want[1].isinf()],
                                            want[1][want[1].isinf()]))
                self.assertTrue(y[0].isfinite().all() and y[2].isnan().all())

    def test_says_what_is_lost_in_rounding(self):
        for bits, symmetric in ((3, False), (4, False), (8, True)):
            for size, words in ((1e-30, "[quantize.loss]"), (1e30, "[quantize.scale_overflow]")):
                self.assert_refused(words, ops.quantize_int, torch.full((16, 128), size), bits, 128,
                                    symmetric)
            zeros = ops.quantize_int(torch.zeros(16, 128), bits, 128, symmetric)
            self.assertEqual(zeros[0].shape, (16, 16 * bits))
        for kind in ("mxfp4", "nvfp4", "nf4", "nfl3", "fp8"):  # with a factor, or scales of f32
            for size in (1e-30, 1e30):
                packed = subbyte.torch.quantize(torch.full((16, 128), size), kind)
                ratio = subbyte.torch.dequantize(packed).double() / size
                self.assertTrue(((ratio - 1).abs() < 0.2).all(), (kind, size))

    def test_takes_the_names_of_the_program(self):
        w = torch.randn(128, 128)
        for name, kind, group in (("awq", "u4", 128), ("gptq", "i4", 128), ("int8", "i8", 0),
                                  ("kbit3", "nfl3", None), ("compressed-tensors", "i4", 128)):
            for a, b in zip(subbyte.torch.quantize(w, name), subbyte.torch.quantize(w, kind, group),
                            strict=True):
                self.assertTrue(a == b if not isinstance(a, torch.Tensor) else torch.equal(a, b))

    def test_takes_elements_names_and_texts(self):
        w, x = torch.randn(64, 128), torch.randn(3, 128)
        for name, text in (("u4", "u4 g128 scale f16 zero u8"), ("nf4", "nf4 g64 scale f32"),
                           ("W4A16", "i4 g128 scale f16"), ("mxfp4", "e2m1 g32 scale e8m0"),
                           ("kbit", "nfl4 g32 scale e4m4"), ("nvfp4", "e2m1 g16 scale e4m3")):
            packed = subbyte.torch.quantize(w, name)
            self.assertEqual(packed.format, text)
            again = subbyte.torch.quantize(w, text)
            self.assertTrue(torch.equal(packed.codes, again.codes))
            named = packed._replace(format=name)  # of operators, too
            self.assertTrue(torch.equal(subbyte.torch.linear(x, named),
                                        subbyte.torch.linear(x, packed)))
            compiled = torch.compile(lambda n: subbyte.torch.dequantize(n), backend="aot_eager")
            self.assertTrue(torch.equal(compiled(named), subbyte.torch.dequantize(packed)))
            torch._dynamo.reset()
            quantize = torch.compile(lambda w: subbyte.torch.quantize(w, name).codes,
                                     fullgraph=True, backend="aot_eager")
            self.assertTrue(torch.equal(quantize(w), packed.codes))
        meant = 'no format "int4" here: integers of 4 bits are awq, gptq or w4a16'
        with self.assertRaisesRegex(ValueError, meant):
            subbyte.torch.quantize(w, "int4")
        self.assert_refused(meant, subbyte.torch.linear, x, packed._replace(format="int4"))
        with self.assertRaisesRegex(ValueError, "group: expected that of"):
            subbyte.torch.quantize(w, "u4 g128 scale f16 zero u8", 64)

    def test_halves_the_usual_group_until_it_divides_the_inputs(self):
        for kind, cols, group in (("u4", 96, 32), ("i8", 40, 8), ("u2", 192, 64), ("awq", 72, 8),
                                  ("gptq", 48, 16), ("nf4", 96, 32)):
            packed = subbyte.torch.quantize(torch.randn(8, cols), kind)
            self.assertIn(f" g{group} ", packed.format)
            self.assertEqual(packed.scales.shape, (8, cols // group))
        for kind, cols in (("u4", 41), ("gptq", 40), ("mxfp4", 48)):  # by what is asked for alone
            with self.assertRaises(RuntimeError):
                subbyte.torch.quantize(torch.randn(8, cols), kind)

    def test_offsets(self):
        """Float zero points: w = (q - 8) s + z."""
        packed = subbyte.torch.quantize(torch.randn(16, 64), "i4", 32)
        for dtype, name in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
            z = torch.randn(16, 2).to(dtype)
            base = subbyte.torch.dequantize(packed).double()
            offset = z.double().repeat_interleave(32, 1)
            order = torch.randperm(64, dtype=torch.int32)
            for perm in (None, order):
                weight = packed._replace(zeros=z, format=f"i4 g32 scale f16 offset {name}",
                                         input_order=perm)
                exact, size = base + offset, base.abs() + offset.abs()
                if perm is not None:
                    exact = torch.empty_like(exact).index_copy_(1, perm.long(), exact)
                    size = torch.empty_like(size).index_copy_(1, perm.long(), size)
                x = torch.randn(5, 64)
                y = subbyte.torch.linear(x, weight)
                self.assert_product(y, x, exact, terms=size)
                found = subbyte.torch.dequantize(weight).double()
                self.assertTrue(torch.allclose(found, exact, rtol=0, atol=1e-6))

    def test_offsets_follow_the_order_of_inputs_where_the_matrix_is_a_copy(self):
        """Groups that no kernel reads become f32 in the order of x; offsets are of groups still."""
        for kind, cols, group in (("i4", 60, 12), ("i3", 42, 14), ("i4", 21, 7), ("i7", 72, 24)):
            packed = subbyte.torch.quantize(torch.randn(16, cols), kind, group)
            z, order = torch.randn(16, cols // group), torch.randperm(cols, dtype=torch.int32)
            words = packed.format.replace("scale f16", "scale f16 offset f32")
            weight = packed._replace(zeros=z, format=words, input_order=order)
            parts = (subbyte.torch.dequantize(packed).double(),
                     z.double().repeat_interleave(group, 1))
            exact, size = (torch.empty(16, cols, dtype=torch.float64).index_copy_(
                1, order.long(), of) for of in (sum(parts), sum(part.abs() for part in parts)))
            for rows in (1, 5, 40):  # few rows have their offsets added by the same thread
                with self.subTest(kind=kind, cols=cols, rows=rows):
                    x = torch.randn(rows, cols)
                    self.assert_product(subbyte.torch.linear(x, weight), x, exact, terms=size)
                    x[0, 9] = float("inf")  # computed by the definition of a product
                    y = subbyte.torch.linear(x, weight)
                    self.assertTrue(torch.equal(y[0], x[0] @ exact.T.float()))
                    self.assert_product(y[1:], x[1:], exact, terms=size)
            found = subbyte.torch.dequantize(weight).double()
            self.assertTrue(torch.allclose(found, exact, rtol=0, atol=1e-6))

    def test_act_order_and_codebook(self):
        order = torch.randperm(64, dtype=torch.int32)
        packed = subbyte.torch.quantize(torch.randn(8, 64), "u4", 32)
        plain = subbyte.torch.dequantize(packed).double()
        exact = torch.empty_like(plain).index_copy_(1, order.long(), plain)
        x = torch.randn(4, 64)
        y = subbyte.torch.linear(x, packed._replace(input_order=order))
        self.assert_product(y, x, exact)
        book = torch.tensor([-1.0, -0.3, 0.1, 0.9])
        own = subbyte.torch.quantize(torch.randn(8, 64), "nfl2", codebook=book)
        table = book[codes_of(own, 64)].double()
        ratio = subbyte.torch.dequantize(own).double() / table
        self.assertTrue(torch.allclose(ratio[:, :32], ratio[:, :1].expand(8, 32), rtol=1e-6))
        self.assert_product(subbyte.torch.linear(x, own), x,
                            subbyte.torch.dequantize(own).double())

    def test_codebooks_that_no_kernel_reads(self):
        """With scales of f32, groups or inputs that are not in 8s: they become f32 once."""
        for bits, cols, group in ((4, 128, 64), (4, 40, 8), (2, 36, 12)):
            with self.subTest(bits=bits, cols=cols, group=group):
                book = torch.sort(torch.randn(1 << bits))[0]
                codes = torch.randint(0, 256, (6, cols * bits // 8), dtype=torch.uint8)
                scales = torch.rand(6, (cols + group - 1) // group) + 0.5
                own = subbyte.torch.PackedWeight(codes, scales, None,
                                                 f"nfl{bits} g{group} scale f32", None, book)
                places = torch.arange(cols) * bits
                index = codes[:, places // 8] >> (places % 8) & (1 << bits) - 1
                exact = book[index.long()].double() * scales.repeat_interleave(group, 1)[:, :cols]
                x = torch.randn(3, cols)
                self.assert_product(subbyte.torch.linear(x, own), x, exact)

    def test_many_dimensions(self):
        packed = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
        x = torch.randn(*[1] * 40, 3, 64)
        y = subbyte.torch.linear(x, packed)
        self.assertEqual(y.shape, (*[1] * 40, 3, 16))
        self.assertTrue(torch.equal(y.view(3, 16), subbyte.torch.linear(x.view(3, 64), packed)))

    def test_not_contiguous(self):
        packed = subbyte.torch.quantize(torch.randn(64, 16).T, "u4", 32)
        x = torch.randn(64, 6).T
        y = subbyte.torch.linear(x, packed._replace(scales=packed.scales.T.contiguous().T))
        self.assert_product(y, x, subbyte.torch.dequantize(packed).double())

    def test_writes_into_out(self):
        packed = subbyte.torch.quantize(torch.randn(16, 64), "i4", 32)
        x, out = torch.randn(3, 64), torch.empty(3, 16)
        ops.linear_out(x, *packed, out=out)
        self.assertTrue(torch.equal(out, subbyte.torch.linear(x, packed)))
        self.assert_refused("out: expected a contiguous tensor of f32 [3, 16]", ops.linear_out, x,
                            *packed, out=torch.empty(16, 3).T)
        full = torch.empty(16, 64, dtype=torch.float16)
        ops.dequantize_out(*packed, dtype=torch.float16, out=full)
        self.assertTrue(torch.equal(full, subbyte.torch.dequantize(packed, torch.float16)))

    def test_sees_what_is_written_to_weights_that_it_has_copied(self):
        """5 bits become bytes once; the copy is made again after a write, in inference mode too."""
        for inference in (False, True):
            with torch.inference_mode(inference):
                packed = subbyte.torch.quantize(torch.randn(16, 64), "u5", 32)
                x = torch.randn(2, 64)
                for _ in range(3):
                    packed.codes.copy_(torch.randint_like(packed.codes, 256))
                    exact = subbyte.torch.dequantize(packed).double()
                    self.assert_product(subbyte.torch.linear(x, packed), x, exact)

    def test_copies_are_of_one_type_one_shape_one_format(self):
        """The key of a kept copy holds all that it was made of."""
        x = torch.randn(2, 64)
        base = subbyte.torch.quantize(torch.randn(16, 64), "i5", 32)
        # Offsets: the same bytes as f16 and as bf16.
        z = torch.randn(16, 2).half()
        for view in (z, z.view(torch.bfloat16), z):
            name = "f16" if view.dtype == torch.float16 else "bf16"
            weight = base._replace(zeros=view, format=f"i5 g32 scale f16 offset {name}")
            subbyte.torch.linear(x, weight)
            subbyte_now = subbyte.torch.linear(x, weight)
            subbyte.torch.forget()
            self.assertTrue(torch.equal(subbyte_now, subbyte.torch.linear(x, weight)), name)
        # Codes: the same bytes in another shape, of other bits, with other scales.
        codes = torch.randint(0, 256, (16, 40), dtype=torch.uint8)
        for shape, kind, cols in (((16, 40), "u5", 64), ((32, 20), "u5", 32), ((16, 40), "i5", 64)):
            scales = torch.ones(shape[0], cols // 32)
            weight = subbyte.torch.PackedWeight(codes.view(shape), scales, None,
                                                f"{kind} g32 scale f32")
            y = subbyte.torch.linear(x[:, :cols], weight)
            exact = subbyte.torch.dequantize(weight).double()
            self.assert_product(y, x[:, :cols].contiguous(), exact)

    def test_factors_are_of_each_call(self):
        x, factor = torch.randn(2, 64), torch.tensor(1.0)
        packed = subbyte.torch.quantize(torch.randn(16, 64), "u5", 32)._replace(tensor_scale=factor)
        one = subbyte.torch.linear(x, packed)
        factor.mul_(3)
        self.assertTrue(torch.allclose(subbyte.torch.linear(x, packed), 3 * one, rtol=1e-6))
        self.assertTrue(torch.allclose(
            subbyte.torch.linear(x, packed._replace(tensor_scale=None)), one, rtol=1e-6))

    def test_memory_that_is_set_to_another_is_held(self):
        """No tensor comes to lie where a copy was made of."""
        subbyte.torch.forget()
        packed = subbyte.torch.quantize(torch.randn(64, 512), "u5", 32)
        x, codes = torch.randn(2, 512), packed.codes
        subbyte.torch.linear(x, packed)
        for _ in range(8):
            old = codes.data_ptr()
            codes.data = torch.randint_like(codes, 256)
            fresh = torch.randint_like(codes, 256)
            self.assertNotEqual(fresh.data_ptr(), old)
            for weight in (packed, packed._replace(codes=fresh)):
                self.assert_product(subbyte.torch.linear(x, weight), x,
                                    subbyte.torch.dequantize(weight).double())

    def test_kept_bytes_count_the_tensors_that_copies_hold(self):
        subbyte.torch.forget()
        x = torch.randn(1, 256)
        for _ in range(50):
            subbyte.torch.linear(x, subbyte.torch.quantize(torch.randn(64, 256), "u5", 32))
        codes, scales, zeros = 64 * 256 * 5 // 8, 64 * 8 * 2, 64 * 8
        copy = 64 * 256 + 64 * 8 * 2  # bytes, and zero points of 16 bits
        self.assertEqual(subbyte.torch.kept_bytes(), 50 * (codes + scales + zeros + copy))
        subbyte.torch.forget()
        self.assertEqual(subbyte.torch.kept_bytes(), 0)

    def test_refuses(self):
        p = subbyte.torch.quantize(torch.randn(16, 64), "u4", 32)
        x = torch.randn(2, 64)
        linear = subbyte.torch.linear
        for cols in (60, 63, 65):  # rows of 63 would have as many bytes
            self.assert_refused("x: expected a last dimension of 64, found f32 "
                                f"[2, {cols}] [torch.argument]", linear, torch.randn(2, cols), p)
        for words in ("u4 g0", "u4 g032 scale f16 zero u8", p.format + " ", " " + p.format,
                      "u4  g32 scale f16 zero u8", p.format + " cols", p.format + " cols 0",
                      "u4 g-1 scale f16", f"u4 g{2**63 - 1} scale f16", f"u4 g{2**64} scale f16",
                      "u4 g16777217 scale f16"):
            self.assert_refused("format: expected words like", linear, x, p._replace(format=words))
            self.assert_refused("format: expected words like", ops.dequantize,
                                *p._replace(format=words), dtype=torch.float32)
        self.assert_refused("tensor_scale: expected a finite number", linear, x,
                            p._replace(tensor_scale=torch.tensor(float("inf"))))
        self.assert_refused("scales: expected f16 [16, 2], found none", linear, x,
                            p._replace(scales=None))
        self.assert_refused("scales: expected f16 [16, 2], found f32 [16, 2]", linear, x,
                            p._replace(scales=p.scales.float()))
        self.assert_refused("zeros: expected u8 [16, 2], found u8 [16, 1]", linear, x,
                            p._replace(zeros=p.zeros[:, :1]))
        self.assert_refused("x: expected f32 or f16 or bf16, found f64 [2, 64]", linear,
                            x.double(), p)
        self.assert_refused("bias: expected sizes [16], found f32 [3]", linear, x, p,
                            torch.randn(3))
        order = torch.arange(64, dtype=torch.int32)
        for wrong in (-1, 5, 64, 2**31 - 1):
            order[9] = wrong
            words = f"input_order: expected every input once, found {wrong} at column 9"
            bad = p._replace(input_order=order)
            self.assert_refused(words, linear, x, bad)
            self.assert_refused(words, ops.dequantize, *bad, dtype=torch.float32)
            out = torch.full((16, 64), 7.0)
            self.assert_refused(words, ops.dequantize_out, *bad, dtype=torch.float32, out=out)
            self.assertTrue((out == 7).all())
        self.assert_refused("codebook: expected none", linear, x,
                            p._replace(codebook=torch.zeros(16)))
        self.assert_refused("quantize.not_finite", subbyte.torch.quantize,
                            torch.full((4, 64), float("nan")), "nf4")
        self.assert_refused("bits: expected 2 to 8, found 9", ops.quantize_int, x, 9, 32)

    def test_opcheck_and_compile(self):
        for kind in ("u4", "i8", "nvfp4", "nfl3"):
            packed = subbyte.torch.quantize(torch.randn(16, 128), kind)
            x, bias = torch.randn(2, 128), torch.randn(16)
            self.check_operator(ops.linear, x, *packed, bias)
            self.check_operator(ops.linear_out, x, *packed, bias, out=torch.empty(2, 16))
            self.check_operator(ops.dequantize, *packed, dtype=torch.float16)
            self.check_operator(ops.dequantize_out, *packed, dtype=torch.float32,
                                out=torch.empty(16, 128))
            compiled = torch.compile(lambda x: subbyte.torch.linear(x, packed, bias) + 1,
                                     fullgraph=True, backend="aot_eager")
            self.assertTrue(torch.equal(compiled(x), subbyte.torch.linear(x, packed, bias) + 1))
        w = torch.randn(4, 128)
        self.check_operator(ops.quantize_int, w, 4, 32, False)
        self.check_operator(ops.quantize_int, w, 8, 0, True)
        self.check_operator(ops.quantize_mxfp4, w)
        self.check_operator(ops.quantize_nvfp4, w)
        self.check_operator(ops.quantize_nf4, w)
        self.check_operator(ops.quantize_nfl, w, 3)
        self.check_operator(ops.quantize_fp8, w)

    def test_autocast_and_threads(self):
        packed = subbyte.torch.quantize(torch.randn(64, 128), "u4")
        x = torch.randn(5, 128)
        want = subbyte.torch.linear(x, packed)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertTrue(torch.equal(subbyte.torch.linear(x, packed), want))
        before = torch.get_num_threads()
        for threads in (1, 3, before):
            torch.set_num_threads(threads)
            self.assertTrue(torch.equal(subbyte.torch.linear(x, packed), want))
        results: list[bool] = []

        def work():
            for _ in range(50):
                results.append(torch.equal(subbyte.torch.linear(x, packed), want))

        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(results, [True] * 400)

    def test_a_call_costs_little_more_than_one_of_torch(self):
        """What nothing disturbed of many calls; the products are of no time."""
        x, w = torch.randn(1, 8), torch.randn(8, 8)

        def best(call) -> int:
            times = []
            for _ in range(4000):
                begin = time.perf_counter_ns()
                call()
                times.append(time.perf_counter_ns() - begin)
            return min(times)

        ours = best(lambda: ops.linear(x, w, None, None, "f32"))
        theirs = best(lambda: torch.nn.functional.linear(x, w))
        self.assertLess(ours - theirs, 8000)

    def test_ten_thousand_calls_do_not_grow(self):
        packed = subbyte.torch.quantize(torch.randn(64, 256), "i5", 32)
        x = torch.randn(4, 256, dtype=torch.bfloat16)

        def resident() -> int:
            gc.collect()
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096

        for _ in range(500):
            subbyte.torch.linear(x, packed)
        before = resident()
        for _ in range(10_000):
            subbyte.torch.linear(x, packed)
        # A leak of the result alone would be 10,000 * 512 bytes = 4.9 MiB.
        self.assertLess(resident() - before, 2 << 20)


if __name__ == "__main__":
    unittest.main()
