"""What tests of the application on Ray have in common: models, a cluster, and clients of it."""
from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


PORT = free_port()  # of the proxy of Serve
CHAT = "/v1/chat/completions"
PATIENCE = 60  # seconds that a test waits for what should come
FOLDER = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
PROGRAM = [sys.executable, "-m", "subbyte"]
# Of this run alone, and before Ray is there: it keeps a token in the home of who tests, and in
# /tmp where a cluster was.
os.environ.update(RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_TMPDIR=FOLDER.name,
                  RAY_USAGE_STATS_ENABLED="0", CUDA_VISIBLE_DEVICES="")

import ray  # noqa: E402
from ray import serve  # noqa: E402

from subbyte.ray import Settings, application  # noqa: E402


def model(arch: str = "qwen3", name: str = "", *options: str) -> Path:
    """One with random weights, made at the first time."""
    directory = Path(FOLDER.name) / (name or arch)
    if not directory.exists():
        subprocess.run([*PROGRAM, "synth", "--arch", arch, "--shape", "tiny", *options,
                        str(directory), "-q"], check=True)
    return directory


def start_ray() -> None:
    """A cluster of this machine alone, with more processors than it has: models are tiny."""
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="error")
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})


def deploy(**settings: object) -> None:
    """The application, or the same with other settings."""
    usual = {"model": str(model()), "replicas": 3, "down_seconds": 1.0, "max_requests": 16,
             "max_body_bytes": 1_000_000,
             "options": "--parallel 16 --device cpu --batch-invariant --log none"}
    serve.run(application(Settings(**{**usual, **settings})), name="subbyte")


def environment() -> dict[str, str]:
    """Of a process that joins the cluster."""
    return {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}


def question(text: str, **fields: object) -> dict:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 10, "seed": 1,
            "temperature": 1, "ignore_eos": True, **fields}


class Answer:
    def __init__(self, response: http.client.HTTPResponse):
        self.status = response.status
        self.headers = dict(response.getheaders())
        self.text = response.read().decode()

    @property
    def replica(self) -> str:
        return self.headers["x-subbyte-replica"]

    @property
    def events(self) -> list[str]:
        """Those of a stream."""
        return [line[6:] for line in self.text.split("\n\n") if line.startswith("data: ")]

    @property
    def content(self) -> str:
        """What was answered, in chunks or not; RuntimeError for anything but a whole answer."""
        try:
            if "event-stream" not in self.headers["content-type"]:
                return json.loads(self.text)["choices"][0]["message"]["content"]
            if self.events[-1] == "[DONE]":
                choices = [json.loads(event)["choices"][0] for event in self.events[:-1]]
                return "".join(choice["delta"].get("content") or "" for choice in choices)
        except (KeyError, IndexError, ValueError):
            pass
        raise RuntimeError(f"{self.status} {self.text[-300:]}")


def ask(body: object, method: str = "POST", path: str = CHAT, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=PATIENCE)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    connection.request(method, path, text, names)
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def servers() -> dict[int, int]:
    """The processes of `subbyte serve`, with the processes of the replicas that started them."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if b"serve" in words and str(Path(FOLDER.name)).encode() in b" ".join(words):
            if b"_launch.py" not in b" ".join(words):
                found[int(process.name)] = parent
    return found


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> float:
    """How many seconds it took."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() > begin + seconds:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.05)
    return time.monotonic() - begin


class Load:
    """Requests of several clients, each of which compares its answers with those known."""

    KINDS = 40  # of requests
    TOKENS = 12

    def __init__(self, requests: int, clients: int = 16):
        self.known = {kind: ask(self.body(kind)).content for kind in range(self.KINDS)}
        self.requests = requests
        self.done = 0
        self.cut = 0  # streams that had begun when their replica was lost, and said so at their end
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, args=(range(i, requests, clients),))
                         for i in range(clients)]

    def body(self, kind: int, stream: bool = False) -> dict:
        return question(f"Question {kind}", stream=stream, max_tokens=self.TOKENS)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def _client(self, numbers: range) -> None:
        for number in numbers:
            kind = number * 7919 % self.KINDS
            is_stream = number % 4 == 0
            problem, is_cut = "", False
            try:
                answer = ask(self.body(kind, is_stream))
                is_cut = is_stream and "the replica was lost" in answer.text
                if not is_cut and answer.content != self.known[kind]:
                    problem = f"another answer: {answer.content}"
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                problem = repr(error)
            with self._lock:
                self.done += 1
                self.cut += is_cut
                if problem:
                    self.wrong.append(f"request {number}: {problem}")
