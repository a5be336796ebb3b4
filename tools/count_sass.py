#!/usr/bin/env python3
"""Instructions that each decoder of the CUDA kernels costs, counted in the machine code.

    tools/count_sass.py [--arch sm_90a] [--nvcc nvcc] [--cuobjdump cuobjdump]

Compiles bench/cuda/decoder_sass.cu, where one kernel for each decoder decodes 32 weights of a lane,
and prints a table: instructions for each pair of weights, by the pipe that runs them. Constants
that are moved into registers are not counted, as a kernel does that once, nor are the addresses,
loads of words and stores of the probe itself.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 16  # that a probe decodes

# Not HFMA2 R, -RZ, RZ, constant, which is a move.
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?"
                         r"(?!HFMA2[.A-Z]* \w+, -RZ, RZ)([A-Z0-9_.]+)", re.MULTILINE)
# First match wins; None is what is not the decoder's. ALU and FMA are the pipes: an instruction of
# one warp keeps the ALU of its quarter of a multiprocessor busy for two cycles. It converts between
# floats of 32, 16 and 8 bits, too (F2FP).
KINDS = [
    (r"IMAD\.MOV|MOV|UMOV|IMAD\.WIDE|S2R|ULDC|LDC|LDG|STG|EXIT", None),
    (r"LOP3|SHF|PRMT|LEA|IADD3|VIADD|F2FP", "alu"),
    (r"HADD2|HFMA2|HMUL2|IMAD", "fma"),
    (r"LDS", "lds"),
    (r"SHFL", "shfl"),
]
COLUMNS = ["alu", "fma", "lds", "shfl"]


def kind_of(opcode: str) -> str | None:
    for pattern, kind in KINDS:
        if re.match(rf"(?:{pattern})(?:\.|\d|$)", opcode):
            return kind
    raise SystemExit(f"count_sass: no kind for {opcode}: add it to KINDS")


def functions(sass: str) -> dict[str, Counter[str]]:
    counts = {}
    for part in sass.split("Function : ")[1:]:
        name, _, body = part.partition("\n")
        body = body.partition("EXIT")[0]
        kinds = (kind_of(opcode) for opcode in INSTRUCTION.findall(body))
        counts[name.strip()] = Counter(kind for kind in kinds if kind)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        include = Path(folder) / "include"
        include.mkdir()
        (include / "kernels").symlink_to(ROOT / "src" / "kernels")
        cubin = Path(folder) / "decoders.cubin"
        subprocess.run([args.nvcc, "-std=c++20", f"-arch={args.arch}", "-cubin", "-I", include,
                        "-I", ROOT, ROOT / "bench/cuda/decoder_sass.cu", "-o", cubin], check=True)
        sass = subprocess.run([args.cuobjdump, "-sass", cubin], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    print(f"{args.arch}: instructions for each pair of weights")
    print(f"{'':16}" + "".join(f"{column:>7}" for column in [*COLUMNS, "all"]))
    for name, kinds in sorted(functions(sass).items()):
        numbers = [kinds[column] / PAIRS for column in COLUMNS]
        print(f"{name:16}" + "".join(f"{number:7.2f}" for number in [*numbers, sum(numbers)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
