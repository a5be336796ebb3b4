#!/usr/bin/env python3
"""Fails when ctest runs no program with a file of tests, or not all parts of that program: then
`./dev test --all` would pass without them. Those of tests/gpu/ need a GPU (`./dev gpu-test`).

    tools/check_tests.py --build FOLDER --ctest CTEST
    tools/check_tests.py --self-test
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "examples", "src", "tests")
ELSEWHERE = "tests/gpu/"

TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)", re.MULTILINE)
OBJECT = re.compile(r" -o \S*?CMakeFiles/([^/ ]+)\.dir/")
TOGETHER = re.compile(r"^build ([^\s:|]+_\d+\.cc)\b[^:\n]*: CUSTOM_COMMAND ([^|\n]*)", re.MULTILINE)
PART = re.compile(r"(\d+)/(\d+)")


def files_of_programs(commands: list[dict[str, str]], ninja: str) -> dict[str, set[str]]:
    """The sources of each target, those that are compiled together one by one."""
    together = {Path(made).name: sources.split() for made, sources in TOGETHER.findall(ninja)}
    files: dict[str, set[str]] = {}
    for entry in commands:
        if found := OBJECT.search(entry["command"]):
            sources = together.get(Path(entry["file"]).name, [entry["file"]])
            files.setdefault(found[1], set()).update(sources)
    return files


def whole_programs(tests: list[dict[str, list[str]]]) -> set[str]:
    """The programs of which ctest runs all parts (tools/run_gtest.py)."""
    parts: dict[str, set[str]] = {}
    for test in tests:
        command = test.get("command", [])
        if "--part" in command:
            program = Path(command[-1]).name
            parts.setdefault(program, set()).add(command[command.index("--part") + 1])

    def is_whole(found: set[str]) -> bool:
        numbers = [PART.fullmatch(part) for part in found]
        return len({number[2] for number in numbers}) == 1 and \
            {int(number[1]) for number in numbers} == set(range(int(numbers[0][2])))

    return {program for program, found in parts.items() if is_whole(found)}


def problems_of(texts: dict[str, str], files: dict[str, set[str]], programs: set[str]) -> list[str]:
    """A line for each file whose tests nobody runs; `texts` by their names."""
    run = set().union(*(sources for program, sources in files.items() if program in programs))
    problems = []
    for name, text in sorted(texts.items()):
        tests = TEST.findall(text)
        if tests and name not in run:
            problems.append(f"{name}: ctest runs no program with its {len(tests)} tests")
        problems += [f"{name}: {test} is never run" for test in tests
                     if test.startswith("DISABLED_")]
    return problems


def self_test() -> int:
    commands = [{"file": "/b/x_test_0.cc", "command": "c++ -o CMakeFiles/x_test.dir/x_test_0.o"},
                {"file": "/s/c.cc", "command": "c++ -o CMakeFiles/y_test.dir/c.o -c /s/c.cc"}]
    ninja = "build s/x_test_0.cc | ${w}s/x_test_0.cc: CUSTOM_COMMAND /s/a.cc /s/b.cc || d\n"
    files = files_of_programs(commands, ninja)
    assert files == {"x_test": {"/s/a.cc", "/s/b.cc"}, "y_test": {"/s/c.cc"}}, files

    def test(part: str, program: str) -> dict[str, list[str]]:
        return {"command": ["run_gtest.py", "--part", part, "--report", "r", f"/b/{program}"]}

    assert whole_programs([test("0/2", "x_test"), test("1/2", "x_test"), test("0/2", "y_test"),
                           {"command": ["/b/z_test"]}, {}]) == {"x_test"}
    texts = {"/s/a.cc": "TEST(A, b) {}\nTEST_F(A, DISABLED_c) {}\n", "/s/b.cc": "int f();\n",
             "/s/c.cc": "TYPED_TEST(D, e) {}\n"}
    assert problems_of(texts, files, {"x_test"}) == [
        "/s/a.cc: DISABLED_c is never run", "/s/c.cc: ctest runs no program with its 1 tests"]
    print("ok")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--ctest", default="ctest")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    listed = subprocess.run([arguments.ctest, "--test-dir", arguments.build,
                             "--show-only=json-v1"], check=True, capture_output=True, text=True)
    files = files_of_programs(json.loads((arguments.build / "compile_commands.json").read_text()),
                              (arguments.build / "build.ninja").read_text())
    texts = {str(path): path.read_text() for folder in FOLDERS
             for path in (ROOT / folder).rglob("*.cc")
             if not str(path.relative_to(ROOT)).startswith(ELSEWHERE)}
    problems = problems_of(texts, files, whole_programs(json.loads(listed.stdout)["tests"]))
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
