#!/usr/bin/env python3
"""Fails when an object file built for one instruction set defines a symbol that the linker shares.

usage: check_isa_symbols.py <nm> <library.a> <isa>

A weak symbol (inline function, template) in <isa>.cc.o or <isa>_*.cc.o may be the copy that the
linker keeps for the whole program, and then machines without that instruction set run its code. So
such an object may define nothing weak or unique: what it needs has internal linkage or is a plain
function.
(DW.ref.* are pointers that the compiler makes for unwinding; they hold no code.)
"""

import re
import subprocess
import sys

SHARED = re.compile(r"^(?P<name>.+) (?P<kind>[WVu])( [0-9a-f]*)*$")


def shared_symbols(nm, library, isa):
    """The weak and unique definitions of the members of `isa`, and whether there are any."""
    member = re.compile(r"(^|\[)" + re.escape(isa) + r"(_\w+)?\.cc\.o\]?:$")
    listing = subprocess.run(
        [nm, "--demangle", "--format=posix", "--defined-only", library],
        check=True, capture_output=True, text=True).stdout
    found = False
    here = False
    symbols = []
    for line in listing.splitlines():
        if line.endswith(".o]:") or line.endswith(".o:"):  # GNU has library.a[member.o]:
            here = member.search(line) is not None
            found = found or here
        elif here and not line.startswith("DW.ref.") and (match := SHARED.match(line)):
            symbols.append(match["name"])
    return symbols, found


def main():
    nm, library, isa = sys.argv[1:]
    symbols, found = shared_symbols(nm, library, isa)
    if not found:
        sys.exit(f"{library}: expected a member {isa}.cc.o")
    for name in symbols:
        print(f"{isa}: {name}")
    if symbols:
        sys.exit(f"{library}: {isa} defines {len(symbols)} symbols that the linker shares")


if __name__ == "__main__":
    main()
