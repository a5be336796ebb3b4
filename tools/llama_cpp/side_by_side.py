#!/usr/bin/env python3
"""The same GGUF files in our program and in llama.cpp, in turns on this machine, one table.

    tools/llama_cpp/llama_cpp.sh build           # once; or build-cpu
    tools/llama_cpp/side_by_side.py 8b.gguf --device cuda --prompt 4096 --depths 512,16384
    tools/llama_cpp/side_by_side.py 0.6b.gguf --device cpu --threads 2 --ours "--activations int8"
    tools/llama_cpp/side_by_side.py 8b.gguf --device cuda --model DIR
    tools/llama_cpp/side_by_side.py 8b.gguf --device cuda --prompt 0 --depths 128 --steps 32 \
        --parallel 16,64

A round is `subbyte bench` and then `llama-bench -fa 1`, for prompts and for what follows each
context; each run warms up by itself. Rates are tokens per second, medians of the rounds with the
smallest and the largest; "limit" is what one stream reaches of the read bandwidth that the same
run of ours measured. Several sequences that generate together are a run of llama-batched-bench,
after the first context. With --model ours measures that model in place of the file, such as one
in AWQ. What random_gguf.py writes opens in both.
"""
from __future__ import annotations

import argparse
import csv
import io
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Rates = dict[str, list[float]]
LIMIT = "limit of "  # before the names of tests among our rates: shares of the read bandwidth


def rows_of(command: list[str | Path], environment: dict[str, str] | None = None
            ) -> dict[str, dict[str, str]]:
    """Rows by the names of the tests, of programs that print llama-bench's CSV."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(words)} ended with {done.returncode}: {done.stderr}")
    found = {}
    for row in csv.DictReader(io.StringIO(done.stdout)):
        prompt, steps, depth = (int(row[key]) for key in ("n_prompt", "n_gen", "n_depth"))
        found[test_name(prompt, steps, depth, int(row.get("n_parallel", 1)))] = row
    return found


def test_name(prompt: int, steps: int, depth: int, streams: int) -> str:
    name = f"prompt of {prompt}" if prompt else f"{steps} tokens"
    name += f" of {streams} streams" if streams > 1 else ""
    return name + (f" after {depth}" if depth else "")


def streams_of(command: list[str | Path], arguments: argparse.Namespace) -> dict[str, float]:
    """Rates by the names of the tests, of llama-batched-bench."""
    context = int(arguments.depths.split(",")[0])
    most = max(int(count) for count in arguments.parallel.split(","))
    words = [*map(str, command), "-c", str(most * (context + arguments.steps)), "-npp",
             str(max(context, 1)), "-ntg", str(arguments.steps), "-npl", arguments.parallel,
             "--output-format", "jsonl"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        raise SystemExit(f"{shlex.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return {test_name(0, arguments.steps, context, row["pl"]): row["speed_tg"] for row in rows}


def tests(arguments: argparse.Namespace) -> list[list[str]]:
    """Options of each run, as both programs have them."""
    prompt = ["-p", str(arguments.prompt), "-n", "0"]
    decode = ["-p", "0", "-n", str(arguments.steps), "-d", arguments.depths]
    return ([prompt] if arguments.prompt else []) + ([decode] if arguments.steps else [])


def ours(program: Path, model: Path, device: str, threads: int) -> list[str | Path]:
    command = [program, "bench", model, "--device", device, "-o", "csv"]
    return command + (["-t", str(threads)] if device == "cpu" else [])


def theirs(programs: Path, file: Path, device: str, threads: int) -> list[str | Path]:
    return [programs / "llama-bench", "-m", file, "-fa", "1", "-ngl",
            "0" if device == "cpu" else "99", "-t", str(threads), "-o", "csv"]


def measure(arguments: argparse.Namespace, file: Path) -> tuple[Rates, Rates]:
    device, threads = arguments.device, arguments.threads
    sides = [({}, [*ours(arguments.program, arguments.model or file, device, threads),
                   *shlex.split(arguments.ours)]),
             ({}, [*theirs(arguments.programs, file, device, threads),
                   *shlex.split(arguments.theirs)])]
    for i in range(arguments.rounds):
        print(f"{file.name}: round {i + 1} of {arguments.rounds}", file=sys.stderr)
        for options in tests(arguments):
            for rates, command in sides:
                for name, row in rows_of([*command, "-r", "1", *options]).items():
                    rates.setdefault(name, []).append(float(row["avg_ts"]))
                    rates.setdefault(LIMIT + name, []).append(float(row.get("read_share") or 0))
        if arguments.parallel:
            add_streams(arguments, file, sides)
    return sides[0][0], sides[1][0]


def add_streams(arguments: argparse.Namespace, file: Path,
                sides: list[tuple[Rates, list[str | Path]]]) -> None:
    options = ["-r", "1", "-p", "0", "-n", str(arguments.steps), "-d",
               arguments.depths.split(",")[0], "--parallel", arguments.parallel]
    found = {name: float(row["avg_ts"])
             for name, row in rows_of([*sides[0][1], *options]).items()}
    command = [arguments.programs / "llama-batched-bench", "-m", file, "-fa", "on", "-ngl",
               "0" if arguments.device == "cpu" else "99", "-t", str(arguments.threads),
               *shlex.split(arguments.theirs)]
    for (rates, _), more in zip(sides, (found, streams_of(command, arguments))):
        for name, rate in more.items():
            rates.setdefault(name, []).append(rate)


def cell(rates: list[float]) -> str:
    return f"{statistics.median(rates):.4g} ({min(rates):.4g} to {max(rates):.4g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512, help="tokens; 0: none")
    parser.add_argument("--steps", type=int, default=64, help="tokens to generate; 0: none")
    parser.add_argument("--depths", default="0", help="contexts before them, a list")
    parser.add_argument("--parallel", default="", help="sequences that generate together, a list")
    parser.add_argument("--model", type=Path, help="what ours measures in place of the file")
    parser.add_argument("--ours", default="", help="more options of subbyte bench")
    parser.add_argument("--theirs", default="", help="more options of llama-bench")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/app/subbyte")
    parser.add_argument("--programs", type=Path, help="folder of llama-bench")
    arguments = parser.parse_args()
    if arguments.programs is None:
        built = "build-cpu" if arguments.device == "cpu" else "build"
        arguments.programs = ROOT / "build/llama_cpp" / built / "bin"
    lines = ["|file|test|ours|limit, %|llama.cpp|ours / llama.cpp|", "|---|---|---|---|---|---|"]
    for file in arguments.files:
        mine, other = measure(arguments, file)
        for name in (name for name in mine if not name.startswith(LIMIT)):
            ratio = statistics.median(mine[name]) / statistics.median(other[name])
            share = statistics.median(mine.get(LIMIT + name, [0]))
            limit = f"{100 * share:.0f}" if share else ""
            lines.append(f"|{file.name}|{name}|{cell(mine[name])}|{limit}|{cell(other[name])}|"
                         f"{ratio:.2f}|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
