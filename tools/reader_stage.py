"""What runs the program for tools/measure_readers.py, and what its inputs are made with."""
from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


# Starts a program and prints how it ended, its seconds and its kilobytes. What was resident at
# most outlives exec(): a child of this interpreter, which has made inputs, would seem to take at
# least what this one does. The launcher is a small one.
LAUNCHER = """
import os, sys
child = os.fork()
if child == 0:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
"""


@dataclass(frozen=True)
class Cost:
    seconds: float
    memory: int


class Stage:
    """Sound models to start from, and the program."""

    def __init__(self, program: str, folder: Path, clock: str = "processor") -> None:
        """`clock`: processor, user, or instructions, of which a billion is a second."""
        self.program = program
        self.clock = clock
        self.folder = folder
        self.qwen = self.synth("qwen", "--shape", "tiny")
        self.dense = self.synth("dense", "--shape", "tiny", "--format", "bf16")
        self.gpt_oss = self.synth("oss", "--arch", "gpt-oss", "--shape", "tiny", "--format",
                                  "mxfp4")
        self.moe = self.synth("moe", "--arch", "qwen3-moe", "--shape", "tiny", "--format", "bf16")

    def synth(self, name: str, *options: str) -> Path:
        path = self.folder / name
        subprocess.run([self.program, "synth", str(path), *options], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return path

    def copy(self, model: Path) -> Path:
        to = self.folder / "input"
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(model, to)
        return to

    def empty(self) -> Path:
        to = self.folder / "input"
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        return to

    def text(self, content: str) -> Path:
        """For the standard input."""
        path = self.folder / "stdin"
        path.write_text(content, encoding="utf-8")
        return path

    def run(self, arguments: list[str], text: Path | None) -> Cost:
        """The command, whatever it says."""
        for left in self.folder.glob("output*"):
            shutil.rmtree(left, ignore_errors=True)
            left.unlink(missing_ok=True)
        counts = self.folder / "counts"
        counter = []
        if self.clock == "instructions":
            counter = [shutil.which("valgrind") or "valgrind", "--tool=cachegrind",
                       "--cache-sim=no", "--cachegrind-out-file=/dev/null", f"--log-file={counts}"]
        with open(text or os.devnull, encoding="utf-8") as source:
            launched = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, *counter,
                                       self.program, *arguments], stdin=source,
                                      stdout=subprocess.PIPE, text=True, cwd=self.folder,
                                      check=True)
        status, user, system, kilobytes = launched.stdout.split()
        self.status = int(status)  # of the last run
        if self.status not in (0, 1, 3):
            raise SystemExit(f"{arguments}: ended with {status}")
        if counter:  # whose own memory would be measured
            found = re.search(r"I\s+refs:\s+([0-9,]+)", counts.read_text(encoding="utf-8"))
            return Cost(int(found[1].replace(",", "")) * 1e-9, 0)
        seconds = float(user) + (0.0 if self.clock == "user" else float(system))
        return Cost(seconds, int(kilobytes) * 1024)


@dataclass(frozen=True)
class Input:
    """What a reader gets: a command, perhaps with a text on its standard input."""
    arguments: list[str]
    size: int
    text: Path | None = None


@dataclass(frozen=True)
class Reader:
    name: str
    grows: str  # what of the input
    make: Callable[[Stage, int], Input]
    first: int  # how many to begin with
    most: int = 1 << 40  # beyond this the input is refused by its size
    capped: float = 0  # seconds that no size takes, where a limit of the program caps the work


def size_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def write_tensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    """A safetensors file of (dtype, shape, bytes) by name."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def changed(path: Path, change: Callable[[dict], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def of_model(stage: Stage, command: str, file: str, model: Path,
             change: Callable[[dict], object]) -> Input:
    to = stage.copy(model)
    changed(to / file, change)
    return Input([command, str(to)], (to / file).stat().st_size)
