#!/usr/bin/env python3
"""The words of the glossary in DEVELOPING.md: what it has retired appears nowhere. A doc comment
begins with a verb or a noun.

The last column of the glossary lists, in backquotes, what is refused in code, comments, documents
and names of files: upper and lower case alike, and as a part of a longer name, too. What stands
there without backquotes is wrong in that meaning only, which a reader must see.

Not looked at: the changelog and the decisions, which say what was called so then.

Pages for users, and texts between quotes in the program and the packages, do without the words of
the house: doors, flavours, what takes what, where bytes lie.

A doc comment (///) of a header in src/, include/ and app/ names its object: "Stores a row", "Bytes
of a row". One that begins with "What", "Of" or "Whether" has no subject, and is understood from the
code alone.

    tools/check_words.py [--root DIR]    check the tree, print file:line for each mistake
    tools/check_words.py --self-test     see mistakes reported, and others not
"""
from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import checks

GLOSSARY = "DEVELOPING.md"
TITLE = "## Glossary"
FOLDERS = ["src", "include", "app", "bench", "tests", "conformance", "fuzz", "tools", "cmake",
           "docs", "examples", "python"]
FILES = ["dev", "CMakeLists.txt", "CMakePresets.json", "README.md", GLOSSARY]
SUFFIXES = {".h", ".cc", ".def", ".metal", ".cu", ".cuh", ".in", ".py", ".cmake", ".txt", ".md",
            ".sh", ""}
# What others wrote, and what says how things were called.
NOT_LOOKED_AT = re.compile(r"(^|/)data/|^docs/kernels/\w+_decisions"
                           r"|^tools/check_words\.py$")
# A retired word in a phrase of its own.
ALLOWED = re.compile(r"(left|leaves?|nothing)[_ ]behind|look-?behind", re.IGNORECASE)

# What only the house says, with what others say.
HOUSE_WORDS = {
    r"\bdoors?\b(?! [a-z-]*packages)": "interface, command, package",
    r"\bflavou?rs?\b": "format",
    r"\btakes what\b": "accepts",
    r"\b(tied|own) head\b|\bhead of (its|their) own\b|\bthe head is\b": "lm_head",
    r"\b(lie|lies|lay) (in|on|where|beside)\b": "is, are",
    r"multiplied as one|none before it names": "a sentence",
}
ALLOWED_TO_USERS = re.compile(r"\bdoor-test\b|`[^`]*`|\(#?[\w./#-]+\)|include \"")
PAGES = re.compile(r"^(README|CHANGELOG|SECURITY)\.md$"
                   r"|^docs/(?!promises|test_run|cuda_backend)\w+\.md$")
TEXTS = re.compile(r"^(src|app)/.*(?<!_test)\.(cc|def)$|^python/(src|subbyte)/.*\.(cc|py)$")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')

DOC_COMMENT = re.compile(r"\s*///(?!/) ?(.*)")
COMMENTED = ["src", "include", "app"]  # whose headers others include
NO_SUBJECT = re.compile(r"(What|Of|Whether)\b")


def glossary(root: Path) -> list[str]:
    """The retired words."""
    text = (root / GLOSSARY).read_text()
    section = text.partition(TITLE)[2].partition("\n## ")[0]
    words = []
    for line in section.splitlines():
        if line.startswith("|"):
            words += re.findall(r"`([^`]+)`", line.strip().strip("|").rpartition("|")[2])
    return words


def files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and path.suffix in SUFFIXES and not NOT_LOOKED_AT.search(name):
                yield path
    yield from (root / name for name in FILES if (root / name).is_file())


def lines_to_check(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line 0 is the name of the file. The glossary itself is left out."""
    yield 0, path.relative_to(root).as_posix()
    in_glossary = False
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if path == root / GLOSSARY and line.startswith("## "):
            in_glossary = line == TITLE
        if not in_glossary:
            yield number, line


def doc_comments(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The first line of each, without its slashes."""
    before = ""
    for number, line in enumerate(lines, 1):
        comment = DOC_COMMENT.match(line)
        if comment and not DOC_COMMENT.match(before):
            yield number, comment[1]
        before = line


def check_doc_comments(root: Path) -> Iterator[str]:
    for path in sorted(file for folder in COMMENTED for file in (root / folder).rglob("*.h")):
        for number, text in doc_comments(path.read_text(errors="replace").splitlines()):
            if begin := NO_SUBJECT.match(text):
                name = path.relative_to(root).as_posix()
                yield f"{name}:{number}: '{begin[0]}': a comment begins with a verb or a noun"


def house_words(root: Path) -> Iterator[str]:
    """In what users read: pages, and texts with a blank between quotes."""
    for path in [*files(root), *(p for p in [root / "CHANGELOG.md", root / "SECURITY.md"]
                                 if p.is_file())]:
        name = path.relative_to(root).as_posix()
        is_page = PAGES.match(name)
        if not is_page and not TEXTS.match(name):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            said = line if is_page else " ".join(t for t in TEXT.findall(line) if " " in t)
            said = ALLOWED_TO_USERS.sub("", said)
            for word, better in HOUSE_WORDS.items():
                if found := re.search(word, said, re.IGNORECASE):
                    yield f"{name}:{number}: '{found[0]}': users know it as {better}"


def check_tree(root: Path) -> list[str]:
    words = glossary(root)
    if not words:
        return [f"{GLOSSARY}: no retired words under '{TITLE}'"]
    retired = re.compile("|".join(re.escape(word) for word in words), re.IGNORECASE)
    problems = []
    for path in files(root):
        for number, line in lines_to_check(path, root):
            found = retired.search(ALLOWED.sub("", line))
            if found:
                name = path.relative_to(root).as_posix()
                problems.append(f"{name}:{number}: '{found[0]}' is retired: see the glossary")
    return problems + list(house_words(root)) + list(check_doc_comments(root))


PLANTED_GLOSSARY = """# Developing
octet
## Glossary
| word | means | not |
|---|---|---|
| k8 | eight inputs | `octet`, group |
| after | order | `behind` |
## Rules
"""
PLANTS = [  # a file, its text, the lines that are reported
    ("src/a.h", "int kOctetBytes;\nint octets;\n", [1, 2]),
    ("docs/a.md", "Behind the codes.\nIt is left behind.\nA group.\n", [1]),
    ("src/octet_test.cc", "int x;\n", [0]),
    ("docs/kernels/cpu_decisions.md", "octets\n", []),
    ("tests/data/a.txt", "octets\n", []),
    ("src/b.h", "/// What it holds.\nint a;\n  /// Of a row.\n  int b;\n/// Whether it is.\n",
     [1, 3, 5]),
    ("src/base/c.h", "/// Bytes of a row.\n/// Of both.\n// What it is.\n/// Whatever it is.\n",
     []),
    ("include/d.h", "/// Of a row.\n", [1]),
    ("src/b.cc", "/// What it holds.\n", []),
    ("tests/b.h", "/// What it holds.\n", []),
    ("docs/b.md", "All doors.\n`./dev door-test`\nA head of its own.\nA head of 64.\n", [1, 3]),
    ("docs/promises.md", "All doors.\n", []),
    ("src/c.cc", 'f("it lies in memory");\n// it lies in memory\ng("flavour");\n', [1]),
    ("CHANGELOG.md", "Each flavour.\n", [1]),
]


def self_test(_: Path) -> list[str]:
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / GLOSSARY).write_text(PLANTED_GLOSSARY)
        expected = {f"{GLOSSARY}:2"}
        for name, text, lines in PLANTS:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            expected |= {f"{name}:{line}" for line in lines}
        found = {problem.rsplit(": '", 1)[0] for problem in check_tree(root)}
        failures += [f"not reported: {place}" for place in sorted(expected - found)]
        failures += [f"reported, and right: {place}" for place in sorted(found - expected)]
    return failures


def main() -> int:
    arguments = checks.parser_of(__doc__).parse_args()
    return checks.ended((self_test if arguments.self_test else check_tree)(arguments.root))


if __name__ == "__main__":
    sys.exit(main())
