#!/usr/bin/env python3
"""Times of operators of torch.ops.subbyte beside what a user of PyTorch has otherwise.

    PYTHONPATH=build/release/torch_package python3 python/bench/operators.py [--device cuda]

On a CPU: aten's int4 product and ours of the same tiles, and a product with dequantized weights. On
a GPU: torch's matrix product of 16 bits, and ours of several formats. Microseconds, the best of
several runs of at least 50 ms each. Other programs must be still.
"""

from __future__ import annotations

import argparse
import time

import torch

import subbyte.torch

ops, aten = torch.ops.subbyte, torch.ops.aten
SIZES = (1, 4, 16, 256, 4096)


def microseconds(function, device: str) -> float:
    def run(count: int) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            function()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    run(2)
    count = max(1, int(0.05 / max(run(1), 1e-7)))
    return min(run(count) for _ in range(5)) / count * 1e6


def overhead() -> None:
    x, w = torch.randn(1, 8), torch.randn(8, 8)
    ours = microseconds(lambda: ops.linear(x, w, None, None, "f32"), "cpu")
    theirs = microseconds(lambda: torch.nn.functional.linear(x, w), "cpu")
    print(f"a call for 1 x 8 x 8: ours {ours:.1f}, torch's linear {theirs:.1f}")


def int4(rows: int, cols: int, group: int) -> None:
    q = torch.randint(0, 16, (rows, cols), dtype=torch.int32)
    tiles = aten._convert_weight_to_int4pack_for_cpu(q, 2)
    for dtype in (torch.bfloat16, torch.float32):
        scales = torch.randn(cols // group, rows, 2).to(dtype)
        for m in SIZES:
            x = torch.randn(m, cols).to(dtype)
            ours = microseconds(
                lambda: ops._weight_int4pack_mm_for_cpu(x, tiles, group, scales), "cpu")
            if m > 256 and dtype == torch.float32:
                continue
            theirs = microseconds(
                lambda: aten._weight_int4pack_mm_for_cpu(x, tiles, group, scales), "cpu")
            print(f"int4 {rows} x {cols} g{group} {dtype} M {m}: ours {ours:.0f}, aten "
                  f"{theirs:.0f}, {theirs / ours:.2f} times")


def formats(rows: int, cols: int, device: str) -> None:
    w = torch.randn(rows, cols) * 0.02
    dtype = torch.bfloat16
    dense = w.to(device, dtype)
    for kind in ("u4", "mxfp4", "nvfp4", "nf4"):
        packed = subbyte.torch.quantize(w, kind)
        packed = subbyte.torch.PackedWeight(*(
            t.to(device) if isinstance(t, torch.Tensor) and name != "tensor_scale" else t
            for name, t in packed._asdict().items()))
        for m in SIZES:
            x = torch.randn(m, cols, device=device, dtype=dtype)
            ours = microseconds(lambda: subbyte.torch.linear(x, packed), device)
            theirs = microseconds(lambda: torch.nn.functional.linear(x, dense), device)
            print(f"linear {kind} {rows} x {cols} {dtype} M {m}: ours {ours:.0f}, dense torch "
                  f"{theirs:.0f}, {theirs / ours:.2f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
          f"{torch.backends.cpu.get_cpu_capability()}")
    if arguments.device == "cpu":
        overhead()
        int4(arguments.rows, arguments.cols, 128)
    formats(arguments.rows, arguments.cols, arguments.device)


if __name__ == "__main__":
    main()
