#!/usr/bin/env python3
"""Files that can be compiled as one: the groups of a unity build (SUBBYTE_UNITY).

A file's own names stand in its anonymous namespace, and other files may have the same. In a group
no name that one declares there, or as a macro, occurs in another, or in a header of ours that one
includes: then neither can mean something else than by itself. An own name that does occur there is
replaced in the copy that is compiled, but where it is a member, too, which keeps its name: such
files stay apart. Lines and names of files stay as they are. Files that are made of *.inl.h (kernels
of an instruction set) are compiled by themselves.

    tools/unity_groups.py --plan FILE...          prints a line for each file: its group, a number,
                                                  and FILE; a file without company has group -
    tools/unity_groups.py --output OUT FILE...    writes what is compiled in place of the files
    tools/unity_groups.py --check               says which files of the tree stay apart, and why:
                                                1 when that costs more than a minute
    tools/unity_groups.py --self-test
"""
from __future__ import annotations

import math
import re
import sys
import tempfile
from pathlib import Path

# What one compilation takes: enough to share what templates cost, few enough for two processors.
MAX_FILES = 12
MAX_BYTES = 90_000

# Files that names keep apart: one by itself takes 3 to 4 seconds more than in a group.
MAX_APART = 16

STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMENT = re.compile(r"(?<!^\}  )//[^\n]*", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
TYPE = re.compile(r"^(?:template <.*> )?(?:class|struct|union|concept|enum(?: class)?) (\w+)")
ALIAS = re.compile(r"^using (\w+) =")
OWN = re.compile(r"^namespace \{$(.*?)^\}  // namespace$|^namespace \{$(.*)\Z",
                 re.MULTILINE | re.DOTALL)
NAMESPACE_ALIAS = re.compile(r"^namespace (\w+) = ([\w:]+);", re.MULTILINE)
MACRO = re.compile(r"^# *define (\w+)", re.MULTILINE)
NOT_NAMES = re.compile(r"(?:__launch_bounds__|__align__|alignas)\((?:[^()]|\([^()]*\))*\)\s*|"
                       r"^\[\[[^\]\n]*\]\]\s*", re.MULTILINE)
SHARED = re.compile(r"^ +extern __shared__ .*?(\w+)\[\];", re.MULTILINE)
FUNCTION = re.compile(r"^[\w:][^=]*?(\w+)\(")
VARIABLE = re.compile(r"^[\w:].*?(\w+)(?:\[[^\]]*\])*(?: =|\{|;)")
NOT_OURS = re.compile(r"^(?:[A-Z_]+(?:_P|_F)?\(|namespace|using namespace|static_assert)")


def declared(code: str) -> set[str]:
    """A file's own names: a declaration begins its line where no class or function encloses it."""
    own = "\n".join(part for found in OWN.findall(code) for part in found)
    return set(MACRO.findall(code)) | set(SHARED.findall(code)) | names_at_line_starts(own)


def names_at_line_starts(code: str) -> set[str]:
    names = set()
    for line in code.splitlines():
        if NOT_OURS.match(line):
            continue
        for pattern in (TYPE, ALIAS, FUNCTION, VARIABLE):
            if found := pattern.match(line):
                if line[found.start(1) - 1] != ":":  # else of a class that is declared above
                    names.add(found.group(1))
                break
    return names - NOT_NAMED


def code_of(text: str) -> str:
    return NOT_NAMES.sub("", COMMENT.sub("", STRING.sub('""', text)))


# What a declaration does not name, and names that calls may mean of the standard library.
NOT_NAMED = {"alignas", "bool", "decltype", "float", "int", "noexcept", "sizeof", "void"}
NOT_MOVED = {"begin", "data", "end", "get", "max", "min", "move", "size", "swap"}
# Where a name is one of a member or of a namespace: `x.f()`, `Class::f`; not `.f = f`.
MEMBER = re.compile(r"(?:\.|->)\s*(?:template )?(\w+)\b(?!\s*=[^=])")
QUALIFIED = re.compile(r"::(\w+)")
# A member that is defined outside of its class, and a base: there members need no class.
DEFINED = re.compile(r"^\w[^\n=(]*?\b(\w+)::(~?\w+|operator\W+)\(", re.MULTILINE)
BASE = re.compile(r"^ *(?:class|struct) \w+(?: final)? : (?:public )?(?:\w+::)*(\w+)",
                  re.MULTILINE)
# A declaration within a class, or one within a function, which does no harm.
INNER = re.compile(r"^ +(?!(?:return|else|throw|case|delete)\b)[\w:][^\n=()]*[ &*](\w+)"
                   r"(?:\(|;| =|\{|\[)", re.MULTILINE)
TOKEN = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:[^"\\\n]|\\.)*"|//[^\n]*|'
                   r"(?:\.|->|::)\s*\w+|[A-Za-z_]\w*")
NESTED = re.compile(r"^ +(?:class|struct|union|enum(?: class)?|using) (\w+)", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
BESIDE = re.compile(r'^#include "([^"/]+)"', re.MULTILINE)


ROOT = Path(__file__).resolve().parent.parent
CLASS = re.compile(r"^(?:class|struct) (\w+)[^;\n]*\{$(.*?)^\};", re.MULTILINE | re.DOTALL)


class Header:
    """What a header of ours and those that it includes declare."""

    known: dict[Path, Header] = {}

    def __init__(self, path: Path):
        Header.known[path] = self  # before those that include each other
        text = path.read_text()
        code = code_of(text)
        self.names = set(MACRO.findall(code)) | names_at_line_starts(code)
        self.members = {name: members_of(body) for name, body in CLASS.findall(code)}
        for other in headers_of(text, path.parent):
            self.names |= other.names
            self.members |= other.members


def members_of(code: str) -> set[str]:
    return set(INNER.findall(code)) | set(NESTED.findall(code))


def headers_of(text: str, folder: Path) -> list[Header]:
    found = []
    for name in INCLUDE.findall(text):
        for root in (folder, ROOT / "src", ROOT, ROOT / "tests"):
            path = root / name
            if path.is_file():
                found.append(Header.known.get(path) or Header(path))
                break
    return found


class Source:
    def __init__(self, name: str, text: str):
        code = code_of(text)
        headers = headers_of(text, Path(name).parent)
        self.name = name
        self.text = text
        self.alone = '.inl.h"' in text
        self.declared = declared(code)
        self.aliases = dict(NAMESPACE_ALIAS.findall(code))
        self.words = set(WORD.findall(code))  # of the ends of namespaces, too: no name of ours
        members = set(MEMBER.findall(code) + QUALIFIED.findall(code)) & members_of(code)
        classes = set(BASE.findall(code))
        for class_name, member in DEFINED.findall(code):
            classes.add(class_name)
            members.add(member)
        for class_name in classes:  # whose functions say `f()` of a member, too
            for header in headers:
                members |= header.members.get(class_name, set())
        self.visible = {name for header in headers for name in header.names}
        self.movable = (self.declared - self.visible - members - set(MACRO.findall(code)) -
                        NOT_MOVED)
        self.moved: set[str] = set()

    def clashes(self, other: Source) -> set[str]:
        """Names that one declares and the other has, too."""
        names = self.declared & other.words | other.declared & self.words
        for one, two in ((self, other), (other, self)):
            names |= (one.declared - one.visible) & two.visible
        return names - self.moved - other.moved

    def goes_with(self, other: Source) -> bool:
        for name, meant in other.aliases.items():
            if self.aliases.get(name, meant) != meant:
                return False
        return self.clashes(other) <= self.movable | other.movable

    def move_apart(self, other: Source) -> None:
        names = self.clashes(other)
        self.moved |= names & self.movable
        other.moved |= names - self.movable

    def written(self, number: int) -> str:
        def token(found: re.Match[str]) -> str:
            word = found.group()
            return f"{word}_of_{number}" if word in self.moved else word

        folder = Path(self.name).parent
        text = BESIDE.sub(lambda found: f'#include "{folder / found.group(1)}"', self.text)
        return f'#line 1 "{self.name}"\n' + TOKEN.sub(token, text)


def groups_of(sources: list[Source], max_bytes: float = MAX_BYTES) -> list[list[Source]]:
    groups: list[list[Source]] = []
    for source in sources:
        for group in groups:
            fits = len(group) < MAX_FILES and \
                sum(len(s.text) for s in [*group, source]) <= max_bytes
            if fits and not source.alone and all(
                    source.goes_with(other) and not other.alone for other in group):
                for other in group:
                    source.move_apart(other)
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def written(group: list[Source]) -> str:
    return "".join(source.written(number) for number, source in enumerate(group))


def keep_apart(source: Source, sources: list[Source]) -> list[str]:
    """Names for which a file goes with none, the most frequent first; how many files have them."""
    found: dict[str, int] = {}
    for other in sources:
        if other is not source and not other.alone:
            for name in source.clashes(other) - source.movable - other.movable:
                found[name] = found.get(name, 0) + 1
    return [f"{name} ({found[name]})" for name in sorted(found, key=lambda name: -found[name])]


def check() -> int:
    apart = []
    for folder in [*sorted((ROOT / "src").iterdir()), ROOT / "app"]:
        paths = sorted(path for path in folder.rglob("*.cc") if not path.name.endswith("_test.cc"))
        sources = [Source(str(path), path.read_text()) for path in paths]
        for source, *others in groups_of(sources):
            if not others and not source.alone and (names := keep_apart(source, sources)):
                apart.append(f"{Path(source.name).relative_to(ROOT)}: {', '.join(names)}")
    print("\n".join(apart))
    if len(apart) <= MAX_APART:
        return 0
    print(f"{len(apart)} files are compiled by themselves for the sake of these names, and "
          f"{MAX_APART} may be: give those of headers more meaning", file=sys.stderr)
    return 1


def self_test() -> None:
    def groups(*texts: str) -> list[list[Source]]:
        own = ["namespace {\n" + text + "}  // namespace\n" for text in texts]
        return groups_of([Source(str(i), text) for i, text in enumerate(own)])

    def names(*texts: str) -> list[str]:
        return ["".join(source.name for source in group) for group in groups(*texts)]

    def moved(*texts: str) -> list[set[str]]:
        return [source.moved for source in groups(*texts)[0]]

    f, g, uses = "int f() {\n}\n", "int g() {\n}\n", "int g() {\n  return f();\n}\n"
    assert names(f, g) == names(f, f) == names(f, uses) == ["01"]
    assert moved(f, g) == [set(), set()] and moved(f, uses) == [{"f"}, set()]
    assert moved(f, f) == [set(), {"f"}]
    assert moved(f, "int g() {  // as f\n}\n") == moved(f, 'int g() {\n  say("f // f");\n}\n')
    member = "struct A {\n  int f();\n};\nint h = x.f();\n"
    assert moved(f + "int h = s::f();\n", uses) == [{"f"}, set()]
    assert names(f + member, uses) == names(f + "int A::f() {\n", uses) == ["0", "1"]
    assert moved(f + member, f) == [set(), {"f"}]
    assert moved(f + "int h = x.f();\n", uses) == [{"f"}, set()]
    assert moved(f, "[[noreturn]] " + f) == [set(), {"f"}]
    sizes = "static_assert(sizeof(f) == 4);\nconstexpr int kBytes = sizeof(f);\n"
    assert declared("namespace {\n" + sizes + "}  // namespace\n") == {"kBytes"}
    assert names("int size() {\n}\n", "int size() {\n}\n") == ["0", "1"]
    assert moved("}  // namespace\n" + f, uses) == [set(), set()]
    for one, other in (("constexpr int kA[2] = {1, 2};\n", "constexpr int kA = 0;\n"),
                       ("struct kA {\n", "enum class kA { k };\n"),
                       ("using kA = A;\n", "using kA = A;\n")):
        assert moved(one, other) == [set(), {"kA"}]
    shared = "void __launch_bounds__(f(1)) {}(a) {{\n  extern __shared__ {} s[];\n}}\n"
    assert moved(shared.format("f", "int"), shared.format("g", "char")) == [set(), {"s"}]
    assert names("namespace a = b;\n", "namespace a = b;\n") == ["01"]
    assert names("namespace a = b;\n", "namespace a = b::c;\n") == ["0", "1"]
    assert names("#define X 1\n", "int g() {\n  return X;\n}\n") == ["0", "1"]
    assert names("TEST(A, b) {\n", "TEST(A, c) {\n") == ["01"]
    apart = [Source(text, "namespace {\n" + text + "}  // namespace\n")
             for text in (f + member, f + member, uses)]
    assert keep_apart(apart[2], apart) == ["f (2)"] and keep_apart(apart[2], apart[2:]) == []
    assert names('#include "a.inl.h"\n', "int g();\n") == ["0", "1"]
    assert [len(group) for group in groups(*[f"int x{i};\n" for i in range(MAX_FILES + 1)])] == \
        [MAX_FILES, 1]
    with tempfile.TemporaryDirectory() as folder:
        header = "int f();\nstruct A {\n  int g() const;\n};\n"
        (Path(folder) / "b.h").write_text('#include "a.h"\n')
        (Path(folder) / "a.h").write_text(header)
        own = "namespace {\n" + g + "}  // namespace\n"
        knows = Source(folder + "/k.cc", '#include "b.h"\n' + own)
        assert Source(folder + "/f.cc", own.replace("g", "f")).clashes(knows) == {"f"}
        assert knows.movable == {"g"}
        for text in ("int A::h() {\n}\n", "class B : public A {\n};\n", "struct B : s::A {\n};\n"):
            implements = Source(folder + "/i.cc", '#include "b.h"\n' + own + text)
            assert implements.movable == set(), text
        uses_class = '#include "b.h"\nint h = A::h(g());\n' + own
        assert Source(folder + "/u.cc", uses_class).movable == {"g"}
        (Path(folder) / "c.h").write_text("class A {\n  enum class Kind : int { k };\n};\n")
        alias = '#include "c.h"\nnamespace {\nusing Kind = A::Kind;\n}  // namespace\n'
        assert Source(folder + "/n.cc", alias).movable == {"Kind"}
        assert Source(folder + "/n.cc", alias + "int A::f() {\n}\n").movable == set()
        overloads = '#include "b.h"\nnamespace {\nint f(int) {\n}\n}  // namespace\n' + f
        assert Source(folder + "/o.cc", overloads).movable == set()
    source = Source("/d/a.cc", '#include "b.h"\n#include "c/f.h"\nT t{.f = f, .g = "f"};  // f\n'
                    'R"(f")" a::f x->f f;\n')
    source.moved = {"f"}
    assert source.written(2) == ('#line 1 "/d/a.cc"\n#include "/d/b.h"\n#include "c/f.h"\n'
                                 'T t{.f = f_of_2, .g = "f"};  // f\nR"(f")" a::f x->f f_of_2;\n')
    print("ok")


def main() -> int:
    mode, *rest = sys.argv[1:] or [""]
    if mode == "--self-test":
        self_test()
    elif mode == "--check":
        return check()
    elif mode == "--plan":
        groups = groups_of([Source(name, Path(name).read_text()) for name in rest])
        for number, group in enumerate(groups):
            for source in group:
                print(number if len(group) > 1 else "-", source.name)
    elif mode == "--output":
        out, *names = rest
        groups = groups_of([Source(name, Path(name).read_text()) for name in names], math.inf)
        if len(groups) > 1:
            print(f"{groups[1][0].name}: has a name with which it cannot be compiled together "
                  "with others now: configure again (cmake --preset ci)", file=sys.stderr)
            return 1
        made, path = written(groups[0]), Path(out)
        if not path.exists() or path.read_text() != made:  # else nothing is compiled again
            path.write_text(made)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
