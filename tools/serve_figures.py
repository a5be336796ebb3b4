#!/usr/bin/env python3
"""The figures of `subbyte serve` beside llama-server on one machine, as one table, within ten
minutes. Whole models with random weights; both servers have the same shape and the same requests.

    serve_figures.py PROGRAM LLAMA-SERVER [--folder DIR] [--seconds 540] [--results FILE]
    serve_figures.py PROGRAM LLAMA-SERVER --try    # a tiny model on this machine's processor

Each figure is printed, and written to --results, as soon as it is measured; those that are in the
file already are not measured again, so what a limit of time has cut goes on with the same command.
Figures that --seconds do not suffice for are left out, and the exit code is 3 then.

It writes its models into --folder first, unless they are there (13 GB; --make does no more). On a
machine with nvcc and cmake, and without network, where build/llama_cpp/sources.tar.xz was made by
`tools/llama_cpp/llama_cpp.sh fetch` and carried:

    ./dev build release                                        # build/release/app/subbyte
    TARGETS=llama-server tools/llama_cpp/llama_cpp.sh build    # build/llama_cpp/build/bin
    tools/serve_figures.py build/release/app/subbyte build/llama_cpp/build/bin/llama-server \\
      --folder /tmp/figures --results build/serve_figures.json

Prompts of 512 random tokens and 128 tokens out unless a figure says otherwise, drawn at temperature
1 from the best 40; "shared" is 922 of 1,024 tokens with 32 out; "first of 8,192" is the time to the
first token of a prompt of which 90 % are those of the two before it, beside one that shares none.
llama-server keeps no prompts in the host's memory (--cache-ram 0): each would be copied there.
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
from functools import partial
from pathlib import Path

from bench_serve import (LATE_PROMPT, TABLE_HEAD, Ours, Server, Theirs, ask_once, body_of, measure,
                         measure_overhead, percentile, post, print_row)

HERE = Path(__file__).resolve().parent
SHARED = {"prompt": 1024, "output": 32}
# Of the families whose first token is measured: name, shape, format, layers (0: all).
FAMILIES = (("qwen3", "8b", "awq", 0), ("qwen3.5", "9b", "awq", 12), ("gpt-oss", "20b", "mxfp4", 8),
            ("llama", "8b", "awq", 12))
INCOMPLETE = 3  # exit code


class OutOfTime(Exception):
    pass


class Figures:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.tiny = arguments.tiny
        self.end = time.monotonic() + arguments.seconds
        self.folder = Path(arguments.folder) / ("tiny" if self.tiny else "")
        self.file = self.folder / "qwen3.gguf"
        self.results: dict[str, object] = {}
        if arguments.results and Path(arguments.results).exists():
            self.results = json.loads(Path(arguments.results).read_text())
        made_by = arguments.program + (" --try" if self.tiny else "")
        if self.results.setdefault("made by", made_by) != made_by:
            raise SystemExit(f"{arguments.results}: figures of {self.results['made by']}")
        self.device = ["--device", "cpu", "--threads", "2"] if self.tiny else ["--device", "cuda"]
        self.many = 8 if self.tiny else 64

    def model(self, family: str) -> Path:
        return self.folder / family

    def make(self) -> None:
        """The models, those that are not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for family, shape, layout, layers in FAMILIES:
            if self.model(family).exists():
                continue
            shape = ["--shape", "tiny" if self.tiny else shape, "--format", layout]
            limit = [] if self.tiny else ["--layers", str(layers)]
            subprocess.run([self.arguments.program, "synth", self.model(family), "--arch", family,
                            *shape, *limit, "-q"], check=True)
        if not self.file.exists():
            subprocess.run([sys.executable, HERE / "llama_cpp/random_gguf.py",
                            self.model("qwen3") / "config.json", self.file, "--mix", "Q4_0-F16"],
                           check=True)

    # --- what is measured, each once --------------------------------------------------------------

    def keep(self, name: str, seconds: float, find: Callable[[], object]) -> None:
        """Measures a figure that takes so long, unless it is known."""
        if name in self.results:
            return
        if self.end - time.monotonic() < seconds:
            raise OutOfTime(name)
        self.results[name] = find()
        if self.arguments.results:
            path = Path(self.arguments.results)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(self.results, indent=1) + "\n")
            part.rename(path)

    def part(self, names: list[str], start: Callable[[], Server],
             measure_it: Callable[[Server], None]) -> None:
        """Figures of one server, which is started where one of them is not known. What fails is
        said, and the others go on."""
        if all(name in self.results for name in names):
            return
        try:
            if self.end - time.monotonic() < 30:
                raise OutOfTime(names[0])
            server = start()
            try:
                measure_it(server)
            finally:
                server.close()
        except OutOfTime as problem:
            print(f"left out: {problem} and what comes after it", file=sys.stderr)
        except (SystemExit, OSError, subprocess.SubprocessError) as problem:
            print(f"{names[0]}: {problem}", file=sys.stderr)

    def ours(self, family: str, clients: int, positions: int) -> Ours:
        size = LATE_PROMPT + 512 if not self.tiny else 640
        return Ours(self.arguments.program, str(self.model(family)), [
            *self.device, "--parallel", str(clients), "-c", str(size),
            "--cache-positions", str(positions if not self.tiny else 65536)])

    def theirs(self, slots: int, size: int, *options: str) -> Theirs:
        layers = ["-ngl", "0", "-t", "2"] if self.tiny else ["-ngl", "99"]
        return Theirs(self.arguments.peer, str(self.file), [
            *layers, "-np", str(slots), "-c", str(size), "--cache-ram", "0", *options])

    @staticmethod
    def name_of(server: str, clients: int, shared: float | None = None, late: int = 0) -> str:
        more = "" if shared is None else f", {100 * shared:.0f} % shared"
        return f"{server}, {clients} clients{more}" + (f", {late} long prompts" if late else "")

    def row(self, server: Server, name: str, clients: int, seconds: float,
            shared: float | None = None, late: int = 0) -> None:
        """One row of bench_serve.py."""
        seconds = min(seconds, 3) if self.tiny else seconds
        row = {"server": name, "clients": clients, "prompt": 512, "output": 128,
               "shared": shared or 0.0, "temperature": 1.0, "top_k": 40,
               **({} if shared is None else SHARED)}
        if self.tiny:
            row = {**row, "prompt": row["prompt"] // 4, "output": row["output"] // 8}
        settings = argparse.Namespace(warm=seconds / 2, seconds=seconds, late=late,
                                      processes=1 if self.tiny else 4)

        def find() -> dict:
            found = measure(server, row, settings)
            print_row(found)
            if found["errors"] > 0:
                raise SystemExit(f"{found['errors']} requests failed")
            return found
        self.keep(self.name_of(name, clients, shared, late), 1.5 * seconds + 10, find)

    def rows(self, server: str, start: Callable[[], Server],
             rows: list[tuple[int, float, float | None, int]]) -> None:
        def measure_it(started: Server) -> None:
            for clients, seconds, shared, late in rows:
                self.row(started, server, clients, seconds, shared, late)
        names = [self.name_of(server, clients, shared, late) for clients, _, shared, late in rows]
        self.part(names, start, measure_it)

    def measure_rows(self) -> None:
        """Of each number of clients ours, and then theirs with as many slots."""
        many = self.many
        shared = [(many, 8.0, share, 0) for share in (0.0, 0.9)]
        start = partial(self.ours, "qwen3", 4 * many, 262144)
        self.rows("ours", start, [(many, 14.0, None, 0), (1, 8.0, None, 0), *shared])
        self.rows("theirs", partial(self.theirs, many, many * 1120),
                  [(many, 14.0, None, 0), *shared])
        self.rows("theirs", partial(self.theirs, 1, 704), [(1, 8.0, None, 0)])
        self.rows("ours", start, [(4 * many, 16.0, None, 0), (many, 12.0, None, 8),
                                  (many // 4, 8.0, None, 0)])
        self.rows("theirs", partial(self.theirs, 4 * many, 4 * many * 704),
                  [(4 * many, 20.0, None, 0)])
        self.rows("theirs", partial(
            self.theirs, many + 8, many * 704 + 8 * (LATE_PROMPT + 64), "-kvu"),
                  [(many, 12.0, None, 8)])
        self.rows("theirs", partial(self.theirs, many // 4, many // 4 * 704),
                  [(many // 4, 8.0, None, 0)])

    def measure_jobs(self, clients: int, rounds: int) -> None:
        """Tokens/s of the same requests by `run --prompts`."""
        size, output = (128, 16) if self.tiny else (512, 128)
        choose = random.Random(3)
        lines = self.folder / "requests.jsonl"
        answers = self.folder / "answers.jsonl"

        def find() -> float:
            lines.write_text("".join(
                json.dumps({**body_of(choose.choices(range(10, 250), k=size), output),
                            "stream": False}) + "\n" for _ in range(clients * rounds)))
            answers.unlink(missing_ok=True)
            done = subprocess.run(
                [self.arguments.program, "run", self.model("qwen3"), "--prompts", lines, "--output",
                 answers, "--parallel", str(clients), "--json", "-q", *self.device],
                stdout=subprocess.PIPE, text=True, check=True)
            return json.loads(done.stdout)["completion_tokens_per_second"]
        name = f"run --prompts, {clients} at once"
        self.part([name], partial(Server, None), lambda _: self.keep(name, 60, find))

    def first_seconds(self, server: Server) -> tuple[float, float]:
        """To the first token of a long prompt of which nothing is known, and of one of which 90 %
        are: the third, as the second may make what it goes on from."""
        choose = random.Random(5)
        size = LATE_PROMPT // (16 if self.tiny else 1)

        def ask(prompt: list[int]) -> float:
            return ask_once(server.place, post("/v1/completions", body_of(prompt, 2)))

        def tokens(count: int) -> list[int]:
            return choose.choices(range(10, 250), k=count)

        ask(tokens(size))
        alone = [ask(tokens(size)) for _ in range(3)]
        shared = tokens(size * 9 // 10)
        known = [ask(shared + tokens(size - len(shared))) for _ in range(5)]
        return statistics.median(alone), statistics.median(known[2:])

    def measure_first(self, server: str, start: Callable[[], Server]) -> None:
        name = f"first token, {server}"
        self.part([name], start, lambda started: self.keep(
            name, 20, lambda: self.first_seconds(started)))

    def measure_overhead(self) -> None:
        name = "overhead"
        self.part([name], partial(self.ours, "qwen3", 1, 16384), lambda server: self.keep(
            name, 20, lambda: [(kind, percentile(seconds, .5), percentile(seconds, .99))
                               for kind, seconds in measure_overhead(server)]))

    def run(self) -> None:
        print(TABLE_HEAD)
        self.measure_rows()
        for clients, rounds in ((self.many, 8), (4 * self.many, 3)):
            self.measure_jobs(clients, 2 if self.tiny else rounds)
        for family, *_ in FAMILIES:
            self.measure_first(f"ours, {family}", partial(self.ours, family, 4, 65536))
        self.measure_first("llama-server, qwen3", partial(self.theirs, 1, LATE_PROMPT + 64))
        self.measure_overhead()

    # --- the table --------------------------------------------------------------------------------

    def found(self, name: str, key: str, unit: float = 1) -> float | None:
        row = self.results.get(name)
        return None if row is None else unit * row[key]

    def table(self) -> list[tuple[str, float | None, float | None, str]]:
        """A line for each figure: two numbers, and how they are compared ("x", "%" or "")."""
        many = self.many
        rows = [(f"{clients} clients, output tokens/s", "x", "tokens_per_second", 1.0, clients)
                for clients in (1, many // 4, many, 4 * many)]
        rows.append((f"{many} clients, CPU of other threads, us a token", "x", "cpu_per_token", 1e6,
                     many))
        lines = [(title, *(self.found(self.name_of(server, clients), key, unit)
                           for server in ("ours", "theirs")), kind)
                 for title, kind, key, unit, clients in rows]
        for clients in (many, 4 * many):
            lines.append((f"{clients} clients, tokens/s, and of run --prompts",
                          self.found(self.name_of("ours", clients), "tokens_per_second"),
                          self.results.get(f"run --prompts, {clients} at once"), "%"))
        for server in ("ours", "theirs"):
            late = self.name_of(server, many, late=8)
            lines.append((f"{server}: p99 and p50 between tokens, ms, while 8 long prompts come",
                          self.found(late, "between_p99", 1000),
                          self.found(late, "between_p50", 1000), "x"))
            lines.append((f"{server}: tokens/s with 90 % shared, and with nothing",
                          *(self.found(self.name_of(server, many, share), "tokens_per_second")
                            for share in (0.9, 0.0)), "x"))
        for server in (*(f"ours, {family}" for family, *_ in FAMILIES), "llama-server, qwen3"):
            seconds = self.results.get(f"first token, {server}") or (None, None)
            lines.append((f"{server}: first of {LATE_PROMPT}, ms: nothing shared, 90 %",
                          *(one and 1000 * one for one in seconds), "x"))
        for kind, p50, p99 in self.results.get("overhead", []):
            lines.append((f"one idle client, {kind}, ms: p50, p99", 1000 * p50, 1000 * p99, ""))
        return lines

    def print_table(self) -> None:
        print("\n|figure|ours, or the first|theirs, or the second|first / second|\n"
              "|---|---|---|---|")
        for title, first, second, kind in self.table():
            cells = ["-" if one is None else f"{one:.3f}" if one < 10 else f"{one:.1f}"
                     for one in (first, second)]
            related = "-"
            if first and second and kind:
                related = f"{100 * first / second:.0f} %" if kind == "%" else (
                    f"{first / second:.2f} x")
            print("|" + "|".join([title, *cells, related]) + "|")
        version = subprocess.run([self.arguments.program, "--version"], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
        print(time.strftime("\n%Y-%m-%d %H:%M, "), " ".join(version.split()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("peer", metavar="llama-server")
    parser.add_argument("--folder", default="/tmp/serve_figures")
    parser.add_argument("--seconds", type=float, default=540, help="that it may take")
    parser.add_argument("--results", help="a file of all figures, also of earlier calls")
    parser.add_argument("--make", action="store_true", help="write the models, and no more")
    parser.add_argument("--try", action="store_true", dest="tiny")
    figures = Figures(parser.parse_args())
    begin = time.monotonic()
    figures.make()
    print(f"models after {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if figures.arguments.make:
        return 0
    try:
        figures.run()
    finally:
        figures.print_table()
    is_whole = all(None not in line for line in figures.table()) and "overhead" in figures.results
    return 0 if is_whole else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main())
