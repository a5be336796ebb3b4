"""The C interface: what its library exports, and what its headers declare, with the layout of each
structure and the value of each enumerator as the compiler of this machine has them."""
from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from kept import ROOT, Texts, as_text

INCLUDE = ROOT / "include"


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library: Path) -> list[str]:
    listed = output("nm", "--dynamic", "--defined-only", "--format=posix", library)
    return sorted(line.split()[0] for line in listed.splitlines())


def headers() -> list[str]:
    """Those that a program in C includes."""
    found = [path for path in (INCLUDE / "subbyte").glob("*.h") if 'extern "C"' in path.read_text()]
    return [f"subbyte/{path.name}" for path in sorted(found)]


def includes() -> str:
    return "".join(f"#include <{name}>\n" for name in headers())


def preprocessed(*options: str) -> str:
    return subprocess.run(["cc", "-E", *options, "-I", INCLUDE, "-x", "c", "-"], input=includes(),
                          check=True, capture_output=True, text=True).stdout


def declarations() -> list[str]:
    """Each on one line, of our headers alone."""
    ours, lines = False, []
    for line in preprocessed().splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            ours = marker[1].startswith(str(INCLUDE))
        elif ours:
            lines.append(line)
    text = re.sub(r"__attribute__\(\(.*?\)\)\)?", " ", " ".join(lines))
    text = re.sub(r"\s+", " ", text)
    # What ends with a semicolon outside of braces.
    return sorted(found.strip() for found in re.findall(r"(?:[^;{]|\{[^}]*\})+;", text))


def body(declaration: str, separator: str) -> list[str]:
    inside = re.search(r"\{(.*)\}", declaration)
    return [part.strip() for part in inside[1].split(separator) if part.strip()] if inside else []


def layout_program(found: list[str]) -> str:
    """A program in C that prints sizes, offsets and values."""
    prints = []

    def add(text: str, *values: str) -> None:
        prints.append(f'  printf("{text}\\n"' + "".join(f", (long long)({v})" for v in values) +
                      ");")

    for declaration in found:
        if structure := re.match(r"typedef struct (\w+) \{", declaration):
            add(f"{structure[1]} %lld bytes", f"sizeof({structure[1]})")
            for field in body(declaration, ";"):
                name = re.search(r"(\w+)(\[\d+\])?$", field)
                place = f"(({structure[1]}*)0)->{name[1]}"
                add(f"  %4lld %4lld  {field}", f"offsetof({structure[1]}, {name[1]})",
                    f"sizeof({place})")
        elif enumeration := re.match(r"enum (\w+) \{", declaration):
            add(f"enum {enumeration[1]} %lld bytes", f"sizeof(enum {enumeration[1]})")
            for name in body(declaration, ","):
                add(f"  %4lld  {name.split()[0]}", name.split()[0])
    return "\n".join([includes(), "#include <stdio.h>", "int main(void) {", *prints, "}", ""])


def layouts(found: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "layouts.c"), Path(folder, "layouts")
        source.write_text(layout_program(found))
        output("cc", "-std=c11", "-I", INCLUDE, source, "-o", program)
        return output(program)


def macros() -> list[str]:
    found = re.findall(r"^#define (SUBBYTE_\w+) (\S.*)$", preprocessed("-dM"), re.MULTILINE)
    return sorted(" ".join(macro) for macro in found)


def texts(build: Path) -> Texts:
    found = declarations()
    functions = [line for line in found if "{" not in line]
    return {
        "c_symbols.txt": as_text(symbols(build / "libsubbyte.so")),
        "c_declarations.txt": as_text(functions + macros()),
        "c_structures.txt": layouts(found),
    }
