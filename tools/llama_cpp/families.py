#!/usr/bin/env python3
"""The figures of model families beside llama.cpp on one machine, as one table, within ten minutes.
Whole models with random weights, in turns.

    families.py [--only gpu|amx|avx2|NAME ...] [--folder DIR] [--results FILE] [--seconds 560]
    families.py --make [--only ...] [--folder DIR]    # write the models, all at once, and no more
    families.py --list             # what is measured, beside what, and what is wanted
    families.py --try              # tiny models on this machine's processor, called tiny

On a GPU ours has int4 (AWQ) with a head of 8 bits and llama.cpp Q4_K_M, whose head has 6.6; on
processors both open one GGUF file, and ours rounds activations to 8 bits, as llama.cpp does.
"amx" is all that a processor with AMX has in both programs, "avx2" AVX2, FMA and F16C alone. A
prompt has 4,096 tokens on a GPU and 512 on processors; tokens are generated from an empty context.
Rates are tokens per second, medians of the rounds with the smallest and the largest; a round is one
process of each program, which warms up. "limit" is the share of the read bandwidth that the same
run measured.

Each figure is printed, and written to --results, as soon as it is measured; those that are in the
file already are not measured again. Models are written into --folder one pair after the other,
unless they are there, and removed when they have been measured: 35 GB at most, 95 GB after --make,
in memory where the folder is (/dev/shm has half of what a machine starts with: mount -o
remount,size=100g /dev/shm). Needs

    ./dev build release                            # build/release/app/subbyte
    TARGETS=llama-bench tools/llama_cpp/llama_cpp.sh build        # for GPUs
    TARGETS=llama-bench tools/llama_cpp/llama_cpp.sh build-cpu    # for "amx"
    CPU=avx2 TARGETS=llama-bench tools/llama_cpp/llama_cpp.sh build-cpu    # for "avx2"
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from mixes import MIXES
from random_gguf import write_gguf
from side_by_side import ROOT, cell, ours, rows_of, theirs

INCOMPLETE = 3  # exit code
# Folders of llama-bench.
BUILDS = {"gpu": "build", "amx": "build-cpu", "avx2": "build-avx2"}


@dataclass(frozen=True)
class Model:
    arch: str    # as `subbyte synth` calls it
    shape: str
    format: str  # of synth, or a mix of random_gguf.py
    group: int = 128

    @property
    def is_gguf(self) -> bool:
        return self.format in MIXES

    @property
    def name(self) -> str:
        return f"{self.arch}-{self.shape}-{self.format}" + (".gguf" if self.is_gguf else "")


@dataclass(frozen=True)
class Case:
    name: str
    machine: str    # of BUILDS
    first: Model    # in our program
    second: Model   # in llama.cpp, or in ours where it is no GGUF file
    prompt: float | None = None  # wanted, as a multiple of the second's rate
    decode: float | None = None
    share: float | None = None   # wanted of the limit of decoding
    seconds: float = 60          # that it takes

    def wish(self, is_prompt: bool) -> str:
        ratio = self.prompt if is_prompt else self.decode
        share = f", {100 * self.share:.0f} %" if self.share and not is_prompt else ""
        return "-" if ratio is None else f"{ratio:g}{share}"


def beside(name: str, arch: str, shape: str, group: int, **wanted: float) -> Case:
    """A model on a GPU."""
    return Case(name, "gpu", Model(arch, shape, "awq", group), Model(arch, shape, "Q4_K_M"),
                **wanted)


def same_file(arch: str, shape: str, mix: str = "Q4_0",
              amx: Sequence[float] = (1.2, 1.0), avx2: Sequence[float] = (1.2, 1.0)) -> list[Case]:
    """A model on processors, and what is wanted of each: prompt, decode."""
    model = Model(arch, shape, mix)
    return [Case(f"{arch} {shape}, {mix}", machine, model, model, *wanted, seconds=seconds)
            for machine, wanted, seconds in (("amx", amx, 40), ("avx2", avx2, 60))]


# Groups of 64 where rows of experts are no multiple of 128. As large as the part of the mixture
# that computes one token is llama 3b: 2.8 billion weights beside 2.9, without embedding and head.
CASES = [
    beside("gemma4 26b-a4b", "gemma4-moe", "26b-a4b", 64, prompt=1.5, decode=1.2, share=0.45,
           seconds=110),
    beside("GLM-4.7-Flash", "glm4-moe-lite", "4.7-flash", 128, decode=1.2, seconds=110),
    Case("nemotron_h 30b-a3b, beside ours of llama 3b", "gpu",
         Model("nemotron-h", "30b-a3b", "awq", 64), Model("llama", "3b", "awq"), prompt=0.6,
         seconds=70),
    *same_file("gemma3", "4b"), *same_file("phi3", "4-mini"), *same_file("lfm2", "1.2b"),
    *(case for shape in ("0.6b", "4b")
      for mix, amx in (("Q4_K_M", (1.5, 1.3)), ("Q8_0", (2.0, 1.2)))
      for case in same_file("qwen3", shape, mix, amx, (1.0, 1.0))),
]


def tiny(case: Case) -> Case:
    """The same with models of a megabyte, on this machine's processor."""
    cut = [replace(model, shape="tiny", group=32) for model in (case.first, case.second)]
    return replace(case, name=f"{case.name}, tiny", first=cut[0], second=cut[1], seconds=0)


def has_amx() -> bool:
    return "amx_int8" in Path("/proc/cpuinfo").read_text()


class Figures:
    def __init__(self, arguments: argparse.Namespace, cases: list[Case]) -> None:
        self.arguments = arguments
        self.cases = [tiny(case) for case in cases] if arguments.tiny else cases
        self.end = time.monotonic() + arguments.seconds
        self.results: dict[str, dict] = {}
        if arguments.results and arguments.results.exists():
            self.results = json.loads(arguments.results.read_text())

    # --- models -----------------------------------------------------------------------------------

    def synth(self, model: Model, path: Path, *options: str) -> None:
        subprocess.run([self.arguments.program, "synth", path, "--arch", model.arch, "--shape",
                        model.shape, "--group-size", str(model.group), "-q", *options], check=True)

    def make(self, models: Sequence[Model]) -> None:
        """Those that are not there, and as GGUF files after those whose config.json they have."""
        folder = self.arguments.folder
        folder.mkdir(parents=True, exist_ok=True)
        for model in sorted(set(models), key=lambda each: each.is_gguf):
            path = folder / model.name
            if path.exists():
                continue
            if not model.is_gguf:
                self.synth(model, path, "--format", model.format)
                continue
            configs = [folder / each.name for each in models
                       if (each.arch, each.shape, each.is_gguf) == (model.arch, model.shape, False)]
            scratch = folder / f"shape of {model.name}"
            if not configs:
                self.synth(model, scratch, "--format", "awq")
            config = json.loads(((configs or [scratch])[0] / "config.json").read_text())
            shutil.rmtree(scratch, ignore_errors=True)
            write_gguf(config, MIXES[model.format], path)

    def make_all(self) -> None:
        pairs = list(dict.fromkeys((case.first, case.second) for case in self.cases))
        with ThreadPoolExecutor(len(pairs)) as pool:
            list(pool.map(self.make, pairs))

    def remove(self, case: Case) -> None:
        """The models of a case that none after it has."""
        later = self.cases[self.cases.index(case) + 1:]
        needed = {model for each in later for model in (each.first, each.second)}
        for model in {case.first, case.second} - needed:
            path = self.arguments.folder / model.name
            if model.is_gguf:
                path.unlink(missing_ok=True)
            else:
                shutil.rmtree(path, ignore_errors=True)

    # --- what is measured -------------------------------------------------------------------------

    def device(self, case: Case) -> str:
        return "cuda" if case.machine == "gpu" and not self.arguments.tiny else "cpu"

    def our_command(self, case: Case, model: Model) -> list[str | Path]:
        device = self.device(case)
        command = ours(self.arguments.program, self.arguments.folder / model.name, device,
                       self.arguments.threads)
        return command + (["--activations", "int8"] if device == "cpu" else ["--head-bits", "8"])

    def commands(self, case: Case) -> list[list[str | Path]]:
        second = self.our_command(case, case.second)
        if case.second.is_gguf:
            programs = self.arguments.llama_cpp / BUILDS[case.machine] / "bin"
            second = theirs(programs, self.arguments.folder / case.second.name, self.device(case),
                            self.arguments.threads)
        return [self.our_command(case, case.first), second]

    def measure(self, case: Case) -> dict:
        """The rows of both programs, by test; of one alone where the other fails."""
        tokens = (64, 8) if self.arguments.tiny else (4096, 128) if case.machine == "gpu" else (
            512, 64)
        options = ["-p", str(tokens[0]), "-n", str(tokens[1] if case.decode else 0)]
        environment = {"SUBBYTE_ISA": "avx2"} if case.machine == "avx2" else {}
        sides: list[dict[str, list[dict[str, str]]]] = [{}, {}]
        commands = self.commands(case)
        for i in range(self.arguments.rounds):
            print(f"{case.name}, {case.machine}: round {i + 1}", file=sys.stderr)
            for side, command in zip(sides, commands):
                try:
                    rows = rows_of([*command, "-r", str(self.arguments.repetitions), *options],
                                   environment)
                except (SystemExit, OSError) as problem:
                    print(f"{case.name}, {case.machine}: {problem}", file=sys.stderr)
                    continue
                for name, row in rows.items():
                    side.setdefault(name, []).append(row)
        return {name: {"ours": sides[0].get(name, []), "theirs": sides[1].get(name, [])}
                for name in {**sides[0], **sides[1]}}

    def run_case(self, case: Case) -> None:
        begin = time.monotonic()
        models = (case.first, case.second)
        try:
            self.make(models)
            made = time.monotonic()
            tests = self.measure(case)
        except (SystemExit, OSError, subprocess.SubprocessError) as problem:
            print(f"{case.name}, {case.machine}: {problem}", file=sys.stderr)
            return
        finally:
            if not self.arguments.keep:
                self.remove(case)
        self.results[f"{case.name}, {case.machine}"] = {
            "date": time.strftime("%Y-%m-%d"), "seconds_of_writing": round(made - begin, 1),
            "seconds": round(time.monotonic() - begin, 1), "tests": tests}
        if self.arguments.results:
            self.arguments.results.parent.mkdir(parents=True, exist_ok=True)
            self.arguments.results.write_text(json.dumps(self.results, indent=1) + "\n")

    def is_known(self, case: Case) -> bool:
        found = self.results.get(f"{case.name}, {case.machine}", {"tests": {}})["tests"]
        return bool(found) and all(all(rows.values()) for rows in found.values())

    def run(self) -> bool:
        """Whether nothing is missing."""
        for case in self.cases:
            key = f"{case.name}, {case.machine}"
            if not self.is_known(case):
                if self.end - time.monotonic() < case.seconds:
                    print(f"left out for want of time: {key}", file=sys.stderr)
                    continue
                self.run_case(case)
            for line in self.lines(case):
                print(line, file=sys.stderr)
        return all(map(self.is_known, self.cases))

    # --- the table --------------------------------------------------------------------------------

    def lines(self, case: Case) -> list[str]:
        found = self.results.get(f"{case.name}, {case.machine}")
        lines = []
        for name, rows in (found["tests"] if found else {}).items():
            mine, other = ([float(row["avg_ts"]) for row in rows[side]]
                           for side in ("ours", "theirs"))
            is_prompt = name.startswith("prompt")
            shares = [float(row.get("read_share") or 0) for row in rows["ours"]]
            share = f"{100 * statistics.median(shares):.0f}" if any(shares) else ""
            both = [cell(rates) if rates else "-" for rates in (mine, other)]
            ratio = "-" if "-" in both else (
                f"{statistics.median(mine) / statistics.median(other):.2f}")
            lines.append("|" + "|".join([case.name, case.machine, name, both[0], share, both[1],
                                         ratio, case.wish(is_prompt)]) + "|")
        return lines

    def print_table(self) -> None:
        print("|model|machine|test|ours|limit, %|beside|ours / beside|wanted|\n"
              "|---|---|---|---|---|---|---|---|")
        for case in self.cases:
            print("\n".join(self.lines(case)), end="\n" if self.lines(case) else "")
        rows = [row for found in self.results.values() for test in found["tests"].values()
                for row in test["ours"]]
        for text in sorted({f"{row['gpu_info'] or row['cpu_info']}, {row['n_threads']} threads, "
                            f"{row['activations']}, {row['build_commit']}" for row in rows}):
            print(text)
        dates = sorted({found["date"] for found in self.results.values()})
        print(", ".join(dates), flush=True)


def chosen(only: list[str]) -> list[Case]:
    """Those of the names, machines or models, that this machine can run."""
    for word in only:
        if not any(word in (case.machine, case.first.arch) for case in CASES):
            raise SystemExit(f"families.py: --only {word}, expected of {', '.join(BUILDS)}, "
                             f"{', '.join(dict.fromkeys(case.first.arch for case in CASES))}")
    machines = {word for word in only if word in BUILDS} or (
        set(BUILDS) - (set() if has_amx() else {"amx"}))
    models = set(only) - set(BUILDS)
    cases = [case for case in CASES
             if case.machine in machines and (not models or case.first.arch in models)]
    if not cases:
        raise SystemExit(f"families.py: --only {' '.join(only)}, expected models that are measured "
                         "on these machines: see --list")
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="machines and architectures (see --list)")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm/families"))
    parser.add_argument("--results", type=Path, help="a file of all figures, also of earlier calls")
    parser.add_argument("--seconds", type=float, default=560, help="that it may take")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=1, help="in each process of a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/app/subbyte")
    parser.add_argument("--llama-cpp", type=Path, default=ROOT / "build/llama_cpp",
                        help=f"with {', '.join(BUILDS.values())}")
    parser.add_argument("--keep", action="store_true", help="leave the models there")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--try", action="store_true", dest="tiny")
    arguments = parser.parse_args()
    cases = chosen(arguments.only)
    if arguments.list:
        for case in cases:
            print(f"{case.name} ({case.machine}): {case.first.name} beside {case.second.name}; "
                  f"{case.wish(True)} in prompts, {case.wish(False)} in decoding")
        return 0
    figures = Figures(arguments, cases)
    if arguments.make:
        figures.make_all()
        return 0
    is_whole = figures.run()
    figures.print_table()
    return 0 if is_whole else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main())
