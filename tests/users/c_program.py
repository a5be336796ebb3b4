"""Programs in C of this folder, compiled with its headers and run with the library of today."""
from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from kept import FOLDER


def run(source: str, build: Path, *arguments: str | Path, lines: str = "") -> str:
    """What the program prints."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program")
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-I",
                        FOLDER / "header", FOLDER / source, "-o", program, "-L", build,
                        f"-Wl,-rpath,{build}", "-lsubbyte"], check=True)
        ended = subprocess.run([program, *arguments], input=lines, text=True, timeout=300,
                               stdout=subprocess.PIPE,
                               env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if ended.returncode != 0:
        raise SystemExit(f"{source} ended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout
