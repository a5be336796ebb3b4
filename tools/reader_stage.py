"""What runs the program for tools/measure_readers.py, and what its inputs are made with."""
from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    seconds: float
    memory: int


class Stage:
    """Sound models to start from, and the program."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
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
        """The command, whatever it says: a refusal has read its input, too."""
        for left in self.folder.glob("output*"):
            shutil.rmtree(left, ignore_errors=True)
            left.unlink(missing_ok=True)
        with open(text or os.devnull, encoding="utf-8") as source, \
                open(os.devnull, "w", encoding="utf-8") as nowhere:
            child = subprocess.Popen([self.program, *arguments], stdin=source, stdout=nowhere,
                                     stderr=nowhere, cwd=self.folder)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 1, 3):
            raise SystemExit(f"{arguments}: ended with {child.returncode}")
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


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
