#!/usr/bin/env python3
"""What a wheel of subbyte promises by its name and its manual, read from its modules.

    tools/check_wheel.py [--cuda] WHEEL

All libraries in it need the C library and libgcc alone. Of the module that Python loads nothing but
PyInit__core is seen from outside; in a wheel whose tag is abi3, every function of Python that it
calls is one that Python.h declares for the limited API of the version in the tag. That is asked of
the headers of this interpreter, which has to be that version or a later one. The licences of the
package and of all libraries inside lie beside it. --cuda: the module has code for GPUs.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path


C_LIBRARY = re.compile(r"(?:lib(?:c|m|dl|rt|pthread|gcc_s)|ld-linux[\w-]*)\.so\.\d+$")

LIBRARIES_FILE = "subbyte/LICENSES-OF-LIBRARIES"
LICENSES = ["licenses/LICENSE", LIBRARIES_FILE, "subbyte/LICENSE-OF-NANOBIND",
            "subbyte/LICENSE-OF-ROBIN-MAP"]
# Data and packages of Debian whose libraries are inside, as cmake/SubbytePackages.cmake names them.
LIBRARIES = ["unicode-character-database", "libfmt-dev", "nlohmann-json3-dev",
             "libboost1.81-dev", "libssl-dev", r"libstdc\+\+-\d+-dev"]


def output_of(*command: object) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=True).stdout


def needs_of(library: Path) -> list[str]:
    """What it is linked with beyond the C library and libgcc."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--dynamic", library))
    return [name for name in needed if not C_LIBRARY.match(name)]


def symbols_of(module: Path, kind: str) -> list[str]:
    listed = output_of("nm", "--dynamic", kind, module)
    return [line.split()[-1].partition("@")[0] for line in listed.splitlines()]


def limited_api(version: int) -> set[str]:
    """The names that Python.h has for programs of the limited API of 3.VERSION."""
    if sys.version_info[:2] < (3, version):
        raise SystemExit(f"expected Python 3.{version} or later, whose headers have that limited "
                         f"API, found {sys.version.split()[0]}")
    with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
        source.write(f"#define Py_LIMITED_API 0x03{version:02X}0000\n#include <Python.h>\n")
        source.flush()
        text = output_of("cc", "-E", "-P", "-I", sysconfig.get_path("include"), source.name)
    return set(re.findall(r"\b_?Py\w+", text))


def faults_of(module: Path, version: int | None, wants_cuda: bool) -> list[str]:
    faults = []
    defined = symbols_of(module, "--defined-only")
    if defined != ["PyInit__core"]:
        faults.append(f"expected PyInit__core alone to be seen, found {len(defined)} names")
    sections = output_of("readelf", "--section-headers", "--wide", module)
    if wants_cuda and ".nv_fatbin" not in sections:
        faults.append("expected code for GPUs, found no section .nv_fatbin")
    if version is not None:
        called = {name for name in symbols_of(module, "--undefined-only")
                  if re.match(r"_?Py", name)}
        faults += [f"{name} is not in the limited API of Python 3.{version}"
                   for name in sorted(called - limited_api(version))]
        print(f"{len(called)} functions of Python, limited API of 3.{version}")
    return faults


def lacking_licenses(wheel: zipfile.ZipFile, wants_cuda: bool) -> list[str]:
    """Files of licences that are missing or empty, and libraries that theirs leaves out."""
    sizes = {re.sub(r"^[^/]*\.dist-info/", "", entry.filename): entry.file_size
             for entry in wheel.infolist()}
    lacking = [name for name in LICENSES if not sizes.get(name)]
    libraries = [*LIBRARIES, "cudart_static"] if wants_cuda else LIBRARIES
    if LIBRARIES_FILE not in lacking:
        heads = re.findall(r"^==== (\S+)$", wheel.read(LIBRARIES_FILE).decode(), re.MULTILINE)
        lacking += [f"{LIBRARIES_FILE} of {library}" for library in libraries
                    if not any(re.fullmatch(library, head) for head in heads)]
    return [f"expected {name}" for name in lacking]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--cuda", action="store_true")
    options = parser.parse_args()
    *_, interpreter, abi, _ = options.wheel.stem.split("-")
    version = int(interpreter.removeprefix("cp3")) if abi == "abi3" else None
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(options.wheel) as wheel:
        libraries = [Path(wheel.extract(name, folder)) for name in wheel.namelist()
                     if name.endswith(".so")]
        faults = [f"{library.name}: expected the C library alone to be needed, found {name}"
                  for library in libraries for name in needs_of(library)]
        [module] = [library for library in libraries if library.name.startswith("_core.")]
        faults += [f"{module.name}: {fault}"
                   for fault in faults_of(module, version, options.cuda)]
        faults += lacking_licenses(wheel, options.cuda)
    for fault in faults:
        print(f"{options.wheel.name}: {fault}")
    print(f"{options.wheel.name}: {options.wheel.stat().st_size / 1e6:.1f} MB, tag "
          f"{interpreter}-{abi}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
