#!/usr/bin/env python3
"""Text from files, arguments and the environment reaches people through base/quote.h alone.

src/, app/, python/:
             no quote marks of one's own around a value in a message: quote() and quote_name() put
             them there, and escape what would end the line or move the cursor. An Error's message
             is written by its constructor, which makes it one printable line; nobody adds to it.
             JSON becomes text by json::to_text() alone: the library's dump() throws where a text,
             such as a path, is not UTF-8.
app/:        only app/output.cc prints; a line with values in it is made
             by line(), so no format has an end of line of its own. Help, completion and the man
             page are the program's own text and are made as they like.

    tools/check_messages.py [--root DIR]    check the tree, print file:line for each violation
    tools/check_messages.py --self-test     see a violation of each rule reported
    tools/check_messages.py --templates     the literals with places for values, as JSON: a test
                                            puts hostile values into all of them
"""
from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import checks

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
TEST = re.compile(r"_test\.cc$")
DOORS = {"app/output.h", "app/output.cc"}
JSON_DOORS = {"src/json/strict_json.cc", "app/output.cc"}
OWN_TEXT = {"app/completion.cc", "app/help.cc", "app/help_commands.cc", "app/help_topics.cc",
            "app/man_page.cc"}

LITERAL = re.compile(r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"' r'|"(?:\\.|[^"\\\n])*"', re.DOTALL)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CHARACTER = re.compile(r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'")
PLACEHOLDER = r"(?<!\{)\{[^{}]*\}(?!\})"
OWN_MARKS = re.compile(rf"'{PLACEHOLDER}'" rf'|\\"{PLACEHOLDER}\\"')
# "tensor '" + name: a literal that ends in a quote mark, with something put after it.
OPEN_MARK = re.compile(r"""(?:'|\\")"\s*(?:\+|\)\s*\.append\()""")
PLACE = re.compile(r"(?<!\{)\{(?::[^{}]*)?\}(?!\})")  # of fmt
ADDS_TO_MESSAGE = re.compile(r"(?:\.|->)message\s*(?:\+?=(?!=)|\.(?:append|insert|push_back)\s*\()")
PRINTS = re.compile(r"\bstd::(?:cout|cerr|clog)\b|\bfmt::print\b"
                    r"|\b(?:printf|fprintf|puts|fputs|fputc|fwrite|putchar|perror)\s*\(")
DUMPS = re.compile(r"(?:\.|->)dump\s*\(")


def masked(text: str) -> str:
    """The code without comments and without what is in literals; line ends stay."""
    pattern = re.compile("|".join([LITERAL.pattern, CHARACTER.pattern, COMMENT.pattern]), re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        kept = '"' if found.startswith(('"', "R")) else "/" if found.startswith("/") else "'"
        return kept + "".join("\n" if c == "\n" else " " for c in found[1:-1]) + kept

    return pattern.sub(blank, text)


def literals(text: str) -> Iterator[tuple[int, str]]:
    """The literals that stand in code; adjacent ones are one, as the compiler has it."""
    pattern = re.compile("|".join([LITERAL.pattern, CHARACTER.pattern, COMMENT.pattern]), re.DOTALL)
    begin, joined, end = 0, "", -1
    for match in pattern.finditer(text):
        if match[0].startswith(("//", "/*", "'")):
            continue
        if end >= 0 and text[end:match.start()].strip() == "":
            joined += match[0][1:-1]
        else:
            if end >= 0:
                yield begin, joined
            begin, joined = match.start(), match[0][1:-1]
        end = match.end()
    if end >= 0:
        yield begin, joined


def violations(name: str, text: str) -> Iterator[tuple[int, str]]:
    def line_of(at: int) -> int:
        return text.count("\n", 0, at) + 1

    in_app = name.startswith("app/") and name not in DOORS
    is_message = name not in OWN_TEXT
    for at, literal in literals(text) if is_message else ():
        if OWN_MARKS.search(literal):
            yield line_of(at), "quote() and quote_name() put the marks around a value"
        if in_app and re.search(PLACEHOLDER, literal) and "\\n" in literal:
            yield line_of(at), "line() ends a line with values in it"
    uncommented = COMMENT.sub(lambda m: " " * len(m[0]), text)
    for match in OPEN_MARK.finditer(uncommented) if is_message else ():
        yield line_of(match.start()), "quote() and quote_name() put the marks around a value"
    code = masked(text)
    for match in ADDS_TO_MESSAGE.finditer(code):
        yield line_of(match.start()), "an Error's message is written by its constructor"
    if name not in JSON_DOORS:
        for match in DUMPS.finditer(code):
            yield line_of(match.start()), "json::to_text() makes JSON of any text"
    if not in_app:
        return
    for match in PRINTS.finditer(code):
        yield line_of(match.start()), "app/output.h prints"


def sources(root: Path) -> Iterator[tuple[str, str]]:
    for folder in ["src", "app", "python"]:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and not TEST.search(name):
                yield name, path.read_text(encoding="utf-8")


def check_tree(root: Path) -> list[str]:
    problems = []
    for name, text in sources(root):
        found = sorted(set(violations(name, text)))
        problems += [f"{name}:{number}: {what}" for number, what in found]
    return problems


def templates(root: Path) -> list[str]:
    """Without those that make JSON: "{{" is a brace of theirs."""
    files = [text for name, text in sources(root)
             if name not in OWN_TEXT and not name.endswith((".cu", ".cuh"))]
    found = {literal for text in files for _, literal in literals(text)
             if PLACE.search(literal) and "{{" not in literal}
    return [re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), literal)
            for literal in sorted(found)]


# Each case: file, content, and the start of the complaint about it; "" for none.
CASES = [
    ("src/a.cc", 'auto a = fmt::format("no tensor \'{}\'", name);\n', "1: quote()"),
    ("src/a.cc", 'auto a =\n    fmt::format("found \\"{}\\"", name);\n', "2: quote()"),
    ("src/a.cc", 'auto a = fmt::format("found \'"\n                     "{:>3}\'", name);\n',
     "1: quote()"),
    ("src/a.cc", 'auto a = "tensor \'" + name;\n', "1: quote()"),
    ("src/a.cc", 'auto a = std::string("key \\"").append(name);\n', "1: quote()"),
    ("src/a.cc", 'auto a = fmt::format("tensor {}", quote_name(name));\n', ""),
    ("src/a.cc", 'auto a = fmt::format("{{\\"ids\\": [{}]}}", ids);\n', ""),
    ("src/a.cc", "// tensor '{}'\nchar a = '\"';\n", ""),
    ("src/a.cc", "void f() { error.message += text; }\n", "1: an Error's message"),
    ("src/a.cc", "void f() { error.message = text; }\n", "1: an Error's message"),
    ("src/a.cc", "void f() { error.message.append(text); }\n", "1: an Error's message"),
    ("src/a.cc", "bool f() { return error.message == text; }\n", ""),
    ("src/a_test.cc", 'auto a = "tensor \'" + name;\n', ""),
    ("app/a.cc", "void f() { std::fputs(text, stderr); }\n", "1: app/output.h prints"),
    ("app/a.cc", "void f() { fmt::print(stderr, text); }\n", "1: app/output.h prints"),
    ("app/a.cc", "auto a = root.dump(2);\n", "1: json::to_text()"),
    ("app/a.cc", 'auto a = fmt::format("{}\\n", name);\n', "1: line() ends"),
    ("app/a.cc", 'auto a = fmt::format("{}"\n   " of\\n", name);\n', "1: line() ends"),
    ("app/a.cc", 'print(stdout, line("{}", name) + "\\n");\n', ""),
    ("app/help.cc", 'auto a = fmt::format("Usage: {}\\n", name);\n', ""),
    ("app/help.cc", "void f() { std::fputs(text, stderr); }\n", "1: app/output.h prints"),
    ("app/output.cc", "void f() { std::fwrite(a, 1, n, to); }\n", ""),
    ("src/a.cc", "auto a = root.dump(2);\n", "1: json::to_text()"),
    ("src/a_test.cc", "auto a = root.dump(2);\n", ""),
    ("src/json/strict_json.cc", "auto a = root.dump(2);\n", ""),
]


def main() -> int:
    parser = checks.parser_of(__doc__)
    parser.add_argument("--templates", action="store_true")
    arguments = parser.parse_args()
    if arguments.templates:
        print(json.dumps(templates(arguments.root)))
        return 0
    return checks.ended(checks.missed(CASES, check_tree) if arguments.self_test
                        else check_tree(arguments.root))


if __name__ == "__main__":
    sys.exit(main())
