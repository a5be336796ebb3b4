#!/usr/bin/env python3
"""Whole models with random weights on one, two and four GPUs of this machine in turns, llama.cpp's
split modes beside them, and what a sum over two GPUs takes; one table, within ten minutes.

    tools/llama_cpp/several_gpus.py [--gpus 1,2,4] [--rounds 2] [--folder DIR]
    tools/llama_cpp/several_gpus.py --try    # tiny models on ranks of this machine's processor

Rates are tokens per second, medians of the rounds with the smallest and the largest; a round is one
process for each number of GPUs, which warms up. "x" is beside one GPU. Models are written into
--folder and removed: 75 GB (/dev/shm has half of what a machine starts with: mount -o
remount,size=100g /dev/shm). Needs

    ./dev build release          # the program, and subbyte_exchange_bench
    TARGETS=llama-bench tools/llama_cpp/llama_cpp.sh build    # or its rows say what is missing
"""
from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from mixes import MIXES
from random_gguf import write_gguf
from side_by_side import ROOT, cell, ours, rows_of, theirs

#: Of llama-bench: one GPU, layers divided among two, every matrix divided among two. "row" is
#: refused by its CUDA backend of this version, which has no split buffers any more.
SPLIT_MODES = {"none": 1, "layer": 2, "tensor": 2}


@dataclass(frozen=True)
class Model:
    name: str
    arch: str
    shape: str
    format: str
    options: list[str]
    #: What is wanted beside one GPU, by a part of the test's name and the number of GPUs.
    wanted: dict[tuple[str, int], float] = field(default_factory=dict)

    def wish(self, test: str, gpus: int) -> str:
        return next((f"{ratio:g}" for (part, count), ratio in self.wanted.items()
                     if part in test and count == gpus), "")


MODELS = [
    Model("32b AWQ", "qwen3", "32b", "awq",
          ["-p", "4096", "-n", "128", "-d", "512", "--parallel", "1,64"],
          {("prompt", 2): 1.8, ("streams", 2): 1.8, ("128 tokens after", 2): 1.6,
           ("128 tokens after", 4): 2.6}),
    Model("35b-a3b FP8", "qwen3.5-moe", "35b-a3b", "fp8", ["-p", "0", "-n", "128", "-d", "512"],
          {("tokens", 2): 1.4}),
]
Rates = dict[tuple[str, int], list[float]]


class Figures:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.device = "cpu" if arguments.tiny else "cuda"

    def make(self, model: Model) -> Path:
        path = self.arguments.folder / model.shape
        shape = "tiny" if self.arguments.tiny else model.shape
        subprocess.run([self.arguments.program, "synth", path, "--arch", model.arch, "--shape",
                        shape, "--format", model.format, "-q",
                        *(["--group-size", "32"] if self.arguments.tiny else [])], check=True)
        return path

    def options(self, model: Model) -> list[str]:
        return [word.replace("4096", "64") if self.arguments.tiny else word
                for word in model.options]

    def measure(self, model: Model, path: Path) -> Rates:
        rates: Rates = {}
        for i in range(self.arguments.rounds):
            for gpus in self.arguments.gpus:
                print(f"{model.name}: round {i + 1}, {gpus} GPUs", file=sys.stderr)
                command = [*ours(self.arguments.program, path, self.device, max(gpus, 2)),
                           "-r", "1", "--tensor-parallel", str(gpus), *self.options(model)]
                for test, row in rows_of(command).items():
                    rates.setdefault((test, gpus), []).append(float(row["avg_ts"]))
        return rates

    def rows(self, model: Model, rates: Rates) -> list[str]:
        lines = []
        for (test, gpus), found in rates.items():
            one = rates.get((test, 1))
            times = f"{statistics.median(found) / statistics.median(one):.2f}" if one else ""
            lines.append(f"|{model.name}|{test}|{gpus}|{cell(found)}|{times}|"
                         f"{model.wish(test, gpus)}|")
        return sorted(lines, key=lambda line: line.split("|")[1:3])

    def split_modes(self, path: Path) -> list[str]:
        """llama.cpp on a file of the same shape."""
        file = self.arguments.folder / "Q4_K_M.gguf"
        write_gguf(json.loads((path / "config.json").read_text()), MIXES["Q4_K_M"], file)
        lines = []
        for mode, gpus in SPLIT_MODES.items():
            command = [*theirs(self.arguments.llama_cpp, file, self.device, os.cpu_count() or 1),
                       "-sm", mode, "-p", "0", "-n", "128", "-d", "512", "-r", "2"]
            seen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus)))}
            try:
                found = {test: cell([float(row["avg_ts"])])
                         for test, row in rows_of(command, seen).items()}
            except (SystemExit, OSError) as problem:
                found = {"128 tokens after 512": " ".join(str(problem).split())[-300:]}
            lines += [f"|32b Q4_K_M, llama.cpp -sm {mode}|{test}|{gpus}|{text}|||"
                      for test, text in found.items()]
        file.unlink()
        return lines

    def exchange(self) -> list[str]:
        """What one token's sum over two GPUs adds to the norm after it, and the sum of 8 KiB."""
        done = subprocess.run([self.arguments.exchange, "2"], capture_output=True, text=True,
                              check=False, env={**os.environ, "NCCL_NVLS_ENABLE": "0"})
        norm = re.search(r"norm +1 x 5120 +([\d.]+) us joined.* ([\d.]+) us norm alone",
                         done.stdout)
        both = re.search(r"sum +8 KiB +([\d.]+) us, NCCL +([\d.]+) us", done.stdout)
        if not norm or not both:
            return [f"sums over two GPUs: {' '.join((done.stdout + done.stderr).split())[-300:]}"]
        exposed = float(norm[1]) - float(norm[2])
        return [f"A sum over two GPUs of 5,120 numbers adds {exposed:.2f} us to the norm after it "
                f"(3 wanted); one of 8 KiB takes {both[1]} us, NCCL's {both[2]}."]

    def run(self) -> None:
        self.arguments.folder.mkdir(parents=True, exist_ok=True)
        lines = ["|model|test|GPUs|tokens/s|x|wanted|", "|---|---|---|---|---|---|"]
        for model in MODELS:
            path = self.make(model)
            lines += self.rows(model, self.measure(model, path))
            if model.format == "awq":
                lines += self.split_modes(path)
            shutil.rmtree(path)
        print("\n".join(lines))
        if not self.arguments.tiny:
            print("\n".join(self.exchange()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="1,2,4", help="numbers of them, a list")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm/several_gpus"))
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/app/subbyte")
    parser.add_argument("--exchange", type=Path,
                        default=ROOT / "build/release/bench/subbyte_exchange_bench")
    parser.add_argument("--llama-cpp", type=Path, default=ROOT / "build/llama_cpp/build/bin",
                        help="folder of llama-bench")
    parser.add_argument("--try", action="store_true", dest="tiny")
    arguments = parser.parse_args()
    arguments.gpus = [int(count) for count in arguments.gpus.split(",")]
    Figures(arguments).run()


if __name__ == "__main__":
    main()
