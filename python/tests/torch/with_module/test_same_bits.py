"""C, Python and torch multiply the same bytes to the same bits: 20 shapes, 10 formats, M = 1, 7, 64
and 300, on the CPU and, where there is one, on a GPU. tests/interfaces/products_test.cc compares C
with C++ and the engine."""
from __future__ import annotations

import ctypes
import os
import re
import unittest
from pathlib import Path

import torch
from test_matrix import why_there_is_none

import subbyte
import subbyte.torch

FORMATS = ("u4", "i4", "u8", "u3", "u2", "mxfp4", "nvfp4", "fp8", "nf4", "nfl4")
SHAPES = [(rows, cols) for rows in (8, 24, 128, 520, 1032) for cols in (128, 384, 1024, 2176)]
ROWS_OF_X = (1, 7, 64, 300)
KEPT = Path(__file__).resolve().parents[4] / "tests/users/kept/c_structures.txt"
SIZES = {"4": ctypes.c_int32, "8": ctypes.c_int64}


def structure(name: str) -> type[ctypes.Structure]:
    """A structure of include/subbyte/subbyte.h, by its offsets in tests/users/kept."""
    lines = re.search(rf"^{name} \d+ bytes\n((?: .*\n)*)", KEPT.read_text(), re.M).group(1)
    fields = []
    for _, size, kind, field in re.findall(r" +(\d+) +(\d+) {2}(.+?) (\w+)\n", lines):
        number = {"float": ctypes.c_float, "double": ctypes.c_double}.get(kind, SIZES.get(size))
        fields.append((field, ctypes.c_void_p if kind.endswith("*") else number))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Weights, Product = structure("subbyte_weights"), structure("subbyte_product")


class C:
    """Matrices and products of libsubbyte.so."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["SUBBYTE_LIBRARY"])
        self.library.subbyte_last_error.restype = ctypes.c_char_p
        self.context = self.made("subbyte_context_create", None)

    def call(self, name: str, *arguments: object) -> None:
        if getattr(self.library, name)(*arguments) != 0:
            raise AssertionError(self.library.subbyte_last_error().decode())

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def number(self, word: str) -> int:
        found = ctypes.c_int32()
        self.call("subbyte_find_format", word.encode(), ctypes.byref(found))
        return found.value

    def matrix(self, parts: subbyte.Matrix) -> ctypes.c_void_p:
        words = parts.format.split(" ")
        of = dict(zip(words[1:], words[2:], strict=False))
        given = Weights(struct_size=ctypes.sizeof(Weights), element=self.number(words[0]),
                        scale=self.number(of["scale"]), rows=parts.shape[0], cols=parts.shape[1],
                        zero=self.number(of["zero"]) if "zero" in of else 0,
                        group_size=parts.group_size, tensor_scale=parts.tensor_scale,
                        codes=parts.codes.ctypes.data, scales=parts.scales.ctypes.data,
                        zeros=parts.zeros.ctypes.data if "zero" in of else None)
        return self.made("subbyte_matrix_create", self.context, ctypes.byref(given), None)

    def product(self, matrix: ctypes.c_void_p, x: torch.Tensor, rows: int) -> torch.Tensor:
        y = x.new_empty(x.shape[0], rows)
        number = 1 if x.dtype == torch.float32 else 2  # enum subbyte_format
        call = Product(struct_size=ctypes.sizeof(Product), x=x.data_ptr(), y=y.data_ptr(),
                       m=x.shape[0], number=number)
        if x.is_cuda:
            call.stream = torch.cuda.current_stream().cuda_stream
        self.call("subbyte_multiply", matrix, ctypes.byref(call))
        return y


def packed_weight(matrix: subbyte.Matrix, device: str) -> list:
    """The tensors of torch.ops.subbyte.linear."""
    words = matrix.format.split(" ")
    of = dict(zip(words[1:], words[2:], strict=False))
    types = {"f16": torch.float16, "f32": torch.float32, "u16": torch.uint16}

    def part(array: object, kind: str | None) -> torch.Tensor | None:
        if kind is None:
            return None
        made = torch.from_numpy(array.copy())
        return (made.view(types[kind]) if kind in types else made).to(device)

    factor = torch.tensor(matrix.tensor_scale, dtype=torch.float64)
    return [part(matrix.codes, "u8"), part(matrix.scales, of["scale"]),
            part(matrix.zeros, of.get("zero")), matrix.format, factor]


class SameBits(unittest.TestCase):
    def compare(self, device: str, dtype: torch.dtype) -> None:
        in_c = C()
        for name in FORMATS:
            for rows, cols in SHAPES:
                torch.manual_seed(11)
                matrix = subbyte.quantize((torch.randn(rows, cols) * 0.05).numpy(), format=name)
                host = held = in_c.matrix(matrix)
                if device == "cuda":
                    held = in_c.made("subbyte_matrix_to_gpu", host, 0, 0, None)
                weight = packed_weight(matrix, device)
                for m in ROWS_OF_X:
                    x = torch.randn(m, cols, dtype=dtype).to(device)
                    want = in_c.product(held, x, rows)
                    in_python = matrix.linear(x.numpy() if device == "cpu" else x)
                    found = {"Python": torch.from_dlpack(in_python),
                             "torch": torch.ops.subbyte.linear(x, *weight)}
                    for interface, y in found.items():
                        with self.subTest(interface, format=name, rows=rows, cols=cols, m=m):
                            self.assertEqual((y.dtype, y.shape), (want.dtype, want.shape))
                            self.assertTrue(torch.equal(y.view(torch.uint8),
                                                        want.view(torch.uint8)))
                for handle in {host.value, held.value}:
                    in_c.library.subbyte_matrix_destroy(ctypes.c_void_p(handle))

    def test_on_the_cpu(self) -> None:
        self.compare("cpu", torch.float32)

    @unittest.skipIf(why_there_is_none(), why_there_is_none())
    def test_on_a_gpu(self) -> None:
        self.compare("cuda", torch.float16)

    @unittest.skipIf(why_there_is_none(), why_there_is_none())
    def test_weights_are_rounded_on_the_host(self) -> None:
        """docs/interfaces.md: what Python has on CPUs alone."""
        with self.assertRaises(subbyte.Error) as caught:
            subbyte.quantize(torch.ones(8, 128, device="cuda"))
        self.assertEqual(caught.exception.code, "array.device")


if __name__ == "__main__":
    unittest.main()
