#!/usr/bin/env python3
"""Takes apart the time of an int4 product of few rows on a CPU, to see what bounds it.

    PYTHONPATH=build/release/torch_package python3 python/bench/int4_parts.py [--threads 16]

The slope over the outputs is what a row of weights costs, the intercept what a call costs beside:
waking threads, converting activations, sums of groups. Other programs must be still.
"""

from __future__ import annotations

import argparse

import torch

import subbyte.torch  # noqa: F401  registers the operators
from operators import microseconds

ops, aten = torch.ops.subbyte, torch.ops.aten


def times(rows: int, cols: int, m: int, dtype: torch.dtype) -> tuple[float, float, float]:
    """aten's product, ours, and ours without zero points, of the same codes; the best of three."""
    q = torch.randint(0, 16, (rows, cols), dtype=torch.int32)
    tiles = aten._convert_weight_to_int4pack_for_cpu(q, 2)
    scales = torch.rand(cols // 128, rows, 2).to(dtype)
    x = torch.randn(m, cols).to(dtype)
    plain = subbyte.torch.quantize(torch.randn(rows, cols), "i4", 128)
    calls = (lambda: aten._weight_int4pack_mm_for_cpu(x, tiles, 128, scales),
             lambda: ops._weight_int4pack_mm_for_cpu(x, tiles, 128, scales),
             lambda: subbyte.torch.linear(x, plain))
    best = [min(microseconds(call, "cpu") for _ in range(3)) for call in calls]
    return best[0], best[1], best[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cols", type=int, default=4096)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads, {torch.backends.cpu.get_cpu_capability()}, K "
          f"{arguments.cols}; microseconds, and GB/s of codes")
    for dtype in (torch.bfloat16, torch.float32):
        for m in (1, 4):
            for rows in (512, 4096, 14336):
                theirs, ours, plain = times(rows, arguments.cols, m, dtype)
                rate = rows * arguments.cols / 2 / ours / 1000
                print(f"{dtype} M {m} N {rows}: aten {theirs:.1f}, ours {ours:.1f} ({rate:.0f} "
                      f"GB/s), {theirs / ours:.2f} times; ours without zero points {plain:.1f}")


if __name__ == "__main__":
    main()
