#!/usr/bin/env python3
"""Files of tests as one compilation: the tests of a build with SUBBYTE_UNITY.

All that a file of tests declares stands in its anonymous namespace. In the copy that is compiled
this one lies in a namespace of its own, so that names of two files never meet, whatever they are;
lines and file names stay those of the file. What is made otherwise (macros, declarations outside
of that namespace) is compiled by itself.

    tools/unity_tests.py --plan FILE...    prints a line for each file: its group, a number, and
                                           FILE; a file that is compiled by itself has group -
    tools/unity_tests.py --output OUT FILE...    writes what is compiled in place of the files
    tools/unity_tests.py --self-test
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

# What one compilation takes: what templates cost is shared, two processors have work, and an edit
# does not wait for long.
MAX_FILES = 14
MAX_BYTES = 140_000

# A header of ours has a namespace subbyte::testing: there `testing::Test` is looked up once a
# neighbour has included it.
HEAD = """#include <gtest/gtest.h>
namespace subbyte::testing {
using namespace ::testing;
}
"""

OPENING = re.compile(r"^namespace \{$", re.MULTILINE)
CLOSING = re.compile(r"^\}  // namespace$", re.MULTILINE)
BESIDE = re.compile(r'^#include "([^"/]+)"', re.MULTILINE)
MACRO = re.compile(r"^# *define\b", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")
BEFORE = re.compile(r"(?:\s*(?:#[^\n]*\n|namespace [\w:]+ \{\n))*\s*")
AFTER = re.compile(r"(?:\s*\})*\s*")


def can_share(text: str) -> bool:
    openings, closings = OPENING.findall(text), CLOSING.findall(text)
    if len(openings) != 1 or len(closings) != 1 or MACRO.search(text):
        return False
    before = COMMENT.sub("", text[:OPENING.search(text).start()])
    after = COMMENT.sub("", text[CLOSING.search(text).end():])
    return bool(BEFORE.fullmatch(before) and AFTER.fullmatch(after))


def plan(texts: list[str]) -> list[str]:
    """The group of each text."""
    groups: list[str] = []
    number, files, size = 0, 0, 0
    for text in texts:
        if not can_share(text):
            groups.append("-")
            continue
        if files and (files == MAX_FILES or size + len(text) > MAX_BYTES):
            number, files, size = number + 1, 0, 0
        groups.append(str(number))
        files, size = files + 1, size + len(text)
    return groups


def moved(name: str, text: str, namespace: str) -> str:
    """The file `name` in a namespace; headers of its own folder are found from elsewhere."""
    text = OPENING.sub(f"namespace {namespace} {{ namespace {{", text)
    text = BESIDE.sub(lambda found: f'#include "{Path(name).parent / found.group(1)}"', text)
    return CLOSING.sub("}}", text)


def written(files: list[tuple[str, str]]) -> str:
    parts = [HEAD]
    for number, (name, text) in enumerate(files):
        parts.append(f'#line 1 "{name}"\n' + moved(name, text, f"file_{number}"))
    return "".join(parts)


def self_test() -> None:
    whole = "// A.\n#include <a>\n\nnamespace a::b {\nnamespace {\n\nint f();\n\n" \
        "}  // namespace\n}  // namespace a::b\n"
    assert plan([whole, whole]) == ["0", "0"]
    assert plan([whole] * (MAX_FILES + 1)) == ["0"] * MAX_FILES + ["1"]
    big = whole.replace("int f();", " " * (MAX_BYTES // 2))
    assert plan([big, whole, big]) == ["0", "0", "1"]
    for other in ("int f();\n", whole + "int g();\n", whole + whole,
                  whole.replace("<a>\n", "<a>\n#define X 1\n"),
                  whole.replace("namespace a::b {", "namespace a::b {\nint g();")):
        assert plan([whole, other, whole]) == ["0", "-", "0"], other
    text = written([("a.cc", whole), ("b.cc", whole)])
    assert "namespace a::b {\nnamespace file_1 { namespace {\n\nint f();\n\n}}\n" in text
    assert '#include "/a/c.h"' in moved("/a/b.cc", '#include "c.h"\n', "file_0")
    lines = text[text.index('#line 1 "b.cc"\n'):].splitlines()[1:]
    assert lines.index("int f();") == whole.splitlines().index("int f();")
    print("ok")


def main() -> int:
    mode, *rest = sys.argv[1:] or [""]
    if mode == "--self-test":
        self_test()
    elif mode == "--plan":
        for group, name in zip(plan([Path(name).read_text() for name in rest]), rest):
            print(group, name)
    elif mode == "--output":
        out, *names = rest
        files = [(name, Path(name).read_text()) for name in names]
        for name, text in files:
            if not can_share(text):
                print(f"{name}: declares something outside of its anonymous namespace now, or a "
                      "macro: configure again (cmake --preset ci)", file=sys.stderr)
                return 1
        made, path = written(files), Path(out)
        if not path.exists() or path.read_text() != made:  # else nothing is compiled again
            path.write_text(made)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
