"""`python -m subbyte` is the program, in this process."""
from __future__ import annotations

import sys

from ._core import run_program


def main() -> int:
    """Runs the command line and returns its exit code."""
    return run_program(["subbyte", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
