"""A running `subbyte serve`, and clients of it that have the standard library alone."""
from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}
FOLDER = tempfile.TemporaryDirectory()  # of models and other files
PATIENCE = 60  # seconds that a test waits for what should come
# What was freed is overwritten, so that who looks at it after all is found out.
SPOILED = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


def model(arch: str) -> Path:
    """One with random weights, made at the first time."""
    directory = Path(FOLDER.name) / arch
    if not directory.exists():
        subprocess.run([Server.program, "synth", "--arch", arch, "--shape", "tiny", str(directory),
                        "-q"], check=True)
    return directory


def main() -> None:
    """The tests of a file: PROGRAM [--all] [TEST...]. With --all what is skipped has failed."""
    Server.program = sys.argv[1]
    words = [word for word in sys.argv[2:] if word != "--all"]
    result = unittest.main(module="__main__", argv=sys.argv[:1] + words, exit=False).result
    are_all = "--all" not in sys.argv or not result.skipped
    sys.exit(0 if result.wasSuccessful() and are_all else 1)


class Server:
    """The program with a model, until the block ends."""

    program = "subbyte"
    longest = 60  # seconds that a client waits

    def __init__(self, arch: str = "qwen3", *options: str, environment: dict | None = None):
        port = [] if "--uds" in options else ["--port", "0"]
        self.process = subprocess.Popen(
            [self.program, "serve", str(model(arch)), *port, "--device", "cpu", "--threads", "1",
             *options],
            stderr=subprocess.PIPE, text=True, env={**os.environ, **SPOILED, **(environment or {})})
        self.lines: list[str] = []
        while not any("ready on" in line for line in self.lines):
            line = self.process.stderr.readline()
            if not line:
                self.__exit__()
                raise RuntimeError("".join(self.lines))
            self.lines.append(line)
        self.address = re.search(r"ready on (\S+)", self.lines[-1])[1]
        self.port = int(self.address.rsplit(":", 1)[1]) if "http" in self.address else 0

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def stop(self) -> int:
        """Ends it with SIGTERM; its exit code. What it said is in `lines`."""
        self.process.send_signal(signal.SIGTERM)
        self.lines += self.process.stderr.readlines()
        return self.process.wait(PATIENCE)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, text, names)
        response = connection.getresponse()
        answer = Answer(response.status, dict(response.getheaders()), response.read())
        connection.close()
        return answer

    def post(self, path: str, body: object, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def stream(self, path: str, body: dict) -> list[dict]:
        """The chunks of a stream, which ends as streams do."""
        answer = self.post(path, {**body, "stream": True})
        assert answer.status == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/event-stream"), answer.headers
        events = [line[6:] for line in answer.text.split("\n\n") if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-1]
        return [json.loads(event) for event in events[:-1]]

    def raw(self, text: bytes) -> bytes:
        """All that comes to these bytes until the connection ends."""
        with self.connect() as connection:
            connection.sendall(text)
            return read_all(connection)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10

    def metrics(self) -> dict[str, float]:
        """By their names; of several with one name, the last."""
        lines = [line.rsplit(" ", 1) for line in self.get("/metrics").text.splitlines()
                 if not line.startswith("#")]
        return {name.split("{")[0]: float(value) for name, value in lines}

    def limits(self) -> dict[str, float]:
        """How often each limit of connections and requests was hit."""
        return self.labelled("http_limits_total")

    def labelled(self, metric: str) -> dict[str, float]:
        """By the last label of each."""
        found = re.findall(metric + r'\{.*="(\w+)"\} (\S+)', self.get("/metrics").text)
        return {name: float(value) for name, value in found}

    def running(self) -> int:
        status = self.get("/status").json
        return status["running"] + status["waiting"]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE} s")


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def request_bytes(path: str, body: object, *fields: str) -> bytes:
    text = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(text)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes):
        self.status = status
        self.headers = headers
        self.text = body.decode()

    @property
    def json(self) -> dict:
        return json.loads(self.text)

    @property
    def error(self) -> dict:
        return self.json["error"]
