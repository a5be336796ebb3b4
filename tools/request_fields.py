#!/usr/bin/env python3
"""Fails where a field of the one Request (include/subbyte/request.h, sampling.h) has no row in
src/completions/request_fields.def, or a row names an option of a command or an argument of Python
that users do not have (tests/users/kept/), or says nothing of why there is none.

    tools/request_fields.py              compares
    tools/request_fields.py --self-test  sees a field without a row, and rows without a place
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"SUBBYTE_REQUEST_FIELD\(([\w.]+),\s*(.*?),\s*\"([^\"]*)\",\s*\"([^\"]*)\",\s*"
                 r"\"([^\"]*)\"\)", re.DOTALL)


def fields_of(header: str, name: str) -> list[str]:
    """The fields of a struct, in order."""
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", header, re.DOTALL)
    assert body, name
    lines = (line.split("//")[0] for line in body[1].splitlines())
    return re.findall(r"(\w+) = [^;]+;", "\n".join(lines))


def options_of(page: str) -> set[str]:
    """"run --prompt" and so on."""
    options, command = set(), ""
    for line in page.splitlines():
        if not line.startswith(" "):
            command = line.removeprefix("subbyte ").strip()
        options.update(f"{command} {option}" for option in re.findall(r"--[\w-]+", line))
    return options


def problems(table: str, request: str, sampling: str, options: str, python: str) -> list[str]:
    rows = {row[0]: row for row in ROW.findall(table)}
    fields = []
    for field in fields_of(request, "Request"):
        fields += [f"sampling.{one}" for one in fields_of(sampling, "Sampling")] \
            if field == "sampling" else [field]
    found = [f"{field}: no row" for field in fields if field not in rows]
    found += [f"{field}: no field of a request" for field in rows if field not in fields]
    known = options_of(options)
    for field, _, option, argument, why in rows.values():
        if option and option not in known:
            found.append(f"{field}: no option {option}")
        if argument and not re.search(rf"\b{argument}: ", python):
            found.append(f"{field}: no argument {argument} of Python")
        if not option and "ommand" not in why or not argument and "Python" not in why:
            found.append(f"{field}: not set everywhere, and not said why")
    return found


def texts() -> list[str]:
    files = ("src/completions/request_fields.def", "include/subbyte/request.h",
             "include/subbyte/sampling.h", "tests/users/kept/options.txt",
             "tests/users/kept/python.txt")
    return [(ROOT / file).read_text() for file in files]


def self_test() -> list[str]:
    table, *others = texts()
    row = "SUBBYTE_REQUEST_FIELD(ignore_eos,"
    cases = [(table.replace(row, "("), "ignore_eos: no row"),
             (table.replace("run --ignore-eos", "run --eos"), "no option run --eos"),
             (table.replace('"ignore_eos", "")', '"eos", "")'), "no argument eos"),
             (table.replace("run --ignore-eos", ""), "not said why"),
             (table.replace(row, "SUBBYTE_REQUEST_FIELD(eos,"), "eos: no field")]
    return [f"expected '{words}', found nothing of it" for changed, words in cases
            if not any(words in problem for problem in problems(changed, *others))]


def main() -> int:
    found = self_test() if "--self-test" in sys.argv[1:] else problems(*texts())
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
