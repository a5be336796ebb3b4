#!/usr/bin/env python3
"""The figures of `subbyte serve` beside llama-server on one machine, as one table, within ten
minutes. Whole models with random weights; both servers have the same shape and the same requests.

    serve_figures.py PROGRAM LLAMA-SERVER [--folder DIR] [--seconds 600] [--json FILE]
    serve_figures.py PROGRAM LLAMA-SERVER --try    # a tiny model on this machine's processor

It writes its models into --folder first, unless they are there (13 GB; nothing but PROGRAM is
needed for that, and `--make` does no more). Both programs are made elsewhere and carried:

    ./dev build release                                  # PROGRAM: build/release/app/subbyte
    tools/llama_cpp/llama_cpp.sh fetch && CUDA_ARCH=90a tools/llama_cpp/llama_cpp.sh build
    LD_LIBRARY_PATH=DIRECTORIES-OF-CUBLAS-AND-FMT tools/serve_figures.py \\
      build/release/app/subbyte build/llama_cpp/build/bin/llama-server --folder /tmp/figures

Rows that the time does not suffice for are left out, and say so. Prompts of 512 random tokens and
128 tokens out unless a row says otherwise; "shared" is 922 of 1,024 tokens with 32 out; "first of
8,192" is the time to the first token of a prompt of which 90 % are those of the two before it,
beside one that shares nothing.
"""
from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench_serve import (LATE_PROMPT, Ours, Server, Theirs, ask_once, body_of, measure, post,
                         print_row)

HERE = Path(__file__).resolve().parent
SHARED = {"prompt": 1024, "output": 32, "clients": 64}
# Of the families whose first token is measured: name, shape, format, layers (0: all).
FAMILIES = (("qwen3", "8b", "awq", 0), ("qwen3.5", "9b", "awq", 12), ("gpt-oss", "20b", "mxfp4", 8),
            ("llama", "8b", "awq", 12))


class Figures:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.end = time.monotonic() + arguments.seconds
        self.folder = Path(arguments.folder)
        self.file = self.folder / "qwen3.gguf"
        self.rows: dict[tuple, dict] = {}
        self.table: list[tuple[str, str, str, str]] = []  # figure, ours, theirs, and their relation
        device = ["--device", "cpu", "--threads", "2"] if arguments.tiny else ["--device", "cuda"]
        layers = ["-ngl", "0", "-t", "2"] if arguments.tiny else ["-ngl", "99"]
        self.our_options = device
        self.their_options = [*layers, "--metrics"]

    def model(self, family: str) -> Path:
        return self.folder / family

    def make(self) -> None:
        """The models, those that are not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for family, shape, layout, layers in FAMILIES:
            if self.model(family).exists():
                continue
            shape = ["--shape", "tiny" if self.arguments.tiny else shape, "--format", layout]
            limit = [] if self.arguments.tiny else ["--layers", str(layers)]
            subprocess.run([self.arguments.program, "synth", self.model(family), "--arch", family,
                            *shape, *limit, "-q"], check=True)
        if not self.file.exists():
            subprocess.run([sys.executable, HERE / "llama_cpp/random_gguf.py",
                            self.model("qwen3") / "config.json", self.file, "--mix", "Q4_0-F16"],
                           check=True)

    def left(self) -> float:
        return self.end - time.monotonic()

    def ours(self, family: str = "qwen3") -> Ours:
        size = ["--parallel", "64", "-c", "640", "--cache-positions", "65536"]
        if not self.arguments.tiny:
            size = ["--parallel", "256", "-c", "8704", "--cache-positions", "262144"]
        return Ours(self.arguments.program, str(self.model(family)), [*self.our_options, *size])

    def theirs(self, slots: int, size: int, options: tuple[str, ...] = ()) -> Theirs:
        return Theirs(self.arguments.peer, str(self.file), [
            *self.their_options, "-np", str(slots), "-c", str(size), *options])

    def row(self, server: Server, name: str, row: dict, seconds: float, late: int = 0) -> None:
        """One row of bench_serve.py, unless too little time is left."""
        if self.arguments.tiny:
            seconds = min(seconds, 3)
        warm = seconds / 2
        if self.left() < warm + seconds + 10:
            print(f"left out: {name} {row}", file=sys.stderr)
            return
        row = {"prompt": 512, "output": 128, "shared": 0.0, "temperature": 1.0, **row}
        if self.arguments.tiny:
            row = {**row, "prompt": row["prompt"] // 4, "output": row["output"] // 8}
        settings = argparse.Namespace(warm=warm, seconds=seconds, late=late,
                                      processes=1 if self.arguments.tiny else 4)
        found = measure(server, {"server": name, **row}, settings)
        print_row(found)
        self.rows[(name, row["clients"], row["shared"], row["prompt"], late)] = found

    def found(self, name: str, clients: int, shared: float = 0.0, prompt: int = 512,
              late: int = 0) -> dict | None:
        prompt = prompt // 4 if self.arguments.tiny else prompt
        return self.rows.get((name, clients, shared, prompt, late))

    def compare(self, figure: str, ours: float | None, theirs: float | None, digits: int = 0,
                form: Callable[[float, float], str] = lambda a, b: f"{a / b:.2f} x") -> None:
        def cell(value: float | None) -> str:
            return "-" if value is None else f"{value:.{digits}f}"
        related = form(ours, theirs) if ours and theirs else "-"
        self.table.append((figure, cell(ours), cell(theirs), related))

    # --- rows -------------------------------------------------------------------------------------

    def measure_clients(self, server: Server) -> None:
        many = 8 if self.arguments.tiny else 64
        shared = [{**SHARED, "clients": many, "shared": share} for share in (0.0, 0.9)]
        for row, seconds in [({"clients": many}, 14.0), ({"clients": 1}, 8.0),
                             *((row, 8.0) for row in shared)]:
            self.row(server, "ours", row, seconds)
        self.their_rows((many, many * 1120), [({"clients": many}, 14.0),
                                              *((row, 8.0) for row in shared)])
        self.their_rows((1, 704), [({"clients": 1}, 8.0)])
        if self.arguments.tiny:
            return
        self.row(server, "ours", {"clients": 256}, 18)
        self.their_rows((256, 256 * 704), [({"clients": 256}, 24.0)])
        self.row(server, "ours", {"clients": 16}, 8)
        self.their_rows((16, 16 * 704), [({"clients": 16}, 8.0)])
        self.row(server, "ours", {"clients": 64}, 12, late=8)
        self.their_rows((72, 64 * 704 + 8 * (LATE_PROMPT + 64)), [({"clients": 64}, 12.0)],
                        late=8)

    def their_rows(self, size: tuple[int, int], rows: list[tuple[dict, float]],
                   late: int = 0) -> None:
        """Of one server of so many slots and positions."""
        server = self.theirs(*size, ("-kvu",) if late else ())
        try:
            for row, seconds in rows:
                self.row(server, "theirs", row, seconds, late)
        finally:
            server.close()

    def measure_jobs(self) -> None:
        """The same requests by `run --prompts`."""
        choose = random.Random(3)
        for clients, rounds in ((64, 8), (256, 3)) if not self.arguments.tiny else ((8, 2),):
            ours = self.found("ours", clients)
            if self.left() < 60 or ours is None:
                print(f"left out: run --prompts with {clients}", file=sys.stderr)
                continue
            lines = self.folder / "requests.jsonl"
            lines.write_text("".join(json.dumps({
                "prompt": choose.choices(range(10, 250), k=ours["prompt"]), "temperature": 1.0,
                "max_tokens": ours["output"], "ignore_eos": True}) + "\n"
                for _ in range(clients * rounds)))
            answers = self.folder / "answers.jsonl"
            answers.unlink(missing_ok=True)
            done = subprocess.run(
                [self.arguments.program, "run", self.model("qwen3"), "--prompts", lines, "--output",
                 answers, "--parallel", str(clients), "--json", "-q", *self.our_options],
                stdout=subprocess.PIPE, text=True, check=True)
            rate = json.loads(done.stdout)["completion_tokens_per_second"]
            self.compare(f"serve at {clients} clients, beside run --prompts, tokens/s",
                         ours["tokens_per_second"], rate,
                         form=lambda a, b: f"{100 * a / b:.0f} %")

    def first_seconds(self, server: Server) -> tuple[float, float]:
        """To the first token of a long prompt of which nothing is known, and of one of which 90 %
        are: the third, as the second may make what it goes on from."""
        choose = random.Random(5)
        size = LATE_PROMPT // (16 if self.arguments.tiny else 1)

        def ask(prompt: list[int]) -> float:
            return ask_once(server.place, post("/v1/completions", body_of(prompt, 2)))

        def tokens(count: int) -> list[int]:
            return choose.choices(range(10, 250), k=count)

        ask(tokens(size))
        alone = [ask(tokens(size)) for _ in range(3)]
        shared = tokens(size * 9 // 10)
        known = [ask(shared + tokens(size - len(shared))) for _ in range(5)]
        return statistics.median(alone), statistics.median(known[2:])

    def measure_first(self, family: str, server: Server) -> None:
        alone, known = self.first_seconds(server)
        self.compare(f"{family}: first of {LATE_PROMPT}, ms: nothing shared, 90 %", 1000 * alone,
                     1000 * known, 1)

    def part(self, name: str, start: Callable[[], Server],
             measure_it: Callable[[Server], None]) -> None:
        """A part with a server of its own; what fails is said, and the others go on."""
        if self.left() < 40:
            print(f"left out: {name}", file=sys.stderr)
            return
        try:
            server = start()
            try:
                measure_it(server)
            finally:
                server.close()
        except (SystemExit, OSError) as problem:
            print(f"{name}: {problem}", file=sys.stderr)

    def run(self) -> None:
        self.part("ours", self.ours, self.measure_clients)
        self.compare_rows()
        self.measure_jobs()
        for family, *_ in FAMILIES:
            self.part(f"first token of {family}", lambda one=family: self.ours(one),
                      lambda server, one=family: self.measure_first(f"ours, {one}", server))
        self.part("first token of llama-server", lambda: self.theirs(1, LATE_PROMPT + 64),
                  lambda server: self.measure_first("llama-server, qwen3", server))

    def compare_rows(self) -> None:
        few = self.arguments.tiny
        for clients in (1, 16, 64, 256) if not few else (1, 8):
            pair = [self.found(name, clients) for name in ("ours", "theirs")]
            self.compare(f"{clients} clients, output tokens/s",
                         *(one and one["tokens_per_second"] for one in pair))
        clients = 8 if few else 64
        pair = [self.found(name, clients) for name in ("ours", "theirs")]
        self.compare(f"{clients} clients, CPU of other threads, us a token",
                     *(one and 1e6 * one["cpu_per_token"] for one in pair), digits=1)
        for name in ("ours", "theirs"):
            late = self.found(name, clients, late=8)
            if late:
                self.compare(f"{name}: p99 and p50 between tokens, ms, while 8 long prompts come",
                             1000 * late["between_p99"], 1000 * late["between_p50"], 2)
            rates = [self.found(name, clients, shared, 1024) for shared in (0.9, 0.0)]
            self.compare(f"{name}: tokens/s with 90 % shared, and with nothing",
                         *(one and one["tokens_per_second"] for one in rates))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("peer", metavar="llama-server")
    parser.add_argument("--folder", default="/tmp/serve_figures")
    parser.add_argument("--seconds", type=float, default=570, help="that it may take")
    parser.add_argument("--json", help="a file for all rows")
    parser.add_argument("--make", action="store_true", help="write the models, and no more")
    parser.add_argument("--try", action="store_true", dest="tiny")
    figures = Figures(parser.parse_args())
    arguments = figures.arguments
    begin = time.monotonic()
    figures.make()
    print(f"models after {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if arguments.make:
        return 0
    try:
        figures.run()
    finally:
        print("\n|figure|ours, or the first|theirs, or the second||\n|---|---|---|---|")
        for row in figures.table:
            print("|" + "|".join(row) + "|")
        version = subprocess.run([arguments.program, "--version"], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
        print(time.strftime("\n%Y-%m-%d %H:%M, "), " ".join(version.split()))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(list(figures.rows.values()), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
