#!/usr/bin/env python3
"""House rules that neither the compiler nor clang-format checks.

All code:  at most 500 lines in a file, 100 columns in a line, ASCII, no tabs, no notes
           about work to do.
C++:       functions of at most 60 lines (from the brace that opens the body to the one that closes
           it), no '#if 0'. The main loop of a CUDA kernel may have 150, where that shows a
           protocol of copies and barriers in one view: its body begins with a comment "Main loop",
           in a .cuh file, and has a title ("// --- ...") every 40 lines.
Tests:     a skip says what is missing, and what a machine lacks is a skip: a test that only
           returns counts as passed.
src/:      the library never prints, aborts or exits (tests beside the code may).
Vectors:   intrinsics only in src/kernels/cpu/<isa>/, which is compiled for that instruction set
           (a test may compare with an instruction).

    tools/check_style.py [--root DIR]    check the tree, print file:line for each violation
    tools/check_style.py --self-test     see a violation of each rule reported

Function lengths are found by counting braces, not by parsing C++: macros that open or close
braces would confuse it, and the project has none.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import checks

MAX_LINES = 500
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 60
MAX_MAIN_LOOP_LINES = 150
MAX_UNTITLED_LINES = 40

FOLDERS = ["src", "include", "app", "bench", "tests", "conformance", "examples", "fuzz", "tools",
           "cmake", "python"]
DATA_FOLDERS = {"data"}  # what is in tests/data is what others wrote
CPP = {".h", ".cc", ".def", ".metal", ".cu", ".cuh"}
OTHER_CODE = {".py", ".cmake", ".sh"}
FILES = ["dev", "CMakeLists.txt"]

# Literals first, so that a quote in a comment and a comment in a literal are told apart.
# The digit separator of C++ (1'000) is not the start of a character.
LITERAL_OR_COMMENT = re.compile(
    r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
    r"|//[^\n]*"
    r"|/\*.*?\*/", re.DOTALL)

NOTE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
IF_ZERO = re.compile(r"^\s*#\s*if\s+0\b")
PRINTS = re.compile(r"\bstd::(cout|cerr|clog)\b|\bfmt::print\b"
                    r"|\b(printf|fprintf|vfprintf|puts|fputs|putchar|perror)\s*\(")
ENDS = re.compile(r"(?<![\w.>])(std::|::)?(abort|exit|_exit|_Exit|quick_exit|terminate)\s*\(")
SKIPS_SILENTLY = re.compile(r"\bGTEST_SKIP\(\)\s*;")
# The first statement of a test, after declarations at most.
RETURNS_AT_ONCE = re.compile(r"^(?:TEST(?:_F|_P)?|TYPED_TEST)\(.*\) \{\n"
                             r"(?:  (?:const )?[\w:<>&* ]+ = .*;\n)*"
                             r"  if \(.*\) (?:\{\n(?:    .*\n)*?    )?return;", re.MULTILINE)
INTRINSIC = re.compile(r"\b_mm\d*_\w+|\b__m(128|256|512)[di]?\b|\b_tile_\w+"
                       r"|#\s*include\s*<\w*intrin\.h>")
ISA_FOLDER = re.compile(r"^src/kernels/cpu/(?!generic/)\w+/")

MAIN_LOOP = re.compile(r"\{[ \t]*\n\s*// Main loop\b")
TITLE = re.compile(r"^\s*// --- \S")

NAMESPACE = re.compile(r"\bnamespace\b|\bextern\s*$")
TYPE = re.compile(r"\b(class|struct|union|enum|concept)\b")


def blank(match: re.Match[str]) -> str:
    """Keeps lines and columns where they are."""
    text = re.sub(r"[^\n]", " ", match[0])
    if match[0].startswith(("/", "R")) or len(text) < 2:
        return text
    return match[0][0] + text[1:-1] + match[0][-1]


def code_only(text: str) -> str:
    """C++ without comments and without what is inside literals; includes stay."""
    return LITERAL_OR_COMMENT.sub(blank, text)


def kind_of_block(before: str, enclosing: list[str]) -> str:
    """What a '{' opens, told from the text between it and the end of the statement before it."""
    if any(kind == "function" for kind in enclosing):
        return "inner"
    if NAMESPACE.search(before):
        return "namespace"
    if "(" in before and not re.search(r"=\s*$", before):
        return "function"
    return "type" if TYPE.search(before) else "inner"


def functions(code: str) -> Iterator[tuple[int, int]]:
    """First and last line, counted from 1, of each function body."""
    # Preprocessor lines, with what they continue on, have braces of their own.
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), code,
                  flags=re.MULTILINE)
    open_blocks: list[tuple[str, int]] = []
    line = 1
    before = ""
    for char in code:
        if char == "\n":
            line += 1
        if char == "{":
            open_blocks.append((kind_of_block(before, [kind for kind, _ in open_blocks]), line))
        elif char == "}" and open_blocks:
            kind, first = open_blocks.pop()
            if kind == "function":
                yield first, line
        before = "" if char in ";{}" else before + char


def check_main_loop(body: list[str], first: int) -> Iterator[tuple[int, str]]:
    """Lines of a body that is marked as a main loop, the first of which has number `first`."""
    if len(body) > MAX_MAIN_LOOP_LINES:
        yield first, f"main loop of {len(body)} lines, more than {MAX_MAIN_LOOP_LINES}"
    titles = [0, *(i for i, line in enumerate(body) if TITLE.match(line)), len(body)]
    for begin, end in zip(titles, titles[1:]):
        if end - begin > MAX_UNTITLED_LINES:
            yield first + begin, f"{end - begin} lines of a main loop without a title (// --- ...)"


def check_function(name: str, lines: list[str], first: int,
                   last: int) -> Iterator[tuple[int, str]]:
    body = lines[first - 1:last]
    if len(body) <= MAX_FUNCTION_LINES:
        return
    if name.endswith(".cuh") and MAIN_LOOP.search("\n".join(body[:2])):
        yield from check_main_loop(body, first)
    else:
        yield first, f"function of {len(body)} lines, more than {MAX_FUNCTION_LINES}"


def check_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines, more than {MAX_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, more than {MAX_COLUMNS}"
        if not line.isascii():
            yield number, "not ASCII"
        if "\t" in line:
            yield number, "a tab"
        if NOTE.search(line):
            yield number, "a note about work to do; do it, or open an issue"


def check_cpp(name: str, text: str) -> Iterator[tuple[int, str]]:
    code = code_only(text)
    is_test = name.endswith("_test.cc")
    in_library = name.startswith("src/") and not is_test
    for number, line in enumerate(code.splitlines(), 1):
        if IF_ZERO.search(line):
            yield number, "#if 0: git remembers, delete it"
        if in_library and PRINTS.search(line):
            yield number, "the library does not print"
        if in_library and ENDS.search(line):
            yield number, "the library does not end the process"
        if INTRINSIC.search(line) and not is_test and not ISA_FOLDER.match(name):
            yield number, "intrinsics belong into src/kernels/cpu/<isa>/"
        if is_test and SKIPS_SILENTLY.search(line):
            yield number, "a skip without what is missing"
    for found in RETURNS_AT_ONCE.finditer(code) if is_test else []:
        yield code.count("\n", 0, found.end()) + 1, "a test that only returns passes: GTEST_SKIP()"
    for first, last in functions(code):
        yield from check_function(name, text.splitlines(), first, last)


def code_files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if DATA_FOLDERS & set(path.relative_to(root).parts):
                continue
            if path.suffix in CPP | OTHER_CODE or path.name == "CMakeLists.txt":
                yield path
    yield from (root / name for name in FILES if (root / name).exists())


def check_tree(root: Path) -> list[str]:
    problems = []
    for path in code_files(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        found = list(check_lines(text.splitlines()))
        if path.suffix in CPP:
            found += check_cpp(name, text)
        problems += [f"{name}:{number}: {what}" for number, what in sorted(found)]
    return problems


LONG_BODY = "int f() {\n" + "  g();\n" * 59 + "}\n"  # 61 lines


def main_loop(lines: int, titled: bool = True) -> str:
    """A body of that many lines that is marked as a main loop."""
    title = "  // --- wait\n" if titled else "  g();\n"
    return ("void f() {\n  // Main loop.\n" +
            "".join(title if i % 30 == 0 else "  g();\n" for i in range(lines - 3)) + "}\n")


# Each case: file, content, and the start of the complaint about it; "" for none.
CASES = [
    ("src/base/a.cc", "int a;\n" * 501, "501: 501 lines"),
    ("src/base/a.cc", "// " + "x" * 98 + "\n", "1: 101 columns"),
    ("src/base/a.cc", "// \u00e9\n", "1: not ASCII"),
    ("tools/a.py", "\tpass\n", "1: a tab"),
    ("app/a.cc", "// TO" "DO: later\n", "1: a note"),
    ("app/a.cc", "\n#if 0\n#endif\n", "2: #if 0"),
    ("src/base/a.cc", "void f() { std::cout << 1; }\n", "1: the library does not print"),
    ("src/base/a.cc", "void f() { std::abort(); }\n", "1: the library does not end"),
    ("src/ops/a.cc", "__m256 f();\n", "1: intrinsics"),
    ("src/kernels/cpu/generic/a.h", "#include <immintrin.h>\n", "1: intrinsics"),
    ("src/base/a.cc", LONG_BODY, "1: function of 61 lines"),
    ("src/base/a.cuh", "__global__ void\n" + LONG_BODY, "2: function of 61 lines"),
    ("src/base/a.cu", "void f() { printf(a); }\n", "1: the library does not print"),
    ("src/base/a.cc", "struct A {\n A() : b_{0} {}\n" + LONG_BODY + "};\n", "3: function of 61"),
    ("src/base/a.cuh", main_loop(150), ""),
    ("src/base/a.cuh", main_loop(151), "1: main loop of 151 lines"),
    ("src/base/a.cuh", main_loop(61, titled=False), "1: 61 lines of a main loop without a title"),
    ("src/base/a.cc", main_loop(61), "1: function of 61 lines"),
    ("src/base/a.cc", "namespace n {\n" + LONG_BODY.replace("  g();\n", "", 1) + "}\n", ""),
    ("src/base/a.cc", 'const char* a = "std::cout {"; // printf(\nint b = 1\'000;\n', ""),
    ("src/base/a_test.cc", "void f() { std::abort(); }\n", ""),
    ("src/base/a_test.cc", "void f() { GTEST_SKIP(); }\n", "1: a skip without"),
    ("src/base/a_test.cc", "void f() { GTEST_SKIP() << 1; }\n", ""),
    ("tests/gpu/a_test.cc", "TEST(A, b) {\n  if (!c()) return;\n  d();\n}\n", "2: a test that"),
    ("tests/gpu/a_test.cc", "TEST_P(A, b) {\n  const D& d = e();\n  if (d.f != 9) {\n    g();\n"
                            "    return;\n  }\n}\n", "5: a test that"),
    ("tests/gpu/a_test.cc", "TEST(A, b) {\n  c();\n  if (HasFailure()) return;\n}\n", ""),
    ("src/base/a.cc", "void f() { snprintf(b, 1, c); at_exit(); x.exit(); }\n", ""),
    ("src/kernels/cpu/avx2/a.cc", "__m256 f();\n", ""),
    ("tests/data/a.py", "\t\u00e9\n", ""),
    ("app/a.cc", "int main() { std::cout << 1; }\n", ""),
]


def main() -> int:
    arguments = checks.parser_of(__doc__).parse_args()
    return checks.ended(checks.missed(CASES, check_tree) if arguments.self_test
                        else check_tree(arguments.root))


if __name__ == "__main__":
    sys.exit(main())
