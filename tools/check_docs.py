#!/usr/bin/env python3
"""Fails when the documentation names something that is not there.

In every *.md of the project:
  - a relative link leads to a file, and its #anchor to a heading;
  - a path in `code` that begins with a folder of the project exists (no check when it holds
    <placeholders> or wildcards);
  - `./dev X` is a command of ./dev;
  - `subbyte X` is a command of the program, and the options on that line are in its help;
  - lines of a ``` block after <!-- from FILE --> follow each other so in that file of the project.
The other way round, README.md names every command of the program.

    tools/check_docs.py --program build/release/app/subbyte [--root DIR]
    tools/check_docs.py --self-test    see each kind of mistake reported
"""
from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import checks

SKIPPED = re.compile(r"^(build|\.)")  # build trees and hidden folders
FOLDERS = "src|include|app|bench|tests|conformance|examples|tools|cmake|demo|docs"

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
PATH = re.compile(rf"^(?:{FOLDERS})/[\w./-]*$")
DEV = re.compile(r"(?<![\w/])\./dev +([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
# The name of the program at the start of a command, alone or with the folders before it.
PROGRAM = re.compile(r"^(?:\$ +)?(?:\w+=\S* +)*(?:[\w./]+/)?subbyte +([a-z]+)(.*)")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*|-[a-zA-Z])\b")
QUOTE = re.compile(r"^<!-- from ([\w./-]+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SUBCOMMAND_LINE = re.compile(r"^  ([a-z]+)\s")


class Program:
    """The commands of `subbyte` as the program itself tells them."""

    def __init__(self, path: Path):
        self.path = path

    @functools.cache
    def help(self, command: str = "") -> str | None:
        """None when there is no such command."""
        words = [self.path, command, "--help"] if command else [self.path, "--help"]
        result = subprocess.run(words, capture_output=True, text=True, timeout=60)
        return result.stdout if result.returncode == 0 else None

    def commands(self) -> list[str]:
        """What the help lists under a title with 'commands' in it."""
        found: list[str] = []
        listing = False
        for line in (self.help() or "").splitlines():
            if line and not line.startswith(" "):
                listing = "commands" in line.lower()
            elif listing and (command := SUBCOMMAND_LINE.match(line)):
                found.append(command[1])
        return found


def markdown_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.md")):
        if not any(SKIPPED.match(part) for part in path.relative_to(root).parts):
            yield path


def lines_with_fences(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and whether the line stands in a ``` block."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        else:
            yield number, line, fenced


def anchors(path: Path) -> set[str]:
    """Headings as the web pages of repositories spell them in links."""
    found = set()
    for _, line, fenced in lines_with_fences(path):
        if line.startswith("#") and not fenced:
            title = line.lstrip("#").strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def check_link(target: str, page: Path) -> str | None:
    if re.match(r"^[a-z]+:", target):
        return None
    file, _, anchor = target.partition("#")
    path = page.parent / file if file else page
    if not path.exists():
        return f"link to {target}: no such file"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return f"link to {target}: no such heading"
    return None


def check_command(text: str, program: Program) -> Iterator[str]:
    """`text` is one command line."""
    call = PROGRAM.match(text)
    if not call:
        return
    command, rest = call.groups()
    help_text = program.help(command)
    if help_text is None:
        yield f"subbyte {command}: no such command"
        return
    for option in OPTION.findall(re.sub(r'"[^"]*"', "", rest)):
        if not re.search(rf"(?<![\w-]){option}(?![\w-])", help_text):
            yield f"subbyte {command} has no option {option}"


def check_quotes(page: Path, root: Path) -> Iterator[tuple[int, str]]:
    text = page.read_text(encoding="utf-8")
    for quote in QUOTE.finditer(text):
        source = root / quote[1]
        number = text.count("\n", 0, quote.start()) + 1
        if not source.is_file():
            yield number, f"quote from {quote[1]}: no such file"
        elif "\n" + quote[2] not in "\n" + source.read_text(encoding="utf-8"):
            yield number, f"quote from {quote[1]}: the file has other lines"


def check_page(page: Path, root: Path, program: Program,
               dev: set[str]) -> Iterator[tuple[int, str]]:
    yield from check_quotes(page, root)
    for number, line, fenced in lines_with_fences(page):
        pieces = [line.strip()] if fenced else CODE.findall(line)
        for piece in pieces:
            for problem in check_command(piece, program):
                yield number, problem
            if not fenced and PATH.match(piece) and not (root / piece).exists():
                yield number, f"{piece}: no such file or folder"
        for command in DEV.findall(line):
            if command not in dev:
                yield number, f"./dev {command}: no such command"
        if not fenced:
            for target in LINK.findall(CODE.sub("", line)):
                if problem := check_link(target, page):
                    yield number, problem


def dev_commands(root: Path) -> set[str]:
    text = "".join(path.read_text() for path in [root / "dev", *(root / "tools/dev").glob("*.sh")])
    functions = re.findall(r"^command_(\w+)\(\)", text, re.MULTILINE)
    return {name.replace("_", "-") for name in functions}


def check_tree(root: Path, program: Program) -> list[str]:
    dev = dev_commands(root)
    problems = []
    for page in markdown_files(root):
        name = page.relative_to(root).as_posix()
        problems += [f"{name}:{number}: {what}"
                     for number, what in check_page(page, root, program, dev)]
    commands = program.commands()
    if not commands:
        problems.append(f"{program.path}: its help lists no commands")
    readme = (root / "README.md").read_text(encoding="utf-8")
    problems += [f"README.md: the command '{command}' is not in it"
                 for command in commands if not re.search(rf"`(subbyte )?{command}\b", readme)]
    return problems


PAGE = """# A title: one
[good](src/a.h) [page](#a-title-one) [away](https://example.org/none)
`./dev test` `src/a.h` `src/<layer>/none.h`
```
subbyte run DIR -p "say --none" --json
```
`subbyte` `run` `chat`
"""
# Each case: a line added to that page, and the complaint about it; "" for none.
CASES = [
    ("", ""),
    ("[x](none.md)", "link to none.md: no such file"),
    ("[x](README.md#none)", "link to README.md#none: no such heading"),
    ("`src/none.h`", "src/none.h: no such file or folder"),
    ("`./dev none`", "./dev none: no such command"),
    ("`subbyte none DIR`", "subbyte none: no such command"),
    ("`build/release/app/subbyte run DIR --none`", "subbyte run has no option --none"),
    ("`subbyte run DIR -j`", "subbyte run has no option -j"),
    ("<!-- from src/a.h -->\n```cpp\nint b;\nint c;\n```", ""),
    ("<!-- from src/a.h -->\n```cpp\nint a;\nint c;\n```",
     "quote from src/a.h: the file has other lines"),
    ("<!-- from src/a.h -->\n```cpp\nnt b;\n```",
     "quote from src/a.h: the file has other lines"),
    ("<!-- from src/b.h -->\n```cpp\nint a;\n```", "quote from src/b.h: no such file"),
]
STUB = """#!/bin/sh
case $1 in
  --help) printf 'Commands:\\n  run  text\\n  chat  text\\n' ;;
  run | chat) printf 'Options:\\n  -p,--prompt TEXT\\n  --json\\n' ;;
  *) exit 2 ;;
esac
"""


def self_test(_: Path, __: Program) -> list[str]:
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "src").mkdir()
        (root / "src/a.h").write_text("int a;\nint b;\nint c;\n")
        (root / "dev").write_text("command_test() {\n}\n")
        stub = root / "stub"
        stub.write_text(STUB)
        stub.chmod(0o755)
        for line, expected in CASES:
            (root / "README.md").write_text(PAGE + line + "\n")
            found = check_tree(root, Program(stub))
            if found != ([f"README.md:8: {expected}"] if expected else []):
                failures.append(f"{line}: expected '{expected}', found {found}")
        (root / "README.md").write_text(PAGE.replace(" `chat`", ""))
        if check_tree(root, Program(stub)) != ["README.md: the command 'chat' is not in it"]:
            failures.append("a command that README.md does not name was not noticed")
    return failures


def main() -> int:
    parser = checks.parser_of(__doc__)
    parser.add_argument("--program", type=Path, help="the program subbyte")
    arguments = parser.parse_args()
    if not arguments.self_test and not (arguments.program and arguments.program.exists()):
        parser.error("--program must name the built program subbyte")
    check = self_test if arguments.self_test else check_tree
    return checks.ended(check(arguments.root, Program(arguments.program)))


if __name__ == "__main__":
    sys.exit(main())
