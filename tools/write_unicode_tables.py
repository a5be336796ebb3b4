#!/usr/bin/env python3
"""Writes the tables of Unicode 16.0 that src/unicode/ reads: src/unicode/*_data.cc.

    python3 -m venv VENV
    VENV/bin/pip install unicodedata2==16.0.0 fonttools==4.55.0 PyICU-wheels==2.15.2
    VENV/bin/python tools/write_unicode_tables.py

unicodedata2 has general categories, combining classes and decompositions of the version in its
name; those releases of fonttools and of ICU have the scripts, and cases and what else Python asks
of letters.

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
import icu
import unicodedata2 as unicode
from fontTools.unicodedata import Scripts

VERSION = "16.0.0"
NUM_POINTS = 0x110000
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
COLUMNS = 92
# In the order of kCategories in unicode.cc.
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf "
              "Cs Co").split()
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


def changed(change: Callable[[str], str],
            usual: Callable[[str], str] = str) -> list[tuple[int, list[int]]]:
    """What becomes something else than is usual."""
    text = (chr(point) for point in range(NUM_POINTS) if not 0xD800 <= point < 0xE000)
    return [(ord(letter), [ord(part) for part in change(letter)]) for letter in text
            if change(letter) != usual(letter)]


def lower(letter: str) -> str:
    return str(icu.UnicodeString(letter).toLower(icu.Locale.getRoot()))


def upper(letter: str) -> str:
    return str(icu.UnicodeString(letter).toUpper(icu.Locale.getRoot()))


def title(letter: str) -> str:
    whole = str(icu.UnicodeString(letter).toTitle(icu.Locale.getRoot()))
    return whole if whole != letter else icu.Char.totitle(letter)  # of a mark alone


def folded_case(letter: str) -> str:
    return str(icu.UnicodeString(letter).foldCase(0))


def first_of(*properties: int) -> Callable[[int], int]:
    """The number of the first property that a code point has, from 1 on; 0 without any."""
    return lambda point: next((i for i, one in enumerate(properties, 1)
                               if icu.Char.hasBinaryProperty(point, one)), 0)


def numeric_type(point: int) -> int:
    return icu.Char.getIntPropertyValue(point, icu.UProperty.NUMERIC_TYPE)


def width(point: int) -> int:
    """Columns of a terminal: marks, signs that are not seen, and vowels and trails that join a lead
    of Hangul take none."""
    letter = chr(point)
    if unicode.category(letter) in ("Mn", "Me") or 0x1160 <= point <= 0x11FF:
        return 0
    if unicode.category(letter) == "Cf" and point != 0xAD:
        return 0
    return 2 if unicode.east_asian_width(letter) in ("W", "F") else 1


def literal(name: str, text: str) -> str:
    lines = [f'    "{text[i:i + COLUMNS]}"' for i in range(0, len(text), COLUMNS)]
    return f"const std::string_view {name} =\n" + "\n".join(lines) + ";\n"


def write(name: str, what: str, tables: dict[str, str]) -> None:
    head = (f"// {what} of Unicode {VERSION},\n// written by tools/write_unicode_tables.py. Made "
            "of the Unicode Character Database, whose\n// licence is "
            "cmake/debian/unicode-license.\n\n// clang-format off\n"
            '#include "unicode/unicode_data.h"\n\n'
            "namespace subbyte::unicode_data {\n\n")
    body = "\n".join(literal(*table) for table in tables.items())
    (FOLDER / name).write_text(f"{head}{body}\n}}  // namespace subbyte::unicode_data\n")


def main() -> None:
    has_scripts = f"Scripts-{VERSION}" in Path(Scripts.__file__).read_text(encoding="utf-8")
    if unicode.unidata_version != VERSION or not has_scripts or icu.UNICODE_VERSION != "16.0":
        raise SystemExit(f"expected packages with Unicode {VERSION}")
    # surrogates are no text, and fonttools calls them unknown
    codes = sorted({scripts.script(chr(point)) for point in range(NUM_POINTS)})
    names = [f"{code}={scripts.script_name(code)}" for code in codes]
    number_of = {code: i for i, code in enumerate(codes)}
    write("unicode_properties_data.cc", "General categories, scripts and widths", {
        "kCategoryRuns": runs(lambda point: CATEGORIES.index(unicode.category(chr(point)))),
        "kScriptNames": ",".join(names) + ",",
        "kScriptRuns": runs(lambda point: number_of[scripts.script(chr(point))]),
        "kWidthRuns": runs(width)})
    write("unicode_cases_data.cc", "Cases of letters, numbers and identifiers", {
        "kLowerCase": mappings(changed(lower)),
        "kUpperCase": mappings(changed(upper)),
        "kTitleCase": mappings(changed(title, upper)),
        "kFoldedCase": mappings(changed(folded_case, lower)),
        "kCaseRuns": runs(first_of(icu.UProperty.UPPERCASE, icu.UProperty.LOWERCASE)),
        "kNumericRuns": runs(numeric_type),
        "kIdentifierRuns": runs(first_of(icu.UProperty.XID_START, icu.UProperty.XID_CONTINUE))})
    write("unicode_normalization_data.cc", "Decompositions and combining classes", {
        "kCombiningRuns": runs(lambda point: unicode.combining(chr(point))),
        "kCanonical": mappings(decompositions(False)),
        "kCompatible": mappings(decompositions(True)),
        "kExcluded": mappings(excluded())})


if __name__ == "__main__":
    main()
