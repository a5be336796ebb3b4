#!/usr/bin/env python3
"""The test programs that an edit concerns: what ./dev test --quick builds and runs.

CMake writes what there is into test_programs.txt of the build folder (cmake/SubbyteLayer.cmake), a
line each:

    test NAME FOLDER... : LAYER...      a program with its sources and the layers that it links
    build TARGET FOLDER...              compiled, not run

A program is chosen where a file in its folders changed; where a file of a layer that it links by
name changed (its headers, and not those of what that stands upon: the whole run is for those); and
where a header of tests/support changed that it includes. A layer's tests concern nobody else.

    tools/changed_tests.py PROGRAMS [--base COMMIT] [--root DIR]    what changed since COMMIT, what
                           is not committed included; since the branch left main without it
    tools/changed_tests.py --self-test
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SUPPORT = re.compile(r'^\s*#\s*include\s*"(support/[\w./-]+)"', re.MULTILINE)
SOURCES = {".cc", ".h", ".cu", ".cuh"}


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", root, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def base_of_branch(root: Path) -> str:
    """Where the branch left main; the commit before on main itself, and where there is no main."""
    head = git(root, "rev-parse", "HEAD")
    for main in ("main", "origin/main"):
        try:
            base = git(root, "merge-base", "HEAD", main)
        except subprocess.CalledProcessError:
            continue
        if base != head:
            return base
    return "HEAD~"


def changed_files(root: Path, base: str) -> set[str]:
    names = git(root, "diff", "--name-only", "--no-renames", base) + "\n" + \
        git(root, "ls-files", "--others", "--exclude-standard")
    return set(names.split())


def support_of(root: Path, files: set[str]) -> set[str]:
    """Headers of tests/support that the files include, directly or through one another."""
    found: set[str] = set()
    left = [root / name for name in files]
    while left:
        path = left.pop()
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        for name in SUPPORT.findall(text):
            if f"tests/{name}" not in found:
                found.add(f"tests/{name}")
                left.append(root / "tests" / name)
    return found


def lies_in(name: str, folders: list[str]) -> bool:
    return any(name.startswith(folder + "/") or name == folder for folder in folders)


def sources_in(root: Path, folders: list[str]) -> set[str]:
    return {path.relative_to(root).as_posix() for folder in folders
            for path in (root / folder).rglob("*") if path.suffix in SOURCES}


def chosen(root: Path, programs: list[str], changed: set[str]) -> list[str]:
    """`test NAME` and `build TARGET` of the lines that the changed files concern."""
    names = []
    shared = {name for name in changed if name.startswith("tests/support/")}
    layers = {name.split("/")[1] for name in changed
              if name.startswith("src/") and not name.endswith("_test.cc")}
    for line in programs:
        kind, name, *words = line.split()
        at = words.index(":") if ":" in words else len(words)
        folders, libraries = words[:at], set(words[at + 1:])
        if any(lies_in(file, folders) for file in changed) or libraries & layers or \
                (shared and shared & support_of(root, sources_in(root, folders))):
            names.append(f"{kind} {name}")
    return names


def self_test() -> list[str]:
    programs = ["test ops_test src/ops : ops", "test engine_test src/engine : engine backends",
                "test app_test tests/app app : verify", "build cuda src/kernels/cuda"]
    cases = [
        ({"src/ops/a.cc"}, ["test ops_test"]),
        ({"src/ops/a_test.cc"}, ["test ops_test"]),
        ({"src/backends/a.h"}, ["test engine_test"]),
        ({"src/backends/a_test.cc", "docs/a.md"}, []),
        ({"src/kernels/cuda/a.cu"}, ["build cuda"]),
        ({"app/a.cc", "src/engine_test.cc"}, ["test app_test"]),
        ({"tests/support/b.h"}, ["test engine_test"]),  # through a.h
        ({"tests/support/c.h"}, []),
    ]
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {"src/engine/x_test.cc": '#include "support/a.h"\n',
                           "tests/support/a.h": '#include "support/b.h"\n',
                           "tests/support/b.h": "", "tests/support/c.h": ""}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for changed, expected in cases:
            found = chosen(root, programs, changed)
            if found != expected:
                failures.append(f"{changed}: expected {expected}, found {found}")
        failures += self_test_of_git(root)
    return failures


def self_test_of_git(root: Path) -> list[str]:
    """Committed on a branch, not committed, and unknown to git: all of it has changed."""
    def commit(message: str) -> None:
        git(root, "add", "-A")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", message)

    git(root, "init", "-q", "-b", "main")
    commit("first")
    (root / "second").write_text("")
    commit("second")
    failures = [] if base_of_branch(root) == "HEAD~" else ["the base of main"]
    git(root, "checkout", "-q", "-b", "branch")
    for name in ("third", "fourth"):
        (root / name).write_text("")
        commit(name)
    (root / "fourth").write_text("changed")
    (root / "fifth").write_text("")
    found = changed_files(root, base_of_branch(root))
    if found != {"third", "fourth", "fifth"}:
        failures.append(f"changed: {found}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, nargs="?")
    parser.add_argument("--base", default="")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        failures = self_test()
        print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
        return 1 if failures else 0
    if arguments.programs is None:
        parser.error("PROGRAMS must name test_programs.txt of a build folder")
    changed = changed_files(arguments.root, arguments.base or base_of_branch(arguments.root))
    lines = arguments.programs.read_text().splitlines()
    print(*dict.fromkeys(chosen(arguments.root, lines, changed)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
