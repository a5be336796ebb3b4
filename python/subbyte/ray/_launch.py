"""Runs a program that ends with the process that started it, even where that is killed.

    _launch.py PARENT PROGRAM ARGUMENT...

PARENT is the id of that process, whose thread that starts this must last as long. A file that is
run by its path: the package is not imported.
"""
import ctypes
import os
import signal
import sys

END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2), which stays over exec


def main() -> None:
    """Asks the system for a signal at the end of the parent, and becomes the program."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != int(sys.argv[1]):  # it has ended before
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
