#!/usr/bin/env python3
"""Writes the tables of Unicode 16.0 that src/unicode/ reads: src/unicode/*_data.cc.

    python3 -m venv VENV
    VENV/bin/pip install unicodedata2==16.0.0 fonttools==4.55.0
    VENV/bin/python tools/write_unicode_tables.py

unicodedata2 has general categories, combining classes and decompositions of the version in its
name; that release of fonttools has the scripts. Python's own str.lower() knows the case pairs of
its version, and the pairs that are newer stand below.

A table is a list of numbers without a sign, each in groups of five bits from the lowest on; a
group is a character of DIGITS, plus 32 where another group follows. Signed numbers are folded:
0, -1, 1, -2, 2 are 0, 1, 2, 3, 4.

    runs             length << 8 | value, from U+0000 on
    mappings         point - last point, number of parts, part - last part (folded), ...
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import fontTools.unicodedata as scripts
import unicodedata2 as unicode
from fontTools.unicodedata import Scripts

VERSION = "16.0.0"
NUM_POINTS = 0x110000
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
COLUMNS = 92
# In the order of kCategories in unicode.cc.
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf "
              "Cs Co").split()
# Of Unicode 15 and 16.
NEW_LOWER = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B} | {
    point: point + 0x20 for point in range(0x10D50, 0x10D66)}

FOLDER = Path(__file__).resolve().parent.parent / "src/unicode"


def number(value: int) -> str:
    text = ""
    while True:
        value, group = value >> 5, value & 31
        text += DIGITS[group + (32 if value else 0)]
        if not value:
            return text


def folded(value: int) -> str:
    return number(2 * value if value >= 0 else -2 * value - 1)


def runs(value_of: Callable[[int], int]) -> str:
    text, start = "", 0
    for point in range(1, NUM_POINTS + 1):
        if point == NUM_POINTS or value_of(point) != value_of(start):
            text += number((point - start) << 8 | value_of(start))
            start = point
    return text


def mappings(entries: Iterable[tuple[int, list[int]]]) -> str:
    text, last_point, last_part = "", 0, 0
    for point, parts in entries:
        text += number(point - last_point) + number(len(parts))
        last_point = point
        for part in parts:
            text += folded(part - last_part)
            last_part = part
    return text


def decompositions(compatible: bool) -> list[tuple[int, list[int]]]:
    """One step, as UnicodeData.txt has it."""
    found = []
    for point in range(NUM_POINTS):
        words = unicode.decomposition(chr(point)).split()
        if words and words[0].startswith("<") == compatible:
            found.append((point, [int(word, 16) for word in words if word[0] != "<"]))
    return found


def excluded() -> list[tuple[int, list[int]]]:
    """What has a decomposition of two parts that are not composed again."""
    return [(point, []) for point, parts in decompositions(False)
            if len(parts) == 2 and unicode.normalize("NFC", chr(point)) != chr(point)]


def lower_case() -> list[tuple[int, list[int]]]:
    pairs = {point: [ord(part) for part in chr(point).lower()] for point in range(NUM_POINTS)
             if chr(point).lower() != chr(point)}
    return sorted((pairs | {point: [lower] for point, lower in NEW_LOWER.items()}).items())


def literal(name: str, text: str) -> str:
    lines = [f'    "{text[i:i + COLUMNS]}"' for i in range(0, len(text), COLUMNS)]
    return f"const std::string_view {name} =\n" + "\n".join(lines) + ";\n"


def write(name: str, what: str, tables: dict[str, str]) -> None:
    head = (f"// {what} of Unicode {VERSION},\n// written by tools/write_unicode_tables.py.\n\n"
            "// clang-format off\n"
            '#include "unicode/unicode_data.h"\n\n'
            "namespace subbyte::unicode_data {\n\n")
    body = "\n".join(literal(*table) for table in tables.items())
    (FOLDER / name).write_text(f"{head}{body}\n}}  // namespace subbyte::unicode_data\n")


def main() -> None:
    if unicode.unidata_version != VERSION or f"Scripts-{VERSION}" not in Path(
            Scripts.__file__).read_text(encoding="utf-8"):
        raise SystemExit(f"expected packages with Unicode {VERSION}")
    # surrogates are no text, and fonttools calls them unknown
    codes = sorted({scripts.script(chr(point)) for point in range(NUM_POINTS)})
    names = [f"{code}={scripts.script_name(code)}" for code in codes]
    number_of = {code: i for i, code in enumerate(codes)}
    write("unicode_properties_data.cc", "General categories, scripts and lower case", {
        "kCategoryRuns": runs(lambda point: CATEGORIES.index(unicode.category(chr(point)))),
        "kScriptNames": ",".join(names) + ",",
        "kScriptRuns": runs(lambda point: number_of[scripts.script(chr(point))]),
        "kLowerCase": mappings(lower_case())})
    write("unicode_normalization_data.cc", "Decompositions and combining classes", {
        "kCombiningRuns": runs(lambda point: unicode.combining(chr(point))),
        "kCanonical": mappings(decompositions(False)),
        "kCompatible": mappings(decompositions(True)),
        "kExcluded": mappings(excluded())})


if __name__ == "__main__":
    main()
