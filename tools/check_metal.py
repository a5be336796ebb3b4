#!/usr/bin/env python3
"""Whether the Metal shaders, and src/kernels/gpu, respect Metal's address spaces.

The tests compile src/kernels/metal as C++, where a pointer is a pointer. In Metal each has an
address space, and `half` is a keyword. clang knows address spaces in C++ too, so it can check this
much without Apple's compiler:

    tools/check_metal.py [--clang clang++] [--root DIR]
    tools/check_metal.py --self-test    see violations reported

Attributes like [[buffer(0)]] are taken out, and the arguments of a kernel are read from the
thread's address space, as only Metal copies a struct out of `constant`.
"""
from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import checks

FOLDERS = ["src/kernels/metal", "src/kernels/gpu"]  # the shaders must include nothing else
ATTRIBUTE = re.compile(r"\[\[\w+(\(\d\))?\]\]")

ADDRESS_SPACES = """
#define __METAL_VERSION__ 400
#define kernel
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2))) const
#define thread
#define threadgroup __attribute__((address_space(3)))
"""
STDLIB = """
#pragma once
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef long int64_t;
#define half _Float16
typedef half half2 __attribute__((ext_vector_type(2)));
template <class To, class From>
To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}
namespace metal {
half2 fma(half2, half2, half2);
float fma(float, float, float);
half2 min(half2, half2);
float min(float, float);
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags);
float simd_shuffle_xor(float, uint16_t);
}  // namespace metal
"""

# Of the self-test: what is changed, and that it should be refused.
MISTAKES = [
    ("int lane, thread uint32_t* words", "int lane, device uint32_t* words"),
    ("device const uint8_t* scales, gpu::ScaleKind", "const uint8_t* scales, gpu::ScaleKind"),
    ("SUBBYTE_DEVICE constexpr int row_of(Slot slot) {",
     "SUBBYTE_DEVICE constexpr int half(Slot slot) { return 0; }\n"
     "SUBBYTE_DEVICE constexpr int row_of(Slot slot) {"),
]


def errors(clang: str, root: Path, change: tuple[str, str] | None = None) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "metal_stdlib").write_text(STDLIB)
        (folder / "address_spaces.h").write_text(ADDRESS_SPACES)
        for source in (file for part in FOLDERS for file in sorted((root / part).rglob("*"))):
            if source.suffix not in {".h", ".def", ".metal"}:
                continue
            text = ATTRIBUTE.sub("", source.read_text())
            text = text.replace("constant subbyte::apple::Arguments&",
                                "const subbyte::apple::Arguments&")
            if change:
                text = text.replace(*change)
            copy = folder / source.relative_to(root / "src")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
        found = []
        for shader in sorted(folder.rglob("*.metal")):
            # Of this target clang has _Float16; nothing is generated for it.
            result = subprocess.run(
                [clang, "--target=aarch64-linux-gnu", "-std=c++17", "-x", "c++", "-fsyntax-only",
                 "-nostdinc", "-nostdinc++", "-Wno-unknown-pragmas", "-ferror-limit=3",
                 "-include", folder / "address_spaces.h", "-I", folder, shader],
                capture_output=True, text=True)
            if result.returncode:
                found.append(result.stderr.replace(f"{folder}/", "src/"))
        return found


def self_test(clang: str, root: Path) -> int:
    missed = [change for change in MISTAKES if not errors(clang, root, change)]
    for old, new in missed:
        print(f"not reported: {new!r} for {old!r}")
    print(f"{len(MISTAKES) - len(missed)} of {len(MISTAKES)} mistakes reported")
    return 1 if missed else 0


def main() -> int:
    parser = checks.parser_of(__doc__)
    parser.add_argument("--clang", default="clang++")
    args = parser.parse_args()
    if args.self_test:
        return self_test(args.clang, args.root)
    found = errors(args.clang, args.root)
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
