#!/usr/bin/env python3
"""Files that can be compiled as one: the groups of a unity build (SUBBYTE_UNITY).

A file's own names stand in its anonymous namespace, and other files may have the same. So two files
share a group only where no name that one declares there, or as a macro, occurs in the other at all:
then neither can mean something else than by itself. Files that are made of *.inl.h (kernels of an
instruction set) stay alone.

    tools/unity_groups.py FILE...       prints a line for each file that has company: its group, a
                                        number, and FILE
    tools/unity_groups.py --self-test
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

# What one compilation takes: enough to share what templates cost, few enough for two processors.
MAX_FILES = 8
MAX_BYTES = 60_000

STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMENT = re.compile(r"(?<!^\}  )//[^\n]*", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
TYPE = re.compile(r"^(?:template <.*> )?(?:class|struct|union|concept|enum(?: class)?) (\w+)")
ALIAS = re.compile(r"^using (\w+) =")
OWN = re.compile(r"^namespace \{$(.*?)^\}  // namespace$|^namespace \{$(.*)\Z",
                 re.MULTILINE | re.DOTALL)
NAMESPACE_ALIAS = re.compile(r"^namespace (\w+) = ([\w:]+);", re.MULTILINE)
MACRO = re.compile(r"^# *define (\w+)", re.MULTILINE)
FUNCTION = re.compile(r"^[\w:].*?(\w+)\(")
VARIABLE = re.compile(r"^[\w:].*?(\w+)(?:\[[^\]]*\])*(?: =|\{|;)")
NOT_OURS = re.compile(r"^(?:[A-Z_]+(?:_P|_F)?\(|namespace|using namespace)")


def declared(code: str) -> set[str]:
    """A file's own names: a declaration begins its line where no class or function encloses it."""
    names = set(MACRO.findall(code))
    own = "\n".join(part for found in OWN.findall(code) for part in found)
    for line in own.splitlines():
        if NOT_OURS.match(line):
            continue
        for pattern in (TYPE, ALIAS, FUNCTION, VARIABLE):
            if found := pattern.match(line):
                names.add(found.group(1))
                break
    return names


class Source:
    def __init__(self, name: str, text: str):
        code = COMMENT.sub("", STRING.sub('""', text))
        self.name = name
        self.size = len(text)
        self.alone = '.inl.h"' in text
        self.declared = declared(code)
        self.aliases = dict(NAMESPACE_ALIAS.findall(code))
        self.words = set(WORD.findall(code))  # of the ends of namespaces, too: no name of ours

    def goes_with(self, other: Source) -> bool:
        for name, meant in other.aliases.items():
            if self.aliases.get(name, meant) != meant:
                return False
        return self.declared.isdisjoint(other.words) and other.declared.isdisjoint(self.words)


def groups_of(sources: list[Source]) -> list[list[Source]]:
    groups: list[list[Source]] = []
    for source in sources:
        for group in groups:
            fits = len(group) < MAX_FILES and sum(s.size for s in group) + source.size <= MAX_BYTES
            if fits and not source.alone and all(
                    source.goes_with(other) and not other.alone for other in group):
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def self_test() -> None:
    def names(*texts: str) -> list[str]:
        own = ["namespace {\n" + text + "}  // namespace\n" for text in texts]
        groups = groups_of([Source(str(i), text) for i, text in enumerate(own)])
        return ["".join(source.name for source in group) for group in groups]

    assert names("int f() {\n}\n", "int g() {\n}\n") == ["01"]
    assert names("int f() {\n}\n", "void f(int a) {\n}\n") == ["0", "1"]
    assert names("int f() {\n}\n", "int g() {\n  return f();\n}\n") == ["0", "1"]
    assert names("int f() {\n}\n", "}  // namespace\nint g() {\n  return f();\n}\n") == ["0", "1"]
    assert names("}  // namespace\nint f() {\n}\n", "int g() {\n  return f();\n}\n") == ["01"]
    assert names("int f() {\n  int x = 0;\n}\n", "int g() {\n  int x = 0;\n}\n") == ["01"]
    assert names("int f() {\n}\n", "int g() {  // as f\n}\n") == ["01"]
    assert names("int f() {\n}\n", 'int g() {\n  say("f // f");\n}\n') == ["01"]
    assert names("constexpr int kA[2] = {1, 2};\n", "constexpr int kA = 0;\n") == ["0", "1"]
    assert names("struct Case {\n", "enum class Case { k };\n") == ["0", "1"]
    assert names("using Bytes = A;\n", "using Bytes = A;\n") == ["0", "1"]
    assert names("namespace a = b;\n", "namespace a = b;\n") == ["01"]
    assert names("namespace a = b;\n", "namespace a = b::c;\n") == ["0", "1"]
    assert names("#define X 1\n", "int g() {\n  return X;\n}\n") == ["0", "1"]
    assert names("TEST(A, b) {\n", "TEST(A, c) {\n") == ["01"]
    assert names('#include "a.inl.h"\n', "int g();\n") == ["0", "1"]
    assert names(*[f"int x{i};\n" for i in range(9)]) == ["01234567", "8"]
    print("ok")


def main() -> None:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    sources = [Source(name, Path(name).read_text()) for name in sys.argv[1:]]
    for number, group in enumerate(groups_of(sources)):
        for source in group if len(group) > 1 else []:
            print(f"{number} {source.name}")


if __name__ == "__main__":
    main()
