"""What scripts that check the tree share: their options, how they end, cases that are planted."""
from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Options of each: --root and --self-test."""
    parser = argparse.ArgumentParser(description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    return parser


def ended(problems: Iterable[str]) -> int:
    """The exit code, when all of them are printed."""
    code = 0
    for problem in problems:
        print(problem, file=sys.stderr)
        code = 1
    return code


def missed(cases: list[tuple[str, str, str]],
           check_tree: Callable[[Path], list[str]]) -> list[str]:
    """Cases (file, its text, how the one problem begins after "file:", "" for none) that a check
    does not see so."""
    failures = []
    for name, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            found = check_tree(Path(folder))
        right = found == [] if not expected else (
            len(found) == 1 and found[0].startswith(f"{name}:{expected}"))
        if not right:
            failures.append(f"{name}: {text[:40]!r}: expected '{expected}', found {found}")
    return failures
