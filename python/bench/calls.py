#!/usr/bin/env python3
"""What a call of Matrix.linear costs the host beside the product, in microseconds.

    python3 python/bench/calls.py

By numpy and by DLPack; where torch and a GPU are, of arrays there, too. The matrix is so small that
its product takes no time on the CPU. On a GPU calls are only queued, a few at a time, so that none
waits for another. The best of several runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import subbyte

ROWS, COLS = 32, 128
CALLS = 200  # fewer than a GPU queues


class ByDlpack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **arguments: object) -> object:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def microseconds(call: Callable[[], object], finish: Callable[[], object] = lambda: None) -> float:
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append(time.perf_counter() - begin)
        finish()
    return min(times) / CALLS * 1e6


def show(what: str, into: float, new: float) -> None:
    print(f"|{what}|{into:.1f}|{new:.1f}|")


def on_cpu(matrix: subbyte.Matrix) -> None:
    subbyte.set_threads(1)
    x, out = np.ones((1, COLS), np.float32), np.empty((1, ROWS), np.float32)
    show("numpy", microseconds(lambda: matrix.linear(x, out=out)),
         microseconds(lambda: matrix.linear(x)))
    exchanged, into = ByDlpack(x), ByDlpack(out)
    show("DLPack of the host", microseconds(lambda: matrix.linear(exchanged, out=into)),
         microseconds(lambda: matrix.linear(exchanged)))


def on_gpu(matrix: subbyte.Matrix) -> None:
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    x = torch.ones(1, COLS, dtype=torch.float16, device="cuda")
    out = torch.empty(1, ROWS, dtype=torch.float16, device="cuda")
    wait = torch.cuda.synchronize
    show(f"torch on {torch.cuda.get_device_name()}",
         microseconds(lambda: matrix.linear(x, out=out), wait),
         microseconds(lambda: torch.from_dlpack(matrix.linear(x)), wait))
    weights = torch.ones(ROWS, COLS, dtype=torch.float16, device="cuda")
    show("torch's own linear there",
         microseconds(lambda: torch.mm(x, weights.T, out=out), wait),
         microseconds(lambda: torch.nn.functional.linear(x, weights), wait))


def main() -> None:
    matrix = subbyte.quantize(np.random.default_rng(0).standard_normal((ROWS, COLS)), group_size=32)
    print("|arrays|us with out=|with a new array|\n|---|---|---|")
    on_cpu(matrix)
    on_gpu(matrix)


if __name__ == "__main__":
    main()
