#!/usr/bin/env python3
"""Host time of torch.ops.subbyte.linear on a GPU: of eager calls, and of calls that are captured.

PYTHONPATH=build/release/torch_package python3 python/bench/host_time.py
Builds are compared in turns: one process each, nine times, with the PYTHONPATH of each.
"""

import time

import torch

import subbyte.torch

SIZE = 4096
CALLS, ROUNDS = 100, 100  # so few that the queue of the GPU is never full


def host_time(weight: list, m: int) -> tuple[float, float]:
    """Microseconds of a call: eager, and captured."""
    x = torch.randn(m, SIZE, dtype=torch.float16, device="cuda")

    def calls(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            torch.ops.subbyte.linear(x, *weight)
        return time.perf_counter() - begin

    calls(20)
    eager = 0.0
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        eager += calls(CALLS)
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        captured = calls(CALLS * 10)
    return eager / CALLS / ROUNDS * 1e6, captured / CALLS / 10 * 1e6


def main() -> None:
    """One line of a table."""
    made = subbyte.torch.quantize(torch.randn(SIZE, SIZE) * 0.02, "u4", 128)
    weight = [part.cuda() if isinstance(part, torch.Tensor) else part for part in made]
    for m in (1, 16, 256):
        print("M = %d: eager %.2f us, captured %.2f us" % (m, *host_time(weight, m)))


if __name__ == "__main__":
    main()
