"""The program: options of each command, and what it prints with --json."""
from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import tempfile
from pathlib import Path

from kept import ROOT, Texts, as_text
from masks import masked_lines, replaced
from scripted_model import write_model

GOLDENS = ROOT / "tests/data/goldens"
CHAT = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "weather"}}

# Arguments of each, after what it needs: SCRIPTED and the goldens are models, TMP is a folder.
CASES = {
    "run": ["SCRIPTED -p Count: --special --temp 0 --json",
            "SCRIPTED -p Count: --special --temp 1 --seed 3 --n-predict 3 --json",
            "SCRIPTED --prompts TMP/prompts.jsonl --output TMP/answers.jsonl --json",
            "SCRIPTED --prompts TMP/prompts.jsonl --output -",
            "TMP/nothing -p a --json", "SCRIPTED --no-such-option"],
    "chat": ["SCRIPTED -p Hi --temp 0 --json", "SCRIPTED -p Hi --system Short. --temp 0 --json"],
    "serve": ["SCRIPTED --host 0.0.0.0", "TMP/nothing"],
    "inspect": ["SCRIPTED --json", "autoawq --json", "gpt-oss-mxfp4 --json",
                "qwen3-fp8-blocks --json"],
    "verify": ["autoawq --json", "llmcompressor-nvfp4 --json", "TMP/cut --json"],
    "logits": ["SCRIPTED --ids 257,258 --out TMP/logits.safetensors"],
    "template": ["SCRIPTED --messages TMP/messages.json --tools TMP/tools.json --json"],
    "tokenize": ["SCRIPTED --special --json Count: one", "SCRIPTED --pieces --json Hi"],
    "detokenize": ["SCRIPTED --json 72,105,257", "SCRIPTED --json --special 256"],
    "perplexity": ["SCRIPTED TMP/text.txt --window 16 --json",
                   "SCRIPTED TMP/text.txt --window 16 --compare SCRIPTED --json"],
    "bench": ["SCRIPTED -p 4 -n 2 -r 1 --json"],
    "quantize": ["llama3-bf16 TMP/awq --format awq --group-size 32 --json",
                 "llama3-bf16 TMP/mxfp4 --format mxfp4 --json"],
    "convert": ["TMP/awq TMP/gptq --to gptq --json"],
    "pack": ["TMP/gptq TMP/marlin --to marlin --json", "autoawq TMP/other --to marlin --json"],
    "unpack": ["TMP/marlin TMP/unpacked --json"],
    "diff": ["TMP/awq TMP/gptq --json", "TMP/awq llama3-bf16 --json"],
    "synth": ["TMP/synth --shape tiny --layers 1 --format bf16 --seed 58 --json"],
    "list": ["--json"],
    "clean": ["TMP --json"],
    "devices": ["--json"],
    "plan": ["gpt-oss-mxfp4 --gpus 2xH200 --json", "SCRIPTED --gpus B300"],
    "help": ["exit-codes"],
    "completion": ["bash"],
    "man": [""],
}


class Program:
    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.places = {"SCRIPTED": folder / "scripted", "TMP": folder}
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "80",
                            "SUBBYTE_ISA": "scalar", "SUBBYTE_THREADS": "1",
                            "CUDA_VISIBLE_DEVICES": ""}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.path, *words], capture_output=True, text=True, timeout=300,
                              env=self.environment, cwd=GOLDENS)

    def case(self, command: str, arguments: str) -> list[str]:
        words = arguments.split()
        for name, place in self.places.items():
            words = [re.sub(rf"^{name}\b", str(place), word) for word in words]
        ended = self.run(command, *words)
        lines = [f"subbyte {command} {arguments}".rstrip(), f"  ends with {ended.returncode}"]
        if command in ("help", "completion", "man"):  # texts for people
            return lines
        code = re.findall(r"\[([a-z_]+(?:\.[a-z0-9_]+)+)\]$", ended.stderr, re.MULTILINE)
        lines += [f"  code {found}" for found in code]
        places = {str(place): name for name, place in self.places.items()}
        return lines + [replaced(f"  {line}", places) for line in masked_lines(ended.stdout)]


def commands(program: Program) -> list[str]:
    listed = program.run("--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)


def options(program: Program, command: str) -> list[str]:
    """Names and arguments, without what is said of them."""
    text = program.run(command, "--help").stdout
    shown = re.findall(r"^  (-.*?|[A-Z][A-Z0-9.]*(?: \(.*?\))?)(?:   .*|  \S.*)?$", text,
                       re.MULTILINE)
    return [f"subbyte {command}", *(f"  {line}" for line in shown)]


def prepare(folder: Path) -> None:
    write_model(folder / "scripted")
    request = {"prompt": [257], "temperature": 0}
    wrong = {"messages": CHAT, "temperature": 0, "reasoning_effort": "high"}
    lines = [json.dumps(line) for line in (request, {"messages": CHAT, "temperature": 0}, wrong)]
    (folder / "prompts.jsonl").write_text(as_text(lines))
    (folder / "messages.json").write_text(json.dumps(CHAT))
    (folder / "tools.json").write_text(json.dumps([TOOL]))
    (folder / "text.txt").write_text("A text of forty characters or some more.")
    (folder / "cut").mkdir()
    model = GOLDENS / "llama3-bf16"
    (folder / "cut/config.json").write_bytes((model / "config.json").read_bytes())
    (folder / "cut/model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-8])


def logits_file(path: Path) -> list[str]:
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return [f"  the file: {data[8:8 + size].decode().strip()}"]


def texts(build: Path) -> Texts:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        prepare(folder)
        program = Program(build / "app/subbyte", folder)
        there = commands(program)
        if sorted(there) != sorted(CASES):
            raise SystemExit(f"tests/users/commands.py: CASES has {sorted(CASES)}, the program has "
                             f"the commands {sorted(there)}")
        printed = [line for command, cases in CASES.items() for case in cases
                   for line in program.case(command, case)]
        printed += logits_file(folder / "logits.safetensors")
        shown = [line for command in there for line in options(program, command)]
    return {"commands.txt": as_text(printed), "options.txt": as_text(shown)}
