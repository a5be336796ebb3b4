#!/usr/bin/env python3
"""Times of the operators of torch.ops.subbyte at several numbers of tokens as a table.

    PYTHONPATH=build/release/torch_package python3 python/bench/operator_table.py [--device cuda]

Each is beside what a user has otherwise: the original where it runs here (aten), else the product
with the same weights in 16 bits (torch's matmul, cuBLAS on a GPU), which is the least that
dequantizing first could take. A cell has microseconds and how many times that they are the faster
ones. Other programs must be still.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

import subbyte.torch
from operators import microseconds

ops, aten = torch.ops.subbyte, torch.ops.aten
SIZES = (1, 16, 256, 4096)
BF16, F16 = torch.bfloat16, torch.float16
U4B8 = 4 << 8 | 8 << 17 | 1 << 50  # vLLM's number of the type
EXPERTS, TOP_K = 32, 4

Call = Callable[[torch.Tensor], torch.Tensor]


class Bench:
    def __init__(self, device: str, rows: int, cols: int) -> None:
        self.device, self.n, self.k = device, rows, cols
        w = torch.randn(rows, cols) * 0.02
        self.w = w
        self.dense = {dtype: w.to(device, dtype) for dtype in (BF16, F16)}

    def move(self, *values):
        return tuple(v.to(self.device) if isinstance(v, torch.Tensor) else v for v in values)

    def matmul(self, dtype: torch.dtype) -> Call:
        dense = self.dense[dtype]
        return lambda x: torch.nn.functional.linear(x, dense)

    def packed(self, kind: str) -> Call:
        weight = subbyte.torch.quantize(self.w, kind)
        weight = subbyte.torch.PackedWeight(*(
            t.to(self.device) if isinstance(t, torch.Tensor) and name != "tensor_scale" else t
            for name, t in weight._asdict().items()))
        return lambda x: subbyte.torch.linear(x, weight)

    def int4(self) -> tuple[Call, Call]:
        """Ours and aten's of this device, on the same words."""
        pairs = torch.rand(self.k // 128, self.n, 2, device=self.device, dtype=BF16)
        if self.device == "cpu":
            q = torch.randint(0, 16, (self.n, self.k), dtype=torch.int32)
            tiles = aten._convert_weight_to_int4pack_for_cpu(q, 2)
            return (lambda x: ops._weight_int4pack_mm_for_cpu(x, tiles, 128, pairs),
                    lambda x: aten._weight_int4pack_mm_for_cpu(x, tiles, 128, pairs))
        codes = torch.randint(0, 256, (self.n, self.k // 2), dtype=torch.uint8, device="cuda")
        words = aten._convert_weight_to_int4pack(codes, 8)
        return (lambda x: ops._weight_int4pack_mm(x, words, 128, pairs),
                lambda x: aten._weight_int4pack_mm(x, words, 128, pairs))

    def marlin(self) -> Call:
        n, k = self.n, self.k
        words, scales, space = self.move(
            torch.randint(-2**31, 2**31 - 1, (k // 16, n * 2), dtype=torch.int32),
            torch.rand(k // 128, n).half() * 0.01, torch.zeros(1024, dtype=torch.int32))
        return lambda x: ops.marlin_gemm(x, None, words, None, scales, None, None, None, space,
                                         U4B8, x.shape[0], n, k)

    def awq(self) -> Call:
        words, scales, zeros = self.move(
            torch.randint(-2**31, 2**31 - 1, (self.k, self.n // 8), dtype=torch.int32),
            torch.rand(self.k // 128, self.n).half() * 0.01,
            torch.randint(-2**31, 2**31 - 1, (self.k // 128, self.n // 8), dtype=torch.int32))
        return lambda x: ops.awq_gemm(x, words, scales, zeros, 8)

    def nf4(self) -> Call:
        packed, absmax = self.move(*ops.quantize_4bit(self.w, 64, "nf4", torch.uint8))
        return lambda x: ops.gemm_4bit(x, packed, [self.n, self.k], absmax, 64, "nf4")

    def kbit(self, bits: int) -> Call:
        book = torch.linspace(-1, 1, 1 << bits)
        tiles = ops.repack_kbit(*ops.quantize_kbit(self.w, book, bits), self.k, self.n, bits)
        given = self.move(*tiles, book)
        return lambda x: ops.kbit_gemm_prod(x, *given, self.k, self.n, bits, 1)

    def vq(self) -> Call:
        """Random indices: the quantizer of a CPU would take minutes."""
        blocks = self.n * self.k // 32 + 1
        given = self.move(
            torch.randint(-2**31, 2**31 - 1, (blocks * 4,), dtype=torch.int32),
            torch.randint(0, 120, (blocks,), dtype=torch.uint8), torch.randn(256, 2).half())
        return lambda x: ops.vq_gemm_prod(x, *given, self.k, self.n, 2, 1)

    def experts(self) -> tuple[Call, Call]:
        """A layer of MXFP4 beside torch's products of 16 bits, expert by expert."""
        hidden, inner = 2048, 1024
        stacks = []
        for rows, cols in ((2 * inner, hidden), (hidden, inner)):
            stacks += [torch.randint(0, 256, (EXPERTS, rows, cols // 2), dtype=torch.uint8),
                       torch.randint(118, 122, (EXPERTS, rows, cols // 32), dtype=torch.uint8),
                       None, "e2m1 g32 scale e8m0"]
        stacks = self.move(*stacks)
        up = torch.randn(EXPERTS, 2 * inner, hidden, device=self.device, dtype=BF16) * 0.02
        down = torch.randn(EXPERTS, hidden, inner, device=self.device, dtype=BF16) * 0.02
        router = torch.randn(EXPERTS, hidden, device=self.device, dtype=BF16)

        def theirs(x):
            weights, chosen = torch.topk(torch.nn.functional.linear(x, router).float(), TOP_K)
            weights = torch.softmax(weights, -1)
            y = torch.zeros_like(x)
            for e in range(EXPERTS):
                token, place = torch.where(chosen == e)
                if len(token) == 0:
                    continue
                gate, lin = torch.nn.functional.linear(x[token], up[e]).chunk(2, -1)
                part = torch.nn.functional.linear(torch.nn.functional.silu(gate) * lin, down[e])
                y.index_add_(0, token, part * weights[token, place, None].to(x.dtype))
            return y

        return (lambda x: ops.experts(x, torch.nn.functional.linear(x, router).float(), *stacks,
                                      TOP_K), theirs)

    def group_gemm(self) -> tuple[Callable[[int], Call], Callable[[int], Call]]:
        """Eight groups of MXFP8 rows beside torch's products of 16 bits, group by group."""
        groups, n, k = 8, 2048, 2048
        b = torch.randint(0, 256, (groups, n, k // 2), dtype=torch.uint8)
        b_scale = torch.randint(118, 122, (groups, n, k // 32), dtype=torch.uint8)
        b, b_scale = self.move(b, b_scale)
        dense = torch.randn(groups, n, k, device=self.device, dtype=BF16)

        def ours(m: int) -> Call:
            each = max(4, m // groups // 4 * 4)
            rows = [each * i for i in range(groups + 1)] if m >= 32 else [0, *[4] * groups]
            indptr = torch.tensor(rows, dtype=torch.int32, device=self.device)
            total = rows[-1]
            a = torch.randn(total, k, device=self.device).to(torch.float8_e4m3fn)
            padded = (total + 127 * groups) // 128 * 128
            scale = torch.full((padded, k // 32), 127, dtype=torch.uint8, device=self.device)
            return lambda x: ops.group_gemm_mxfp8_mxfp4_nt_groupwise(a, b, scale, b_scale, indptr)

        def theirs(m: int) -> Call:
            each = max(4, m // groups // 4 * 4)
            x = torch.randn(each, k, device=self.device, dtype=BF16)
            used = range(groups if m >= 32 else 1)
            return lambda _: [torch.nn.functional.linear(x, dense[i]) for i in used][0]

        return ours, theirs


def cell(ours: Call, theirs: Call, x: torch.Tensor, device: str) -> str:
    a, b = (microseconds(lambda: call(x), device) for call in (ours, theirs))
    return f"{a:.0f} ({b / a:.2f})"


def row(bench: Bench, name: str, original: str, ours: Call, theirs: Call, dtype: torch.dtype,
        cols: int | None = None, most: int = 4096) -> None:
    cells = []
    for m in SIZES:
        if m > most:
            cells.append("")
            continue
        x = torch.randn(m, cols or bench.k, device=bench.device, dtype=dtype)
        cells.append(cell(ours, theirs, x, bench.device))
    print(f"|{name}|{original}|{bench.device}|{'|'.join(cells)}|", flush=True)


def groups_row(bench: Bench) -> None:
    ours, theirs = bench.group_gemm()
    none = torch.empty(0)
    cells = [cell(ours(m), theirs(m), none, bench.device) for m in SIZES]
    print(f"|group_gemm_mxfp8_mxfp4, 8 x 2048 x 2048|CUDA, Blackwell|{bench.device}|"
          f"{'|'.join(cells)}|", flush=True)


def quantizer_row(bench: Bench, name: str, original: str, call: Call) -> None:
    """No torch operator does the same; microseconds and GB/s of what is read."""
    cells = []
    for m in SIZES:
        x = torch.randn(m, bench.k, device=bench.device, dtype=F16)
        time = microseconds(lambda: call(x), bench.device)
        cells.append(f"{time:.0f} ({x.numel() * 2 / time / 1000:.0f} GB/s)")
    print(f"|{name}|{original}|{bench.device}|{'|'.join(cells)}|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--most", type=int, default=4096, help="tokens of the products, at most")
    arguments = parser.parse_args()
    device, most = arguments.device, arguments.most
    name = torch.cuda.get_device_name() if device == "cuda" else (
        f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    print(f"torch {torch.__version__}, {name}; {arguments.rows} x {arguments.cols}; microseconds, "
          "and how many times faster than aten's or 16-bit products")
    print("|operator|original|here|" + "|".join(f"M = {m}" for m in SIZES) + "|")
    print("|---|---|---|" + "---|" * len(SIZES))
    bench = Bench(device, arguments.rows, arguments.cols)
    original = "CPU" if device == "cpu" else "CUDA"
    row(bench, "aten's int4 product", original, *bench.int4(), BF16, most=most)
    for kind in ("u4", "mxfp4", "nvfp4", "nf4", "i8", "fp8"):
        row(bench, f"linear {kind}", "", bench.packed(kind), bench.matmul(BF16), BF16, most=most)
    row(bench, "marlin_gemm u4b8", "CUDA", bench.marlin(), bench.matmul(F16), F16, most=most)
    row(bench, "awq_gemm", "CUDA", bench.awq(), bench.matmul(F16), F16, most=most)
    row(bench, "gemm_4bit nf4", "CPU, CUDA, XPU", bench.nf4(), bench.matmul(BF16), BF16, most=most)
    for bits in (2, 3, 4, 5):
        row(bench, f"kbit_gemm_prod {bits}", "CUDA", bench.kbit(bits), bench.matmul(F16), F16,
            most=most)
    row(bench, "vq_gemm_prod 2", "CUDA", bench.vq(), bench.matmul(F16), F16, most=most)
    row(bench, f"experts mxfp4, {TOP_K} of {EXPERTS}", "", *bench.experts(), BF16, 2048, most)
    groups_row(bench)
    for name, call in (("mxfp8_quantize", ops.mxfp8_quantize),
                       ("mxfp4_quantize", ops.mxfp4_quantize)):
        quantizer_row(bench, name, "CUDA, Blackwell", call)
    if device == "cuda":
        quantizer_row(bench, "hadamard_rotate_ 256", "CUDA", lambda x: ops.hadamard_rotate_(x, 256))


if __name__ == "__main__":
    main()
