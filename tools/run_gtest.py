#!/usr/bin/env python3
"""A part of the tests of a GoogleTest program, in one process.

A process for each test takes 5 ms of a processor to start, with sanitizers 60 to 75. So ctest runs
a program in a few parts, of tests that follow each other in its list. A test that ends its process
is named, and those after it run in a new one; what the list has and no process reported has failed.

    tools/run_gtest.py --part I/N --report FILE PROGRAM [ARGUMENT...]
        runs part I (from 0) of N; FILE gets a line for each test: passed, failed or skipped, the
        program, the seconds and the test; prints what failed tests printed
    tools/run_gtest.py --self-test
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

MAX_FILTER = 100_000  # bytes of an argument; Linux takes 128 KiB

BEGIN = re.compile(r"\[ RUN      \] (\S+)\n")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:, where [^\n]*)? \(\d+ ms\)")


@dataclass
class Result:
    name: str
    status: str
    seconds: float = 0
    text: str = ""


def listed(text: str) -> list[str]:
    """The tests of --gtest_list_tests, but for those that are disabled."""
    names, suite = [], ""
    for line in text.splitlines():
        word = line.split("#")[0].rstrip()
        if not line.startswith(" "):
            suite = word
        elif word and "DISABLED_" not in suite + word:
            names.append(suite + word.strip())
    return names


def batches(names: list[str]) -> list[list[str]]:
    """Names that fit into one filter."""
    found: list[list[str]] = [[]]
    size = 0
    for name in names:
        if size + len(name) + 1 > MAX_FILTER:
            found.append([])
            size = 0
        found[-1].append(name)
        size += len(name) + 1
    return found


def reported(xml: str) -> list[Result]:
    """What a program that came to its end wrote with --gtest_output."""
    results = []
    for case in ElementTree.fromstring(xml).iter("testcase"):
        if case.get("status") != "run":
            continue
        failed = case.find("failure") is not None
        skip = case.find("skipped")
        text = "" if skip is None else skip.get("message") or skip.text or ""
        results.append(Result(f"{case.get('classname')}.{case.get('name')}",
                              "failed" if failed else "passed" if skip is None else "skipped",
                              float(case.get("time", 0)), text.strip()))
    return results


def until_death(output: str) -> list[Result]:
    """What a program printed that has died: tests that ended, and the one that it died in."""
    words = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
    results = [Result(name, words[word]) for word, name in END.findall(output)]
    begun = BEGIN.findall(output)
    if begun and begun[-1] not in {result.name for result in results}:
        results.append(Result(begun[-1], "failed"))
    return results


def text_of(output: str, name: str) -> str:
    """What a test printed, from its first line to its last one."""
    start = output.find(f"[ RUN      ] {name}\n")
    if start < 0:
        return ""
    end = output.find("[ RUN      ]", start + 1)
    return output[start:end if end > 0 else len(output)]


def run_once(command: list[str], names: list[str], folder: Path) -> tuple[list[Result], bool]:
    """Results of the names that one process came to, and whether another one can go on."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    done = subprocess.run([*command, "--gtest_filter=" + ":".join(names),
                           f"--gtest_output=xml:{report}"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = done.stdout.decode(errors="replace")
    try:
        results = reported(report.read_text(errors="replace"))
        ended = True
    except (OSError, ElementTree.ParseError):
        results = until_death(output)
        ended = False
    for result in results:
        if result.status == "failed":
            result.text = text_of(output, result.name)
    if done.returncode and not any(result.status == "failed" for result in results):
        # It died before its first test, or after its last: of a leak, say.
        ended = True
        results.append(Result("(end_of_the_program)", "failed", 0, output[-20000:]))
    if done.returncode < 0 or (done.returncode and not ended):
        results[-1].text += f"\nthe process ended with status {done.returncode}\n"
    return results, not ended


def run_part(command: list[str], names: list[str], folder: Path) -> list[Result]:
    results: list[Result] = []
    for batch in batches(names):
        left = batch
        while left:
            found, goes_on = run_once(command, left, folder)
            results += found
            known = {result.name for result in found}
            left = [name for name in left if name not in known]
            if not goes_on:
                results += [Result(name, "failed", 0, f"{name}: did not run\n") for name in left]
                break
    return results


def self_test() -> int:
    assert listed("A.\n  b\n  DISABLED_c\nD/E.  # TypeParam = int\n  f/0  # GetParam() = 1\n") == \
        ["A.b", "D/E.f/0"]
    assert [len(batch) for batch in batches(["a" * (MAX_FILTER // 2)] * 3)] == [1, 1, 1]
    program = """
import sys, os
names = [argument.split("=", 1)[1] for argument in sys.argv if "gtest_filter" in argument]
out = [argument.split("xml:", 1)[1] for argument in sys.argv if "gtest_output" in argument]
cases = ""
for name in names[0].split(":"):
    print("[ RUN      ] " + name, flush=True)
    if name == "A.dies":
        print("last words", flush=True)
        os._exit(3)
    if name == "A.is_lost":
        continue
    suite, test = name.split(".")
    inner = {"fails": "<failure/>", "skips": "<skipped message='no such machine'/>"}.get(test, "")
    word = {"fails": " FAILED ", "skips": "SKIPPED "}.get(test, "      OK")
    print("it says so\\n[ " + word + " ] " + name + " (1 ms)", flush=True)
    cases += f"<testcase classname='{suite}' name='{test}' status='run' time='1'>{inner}</testcase>"
open(out[0], "w").write("<testsuites>" + cases + "</testsuites>")
sys.exit(4 if "A.leaks" in names[0] else 1 if "failure" in cases else 0)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program)

        def run(*names: str) -> list[Result]:
            return run_part([sys.executable, str(path)], [*names], Path(folder))

        def statuses(*names: str) -> str:
            return " ".join(f"{r.name.split('.')[-1]}:{r.status}" for r in run(*names))

        assert statuses("A.b", "A.fails", "A.skips") == "b:passed fails:failed skips:skipped"
        assert run("A.fails")[0].text.startswith("[ RUN      ] A.fails\nit says so\n")
        assert run("A.skips")[0].text == "no such machine"
        assert statuses("A.b", "A.fails", "A.dies", "A.c", "A.dies_not") == \
            "b:passed fails:failed dies:failed c:passed dies_not:passed"
        died = run("A.dies", "A.c")[0].text
        assert "last words\n" in died and "status 3" in died
        assert statuses("A.leaks", "A.b") == "leaks:passed b:passed (end_of_the_program):failed"
        assert statuses("A.b", "A.is_lost") == "b:passed is_lost:failed"
    assert [r.status for r in run_part(["false"], ["A.b"], Path("/nowhere"))] == ["failed"] * 2
    print("ok")
    return 0


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    asked = subprocess.run([*arguments.command, "--gtest_list_tests"], check=False,
                           capture_output=True, text=True)
    if asked.returncode:
        print(asked.stdout, asked.stderr, sep="")
        print(f"{arguments.command[-1]}: cannot list its tests, status {asked.returncode}")
        return 1
    names = listed(asked.stdout)
    names = names[len(names) * part // parts:len(names) * (part + 1) // parts]
    with tempfile.TemporaryDirectory() as folder:
        results = run_part(arguments.command, names, Path(folder))
    program = Path(arguments.command[-1]).name
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    with arguments.report.open("w", encoding="utf-8") as report:
        for result in results:
            reason = ": " + " ".join(result.text.split()) if result.status == "skipped" else ""
            report.write(f"{result.status} {program} {result.seconds:.3f} "
                         f"{result.name}{reason}\n")
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        print(result.text)
    print(f"{program}: {len(results) - len(failed)} of {len(results)} tests did not fail")
    print(*(f"FAILED {result.name}" for result in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
