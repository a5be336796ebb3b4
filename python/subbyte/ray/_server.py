"""A `subbyte serve` as a child of this process."""
from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

READY = re.compile(r"ready on (http://\S+)")
LAST_LINES = 20  # that an error of the start shows


class Server:
    """The program with a model, on a free port of this machine.

    Its lines on standard error go to that of this process. It ends with this process.
    """

    def __init__(self, program: list[str], model: str, options: list[str],
                 on_end: Callable[[int], None]) -> None:
        """Starts it and waits until it answers requests.

        on_end is called with the exit code, in a thread, when it ends without being told to. Raises
        RuntimeError with the program's last lines where it does not start.
        """
        launch = [sys.executable, str(Path(__file__).with_name("_launch.py")), str(os.getpid())]
        self._process = subprocess.Popen(
            [*launch, *program, "serve", model, *options, "--host", "127.0.0.1", "--port", "0"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
        self._is_stopping = False
        self._lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self.address = self._read_address()
        threading.Thread(target=self._watch, args=(on_end,), daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def stop(self, seconds: float) -> int:
        """Ends it in order, or after so many seconds at once; returns its exit code."""
        self._is_stopping = True
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _read_address(self) -> str:
        """Passes lines on until the one that says where it listens."""
        while line := self._read_line():
            if found := READY.search(line):
                return found[1]
        code = self._process.wait()
        raise RuntimeError(f"subbyte serve ended with {code}:\n" + "".join(self._lines))

    def _read_line(self) -> str:
        """Passes a line on; "" at the end."""
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self._lines.append(line)
        sys.stderr.write(line)
        return line

    def _watch(self, on_end: Callable[[int], None]) -> None:
        """Passes its lines on until it ends."""
        while self._read_line():
            pass
        code = self._process.wait()
        if not self._is_stopping:
            on_end(code)
