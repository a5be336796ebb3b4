#!/usr/bin/env python3
"""Writes python_letters.txt beside it: what CPython says of each character of its version
of Unicode, and what becomes of it. CPython 3.13 has Unicode 15.1.

    python3.13 tests/data/unicode/write_python_letters.py

A line is a name and, in hexadecimal, ranges of characters of which a method of str says yes
("isalpha 41-5a 61-7a"; "continues": behind a letter they are an identifier), or characters and what
a method makes of them, where it changes them ("upper df=53,53"). The first line has all characters.
"""
from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

FILE = Path(__file__).with_name("python_letters.txt")
QUESTIONS = ("isalpha isdecimal isdigit isnumeric isspace isalnum isprintable islower isupper "
             "istitle isidentifier").split()
CHANGES = "lower upper title casefold swapcase".split()


def ranges(points: list[int]) -> str:
    found: list[list[int]] = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return " ".join(f"{first:x}-{last:x}" for first, last in found)


def main() -> None:
    letters = [chr(point) for point in range(0x110000)
               if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")]

    def those(fits: Callable[[str], bool]) -> str:
        return ranges([ord(letter) for letter in letters if fits(letter)])

    lines = ["all " + those(lambda letter: True)]
    for name in QUESTIONS:
        lines.append(f"{name} " + those(getattr(str, name)))
    lines.append("continues " + those(lambda letter: ("a" + letter).isidentifier()))
    for name in CHANGES:
        change = getattr(str, name)
        lines.append(f"{name} " + " ".join(
            f"{ord(letter):x}=" + ",".join(f"{ord(part):x}" for part in change(letter))
            for letter in letters if change(letter) != letter))
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
