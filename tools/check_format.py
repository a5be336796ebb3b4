#!/usr/bin/env python3
"""Fails where C++ or CUDA is not as clang-format 14 writes it, the version of Debian 12.

    tools/check_format.py [--root DIR]    check the files that git knows or would add; exit with 77,
                                          a skip of ctest, where there is no such clang-format
    tools/check_format.py --self-test     see a badly formatted file reported
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checks

VERSION = "14"
SUFFIXES = ("*.h", "*.cc", "*.cu", "*.cuh")
SKIPPED = 77


def find_program() -> str | None:
    for name in ("clang-format", f"clang-format-{VERSION}"):
        path = shutil.which(name)
        if path is None:
            continue
        text = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        if re.search(rf"version {VERSION}\.", text):
            return path
    return None


def files_of(root: Path) -> list[str]:
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard", "--", *SUFFIXES],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (root / name).exists()]


def check(program: str, root: Path, names: list[str]) -> list[str]:
    """What the program says of the files, in as many processes as there are processors."""
    processes = os.cpu_count() or 1
    parts = [names[i::processes] for i in range(processes)]

    def run(part: list[str]) -> str:
        return subprocess.run([program, "--dry-run", "-Werror", "--style=file", *part], cwd=root,
                              stderr=subprocess.PIPE, text=True).stderr
    with ThreadPoolExecutor(processes) as pool:
        return [text for text in pool.map(run, filter(None, parts)) if text]


def self_test(program: str, root: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(root / ".clang-format", folder)
        for name, text in (("good.cc", "int f(int a) {\n  return a;\n}\n"),
                           ("bad.cc", "int f( int a ){return a;}\n")):
            (Path(folder) / name).write_text(text)
        found = "".join(check(program, Path(folder), ["good.cc", "bad.cc"]))
    return [] if "bad.cc" in found and "good.cc" not in found else [f"said: {found}"]


def main() -> int:
    arguments = checks.parser_of(__doc__).parse_args()
    program = find_program()
    if program is None:
        print(f"no clang-format {VERSION}: the package clang-format of Debian 12 has it")
        return SKIPPED
    root = arguments.root
    return checks.ended(self_test(program, root) if arguments.self_test
                        else check(program, root, files_of(root)))


if __name__ == "__main__":
    sys.exit(main())
