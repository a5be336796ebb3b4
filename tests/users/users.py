#!/usr/bin/env python3
"""What users have, beside what was written down in tests/users/kept/: README.md there.

    tests/users/users.py --build build/ci            says what differs, and fails then
    tests/users/users.py --build build/ci --write    writes it anew
    tests/users/users.py PART...                     of these parts alone
    tests/users/users.py --self-test                 sees a loss reported

The parts python_names and torch_names want an interpreter that has the package, and torch.
"""
from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import kept

PARTS = ["c_header", "c_calls", "c_requests", "commands", "codes"]


def self_test() -> int:
    """A line that is lost differs; one that is new does, but in lists that may grow."""
    wrong = 0
    for name, new_differs in (("c_symbols.txt", True), ("codes.txt", False)):
        text = (kept.FOLDER / "kept" / name).read_text()
        lost = text.partition("\n")[0]
        wrong += bool(kept.differences({name: text}))
        wrong += f"-{lost}\n" not in kept.differences({name: text.removeprefix(lost + "\n")})
        wrong += bool(kept.differences({name: text + "a.new_one\n"})) != new_differs
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--build", type=Path, default=kept.ROOT / "build/ci")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    differ = ""
    for part in arguments.parts or PARTS:
        texts = importlib.import_module(part).texts(arguments.build.resolve())
        if arguments.write:
            kept.write(texts)
        else:
            differ += kept.differences(texts)
    print(differ, file=sys.stderr, end="\n" if differ else "")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
