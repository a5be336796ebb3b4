#!/usr/bin/env python3
"""The table of docs/interfaces.md: which interface has which function of the device library, on
CPUs and on GPUs, made from the code.

An interface has a function by its public name (tests/users/kept, headers, src/ops/step_plan.h), on
a machine where its sources call what computes it there. Where a function is had and a machine is
missing, REFUSED names the code of the refusal and the test that provokes it, and fails where that
test does not say the code. Cells that were filled stay so: the page may lose none.

    tools/interface_table.py              writes the page
    tools/interface_table.py --check      fails where it is another one, or a cell has no test
    tools/interface_table.py --self-test  sees a lost cell, and a test that says another code
"""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/interfaces.md"
INTERFACES = ("C", "C++", "Python", "torch", "engine")
MACHINES = ("CPU", "GPU")
SOURCES = {"C": ("src/c_interface",), "Python": ("python/src",),
           "C++": ("src/backends/cpu.cc", "src/checkpoints/named_form.cc"),
           "torch": ("src/torch_operators",),
           "engine": ("src/cpu_backend", "src/cuda_backend", "src/models")}
PUBLIC = {"C": ("tests/users/kept/c_declarations.txt",),
          "C++": ("include/subbyte/products.h", "include/subbyte/quantize.h",
                  "include/subbyte/matrix.h"),
          "Python": ("tests/users/kept/python.txt",),
          "torch": ("tests/users/kept/torch_schemas.txt",),
          "engine": ("src/ops/step_plan.h",)}


class Function(NamedTuple):
    """What computes it on each machine, and its names in each interface, as expressions."""

    name: str
    cpu: str
    gpu: str
    names: dict[str, str]


FUNCTIONS = (
    Function("product with a packed weight", r"device::multiply\(|linear_group\(",
             r"\bPackedMatrix\b|\bCudaProducts\b",
             {"C": r"subbyte_multiply\b", "C++": r"Status linear\(", "Python": r"^  linear \(",
              "torch": r"subbyte::linear\b", "engine": r"struct LinearOp"}),
    Function("weights as numbers", r"cpu::dequantize\(|\bFloatRows\b",
             r"device::dequantize\(|->dequantize\(|dequantize_on_gpu\(",
             {"C": r"subbyte_dequantize\b", "C++": r"Status dequantize\(",
              "Python": r"^  dequantize \(", "torch": r"subbyte::dequantize\b"}),
    Function("numbers to weights",
             r"quantize_one\(|quantize_named\(|quantize_min_max\(|quantize_matrix\(",
             r"device::quantize_weights\(",
             {"C": r"subbyte_matrix_quantize\b", "C++": r"Matrix> quantize_weights\(",
              "Python": r"^subbyte\.quantize\(",
              "torch": r"subbyte::quantize_int\b"}),
    Function("activations to blocks", r"cpu::quantize_blocks\(", r"cuda::quantize_blocks\(",
             {"C": r"subbyte_blocks_quantize\b", "C++": r"Status quantize_blocks\(",
              "torch": r"subbyte::mxfp8_quantize\b"}),
    Function("mixture of experts", r"\bmoe\(", r"run_mixture\(|run_routes\(",
             {"torch": r"subbyte::experts\b", "engine": r"struct ExpertsOp"}),
    Function("FlashInfer's group GEMM", r"group_gemm_mxfp8_mxfp4_nt_groupwise\(",
             r"\bGroupWeights\b",
             {"C": r"subbyte_group_gemm_run\b",
              "torch": r"subbyte::group_gemm_mxfp8_mxfp4_nt_groupwise\b"}),
    Function("kbit and vectors: codes", r"\bquantize_kbit\(", r"device::quantize_kbit\(",
             {"C": r"subbyte_kbit_quantize\b", "torch": r"subbyte::quantize_kbit\b"}),
    Function("kbit and vectors: products", r"kbit_gemm_prod\(|bnb::to_matrix\(",
             r"multiply_groups_on_gpu\(|device::multiply_kbit\(",
             {"C": r"subbyte_kbit_multiply\b", "torch": r"subbyte::kbit_gemm_prod\b"}),
    Function("kbit and vectors: tiles", r"\brepack_kbit\b", r"cuda::repack_kbit\(",
             {"C": r"subbyte_kbit_repack\b", "torch": r"subbyte::repack_kbit\b"}),
    Function("Hadamard rotation", r"hadamard_rotate\(", r"cuda::run_hadamard\(",
             {"C": r"subbyte_hadamard_rotate\b", "torch": r"subbyte::hadamard_rotate_\b"}),
    Function("aten's int4 operands", r"pack_int4|import_int4pack",
             r"convert_int4\(|const device::PackedMatrix& matrix, const Int4Target",
             {"C": r"subbyte_matrix_import\b",
              "torch": r"subbyte::_convert_weight_to_int4pack\b"}),
)

# Where an interface has a function on one machine: the code on the other, and a test that says it.
CPU_ALONE = ("device.unsupported", "src/backends/cpu_test.cc")  # Cpu::open()
BY_ADDRESS = ("c.argument", "tests/gpu/device_gpu_test.cc")
REFUSED = {
    ("product with a packed weight", "C++"): CPU_ALONE,
    ("weights as numbers", "C++"): CPU_ALONE,
    ("activations to blocks", "C++"): CPU_ALONE,
    ("numbers to weights", "C"): BY_ADDRESS,
    ("kbit and vectors: products", "C"): BY_ADDRESS,
    ("Hadamard rotation", "C"): BY_ADDRESS,
    ("numbers to weights", "Python"):
        ("array.device", "python/tests/torch/with_module/test_same_bits.py"),
}
# Functions that nobody can ask for on a GPU: what they take or return is memory of the host.
OF_THE_HOST = {("numbers to weights", "C++"), ("weights as numbers", "Python")}
FILLED = "yes"


def text_of(paths: tuple[str, ...]) -> str:
    files: list[Path] = []
    for path in paths:
        place = ROOT / path
        files += [place] if place.is_file() else sorted(
            f for f in place.rglob("*") if f.suffix in (".cc", ".h", ".cu")
            and not f.name.endswith("_test.cc"))
    return "\n".join(file.read_text() for file in files)


def cell(function: Function, interface: str, machine: str, public: str, code: str) -> str:
    if not re.search(function.names.get(interface, "(?!)"), public, re.MULTILINE):
        return "-"
    if re.search(function.gpu if machine == "GPU" else function.cpu, code):
        return FILLED
    if (function.name, interface) in OF_THE_HOST:
        return "host"
    if refusal := REFUSED.get((function.name, interface)):
        return f"`{refusal[0]}`"
    return "?"


def table() -> list[str]:
    columns = [(i, m) for i in INTERFACES for m in MACHINES]
    public = {i: text_of(PUBLIC[i]) for i in INTERFACES}
    code = {i: text_of(SOURCES[i]) for i in INTERFACES}
    lines = ["|function|" + "|".join(f"{i}, {m}" for i, m in columns) + "|",
             "|---" * (len(columns) + 1) + "|"]
    for function in FUNCTIONS:
        cells = [cell(function, i, m, public[i], code[i]) for i, m in columns]
        lines.append(f"|{function.name}|" + "|".join(cells) + "|")
    return lines


def page(lines: list[str]) -> str:
    return "\n".join([
        "# Functions by interface and machine", "",
        "Written by `tools/interface_table.py` from the code. A code is what a call is refused",
        "with, and a test provokes it; a dash: the interface has no such function; host: it takes",
        "or returns memory of the host alone.", "", *lines, ""])


def lost(before: list[str], after: list[str]) -> list[str]:
    """Cells that were filled and are not."""
    rows = {line.split("|")[1]: line.split("|") for line in after if line.startswith("|")}
    return [f"{old[1]}: column {i} was filled" for old in (b.split("|") for b in before
                                                            if b.startswith("|"))
            for i, was in enumerate(old) if was == FILLED
            and rows.get(old[1], [""] * len(old))[i] != FILLED]


def problems(before: list[str], after: list[str], refused: dict) -> list[str]:
    found = lost(before, after)
    found += [f"{line.split('|')[1]}: an empty cell without a refusal" for line in after
              if "|?|" in line]
    for (name, interface), (code, test) in refused.items():
        if f'"{code}"' not in (ROOT / test).read_text():
            found.append(f"{name}, {interface}: {test} does not say {code}")
    return found


def self_test() -> list[str]:
    lines = table()
    broken = [line.replace(FILLED, "-", 1) for line in lines]
    cases = [(problems(lines, broken, {}), "was filled"),
             (problems([], ["|x|?|"], {}), "without a refusal"),
             (problems([], [], {("x", "C"): ("no.code", "README.md")}),
              "does not say no.code")]
    return [f"expected '{words}', found {found}" for found, words in cases
            if not any(words in line for line in found)]


def main() -> int:
    if "--self-test" in sys.argv[1:]:
        found = self_test()
    else:
        lines, before = table(), PAGE.read_text() if PAGE.is_file() else ""
        found = problems(before.splitlines(), lines, REFUSED)
        if "--check" in sys.argv[1:]:
            if before != page(lines):
                found.append(f"{PAGE.name}: expected what the code says; tools/interface_table.py "
                             "writes it")
        elif not found:
            PAGE.write_text(page(lines))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
