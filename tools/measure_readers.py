#!/usr/bin/env python3
"""CPU time and memory of every reader of files, for inputs of sizes s, 2 s and 4 s.

    tools/measure_readers.py PROGRAM [--only NAME...] [--seconds 0.5] [--repeat 3]
                             [--clock processor|user|instructions] [--list]

Makes an input that is as hard as its form allows, doubles it until the program takes --seconds of
CPU time for it (or until the input has the largest size that is read), and runs the program on that
size, on a half and on a quarter of it, --repeat times each, of which the least counts. What seems
to grow faster than the input is run again, the three sizes in turns, as other programs take caches
away. --clock user leaves out the time of the system, which grows with what else the machine does;
--clock instructions counts them, a billion as a second, and tells growth from noise on any machine:
valgrind runs the program, 40 times as long, and memory is left out. Prints a table for
docs/promises.md and exits with 1 when the cost of a size, of time or of memory, grows faster than
the input: when 4 s cost more than 2.3 times as much beyond 2 s as 2 s beyond s. That is 2 of what
is linear, whatever a program costs before it reads anything, and 4 of a square. Differences below
30 ms and 4 MB are noise.
"""
from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from pathlib import Path

from reader_inputs import READERS
from reader_stage import Cost, Reader, Stage

MOST_RATIO = 2.3
NOISE_SECONDS = 0.03
NOISE_BYTES = 4 << 20
ROUNDS = 4


def cost(stage: Stage, reader: Reader, count: int, repeat: int) -> tuple[Cost, int]:
    """The least of some runs, or of one where that takes long."""
    made = reader.make(stage, count)
    runs = [stage.run(made.arguments, made.text)]
    while len(runs) < repeat and runs[0].seconds < 4:
        runs.append(stage.run(made.arguments, made.text))
    return functools.reduce(least, runs), made.size


def least(a: Cost, b: Cost) -> Cost:
    return Cost(min(a.seconds, b.seconds), min(a.memory, b.memory))


def growth(costs: list[float], noise: float) -> float:
    """How much more the last doubling cost than the one before; 0 where it cost nothing."""
    first, second, third = costs
    return 0.0 if third - second < noise else (third - second) / max(second - first, noise)


def ratios_of(found: dict[int, Cost], sizes: list[int]) -> list[float]:
    return [growth([found[n].seconds for n in sizes], NOISE_SECONDS),
            growth([float(found[n].memory) for n in sizes], NOISE_BYTES)]


def measure(stage: Stage, reader: Reader, seconds: float, repeat: int) -> tuple[str, bool]:
    """A row of the table, and whether it is as it should be."""
    count, found, status = reader.first, {}, None
    while True:
        found[count], size = cost(stage, reader, count, repeat)
        if stage.status != status and status == 0:
            count //= 2  # the largest that is read: what is refused early says nothing of growth
            size = reader.make(stage, count).size
            break
        status = stage.status
        if 2 * count > reader.most or (found[count].seconds >= seconds and not reader.capped):
            break
        count *= 2
    sizes = [count // 4, count // 2, count]
    for part in sizes:
        if part not in found:
            found[part], _ = cost(stage, reader, part, repeat)
    for _ in range(ROUNDS):
        if max(ratios_of(found, sizes)) <= MOST_RATIO or reader.capped:
            break
        for n in sizes:
            found[n] = least(found[n], cost(stage, reader, n, repeat)[0])
    ratios = ratios_of(found, sizes)
    times = [found[n].seconds for n in sizes]
    if reader.capped:
        times = [max(made.seconds for made in found.values())]
        ratios[0] = 0.0
    right = max(ratios) <= MOST_RATIO and (not reader.capped or times[0] <= reader.capped)
    row = "|".join([
        reader.name, f"{count:,} {reader.grows}", f"{size / 1e6:.1f}",
        ", ".join(f"{t:.2f}" for t in times) + (" at most" if reader.capped else ""),
        f"{ratios[0]:.1f}" if ratios[0] else "-",
        ", ".join(f"{found[n].memory / 1e6:.0f}" for n in sizes),
        f"{ratios[1]:.1f}" if ratios[1] else "-"])
    return f"|{row}|" + ("" if right else "  <-- faster than the input"), right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of readers")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--clock", choices=["processor", "user", "instructions"],
                        default="processor")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [reader for reader in READERS
              if not options.only or any(part in reader.name for part in options.only)]
    if options.clock == "instructions":  # which no cap of seconds is compared with
        chosen = [reader for reader in chosen if not reader.capped]
    if options.list:
        print("\n".join(f"{reader.name}: {reader.grows}" for reader in chosen))
        return 0
    if options.program is None:
        parser.error("PROGRAM is missing")
    print("|reader|4 s|MB|CPU s at s, 2 s, 4 s|growth|memory MB|growth|")
    print("|---|---|---|---|---|---|---|", flush=True)
    right = True
    with tempfile.TemporaryDirectory(prefix="subbyte-readers-") as folder:
        stage = Stage(str(Path(options.program).resolve()), Path(folder), options.clock)
        for reader in chosen:
            row, is_right = measure(stage, reader, options.seconds, options.repeat)
            right = right and is_right
            print(row, flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
