#!/usr/bin/env python3
"""Whole models on the GPU of this machine: ours and llama.cpp, one table.

    tools/llama_cpp/llama_cpp.sh build           # once
    tools/llama_cpp/side_by_side.py              # 8b and 0.6b
    tools/llama_cpp/side_by_side.py --models 0.6b --batches 16 --ours figures.json

Ours is `./dev gpu-bench model --json`, run first unless --ours has its figures already. llama.cpp
takes Q4_0 layers with f16 embedding and head, of the same shape, which random_gguf.py writes beside
our models, an f16 cache and flash attention. Rates are tokens per second, medians of llama-bench's
repetitions; of its prompts the best ubatch; batches are one run of llama-batched-bench each.
"""
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPT = 4096
SHORT_CONTEXT, SHORT_STEPS, LONG_STEPS, BATCH_STEPS = 128, 256, 64, 32
UBATCHES = "512,2048,4096"


def output_of(command: list[str | Path]) -> str:
    print("running", *command, file=sys.stderr)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          cwd=ROOT, check=True)
    return done.stdout


class LlamaCpp:
    def __init__(self, programs: Path, model: Path, repetitions: int) -> None:
        self.programs = programs
        self.model = model
        self.repetitions = repetitions

    def rate(self, *options: str) -> float:
        """The best of the combinations that the options ask for."""
        text = output_of([self.programs / "llama-bench", "-m", self.model, "-ngl", "99", "-fa", "1",
                          "-r", str(self.repetitions), "-o", "json", *options])
        return max(statistics.median(test["samples_ts"]) for test in json.loads(text))

    def decode(self, context: int, steps: int) -> float:
        return self.rate("-p", "0", "-n", str(steps), "-d", str(context))

    def prefill(self) -> float:
        return self.rate("-p", str(PROMPT), "-n", "0", "-b", str(PROMPT), "-ub", UBATCHES)

    def batches(self, counts: list[int]) -> dict[int, float]:
        positions = max(counts) * (SHORT_CONTEXT + BATCH_STEPS)
        text = output_of([self.programs / "llama-batched-bench", "-m", self.model, "-ngl", "99",
                          "-fa", "on", "-c", str(positions), "-b", "4096", "-npp",
                          str(SHORT_CONTEXT), "-ntg", str(BATCH_STEPS), "-npl",
                          ",".join(map(str, counts)), "--output-format", "jsonl"])
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return {line["pl"]: line["speed_tg"] for line in lines}

    def measure(self, context: int, counts: list[int]) -> dict[str, float]:
        rates = {"decode": self.decode(SHORT_CONTEXT, SHORT_STEPS),
                 "decode-long": self.decode(context, LONG_STEPS),
                 "prefill": self.prefill()}
        for count, rate in self.batches(counts).items():
            rates[f"decode-batch-{count}"] = rate
        return rates


def our_figures(arguments: argparse.Namespace) -> dict:
    if arguments.ours:
        return json.loads(arguments.ours.read_text())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        models = [f"--model={model}" for model in arguments.models]
        batches = ",".join(map(str, arguments.batches))
        print(output_of(["./dev", "gpu-bench", "model", *models, "--batches", batches, "--context",
                         str(arguments.context), "--folder", arguments.folder, "--json", file]),
              flush=True)
        return json.loads(file.read_text())


def gguf_of(folder: Path, model: str) -> Path:
    file = folder / f"qwen3-{model}-q4_0.gguf"
    if not file.exists():
        output_of([sys.executable, Path(__file__).with_name("random_gguf.py"),
                   folder / f"qwen3-{model}-awq" / "config.json", file])
    return file


def print_table(figures: dict, theirs: dict[str, dict[str, float]]) -> None:
    print(f"{figures['device']}, {figures['date']}, B = {figures['bandwidth'] * 1e-9:.0f} GB/s\n")
    print("| Qwen3 | | ours, tokens/s | llama.cpp | ours / llama.cpp |\n|---|---|---|---|---|")
    for model in figures["models"]:
        for row in model["rows"]:
            rate = row["tokens_per_second"]
            other = theirs.get(model["model"], {}).get(row["measure"])
            cells = f"{other:.0f} | {rate / other:.2f}" if other else "- | -"
            print(f"| {model['model']} | {row['measure']} | {rate:.0f} | {cells} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["8b", "0.6b"])
    parser.add_argument("--batches", nargs="+", type=int, default=[8, 16, 64, 256])
    parser.add_argument("--context", type=int, default=16384)
    parser.add_argument("--repetitions", type=int, default=3, help="of llama-bench")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/bench-models")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/llama_cpp/build/bin")
    parser.add_argument("--ours", type=Path, help="figures of gpu-bench model --json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.programs = arguments.programs.resolve()
    figures = our_figures(arguments)
    theirs = {}
    for model in arguments.models:
        program = LlamaCpp(arguments.programs, gguf_of(arguments.folder, model),
                           arguments.repetitions)
        theirs[model] = program.measure(arguments.context, arguments.batches)
    print_table(figures, theirs)


if __name__ == "__main__":
    main()
