#!/usr/bin/env python3
"""Counts the lines of the library, the program and the package by folder: no tests, no generated
tables.

usage: tools/count_lines.py [--revision COMMIT] [--folders]

Counted are .cc, .h, .cu, .cuh, .def, .metal and .in files of src/, include/ and app/, and .py, .pyi
and C++ files of python/, as git has them.
"""

import argparse
import collections
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACES = ("src", "include", "python", "app")
ENDINGS = (".cc", ".h", ".cu", ".cuh", ".def", ".metal", ".in", ".py", ".pyi")
GENERATED = ("_data.cc",)  # tables that tools/write_*.py and vq_codebooks.py make


def is_counted(path: str) -> bool:
    """Tells whether a file is neither a test nor a generated table."""
    name = path.rsplit("/", 1)[-1]
    stem = name.split(".")[0]
    is_test = stem.endswith("_test") or stem.startswith("test_") or "/tests/" in path
    return name.endswith(ENDINGS) and not is_test and not name.endswith(GENERATED)


def run(*command: str) -> bytes:
    """The output of git."""
    return subprocess.run(("git", "-C", str(ROOT), *command), check=True,
                          capture_output=True).stdout


def lines_by_folder(revision: str | None) -> collections.Counter[str]:
    """Lines of each folder, two levels deep."""
    if revision is None:
        paths = run("ls-files", *PLACES).decode().split("\n")
    else:
        paths = run("ls-tree", "-r", "--name-only", revision, *PLACES).decode().split("\n")
    found: collections.Counter[str] = collections.Counter()
    for path in filter(is_counted, paths):
        if revision is None:
            file = ROOT / path
            text = file.read_bytes() if file.exists() else b""
        else:
            text = run("show", f"{revision}:{path}")
        found["/".join(path.split("/")[:2])] += text.count(b"\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--revision", help="a commit, in place of the files that are here")
    parser.add_argument("--folders", action="store_true", help="each folder, not the four alone")
    arguments = parser.parse_args()
    found = lines_by_folder(arguments.revision)
    if arguments.folders:
        for folder, lines in sorted(found.items()):
            print(f"{lines:8,}  {folder}")
    for place in PLACES:
        lines = sum(n for folder, n in found.items() if folder.split("/")[0] == place)
        print(f"{lines:8,}  {place}")
    print(f"{sum(found.values()):8,}  together")


if __name__ == "__main__":
    main()
