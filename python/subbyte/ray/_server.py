"""A `subbyte serve` as a child of this process."""
from __future__ import annotations

import collections
import os
import queue
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
        words = [*launch, *program, "serve", model, *options, "--host", "127.0.0.1", "--port", "0"]
        self.is_stopping = False
        self._lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._started: queue.SimpleQueue[str | RuntimeError] = queue.SimpleQueue()
        # The system tells the program of the end of the thread that has started it.
        threading.Thread(target=self._run, args=(words, on_end), daemon=True).start()
        found = self._started.get()
        if isinstance(found, RuntimeError):
            raise found
        self.address = found

    def stop(self, seconds: float) -> None:
        """Ends it in order, or after so many seconds at once."""
        self.is_stopping = True
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _run(self, words: list[str], on_end: Callable[[int], None]) -> None:
        """Starts it, passes its lines on and waits for its end."""
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, text=True,
                                             stderr=subprocess.PIPE, errors="replace")
        except OSError as error:
            self._started.put(RuntimeError(f"subbyte serve was not started: {error}"))
            return
        assert self._process.stderr is not None
        is_ready = False
        for line in self._process.stderr:
            self._lines.append(line)
            sys.stderr.write(line)
            if not is_ready and (found := READY.search(line)):
                self._started.put(found[1])
                is_ready = True
        code = self._process.wait()
        if not is_ready:
            self._started.put(RuntimeError(f"subbyte serve ended with {code}:\n"
                                           + "".join(self._lines)))
        elif not self.is_stopping:
            on_end(code)
