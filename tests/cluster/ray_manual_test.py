#!/usr/bin/env python3
"""The lines of docs/cluster.md about Ray, as a reader types them, with two processes on this
machine for the two hosts.

    ray_manual_test.py [TEST...]

Each line of a block is run here, or stands in NOT_RUN with the reason.
"""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import unittest
from pathlib import Path

from ray_cluster import FOLDER, free_port, model, servers, wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
PLACE = Path(FOLDER.name)
BIN = Path(sys.executable).parent
#: Beginnings of lines that are not run, and why.
NOT_RUN = {
    "podman ": "makes an image of Debian",
    "kubectl ": "wants a cluster of Kubernetes; tests/cluster/kubernetes_test.py",
    "curl -H": "asks that cluster",
    "mpirun ": "tests/mpi/mpi_test.py runs them",
    "scp ": "both hosts are this machine",
}
#: The beginning of a block that a command prints.
PRINTED = "8 x H200"


def blocks(language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]


def lines_with(word: str) -> list[str]:
    return [line for block in blocks() for line in block.splitlines() if line.startswith(word)]


class Lines(unittest.TestCase):
    """One test, as the lines follow each other."""

    def setUp(self) -> None:
        for name in ("models", "hosts"):
            (PLACE / name).mkdir()
        for name, seed in (("first", "1"), ("second", "2")):
            model("llama", f"models/{name}", "--format", "bf16", "--seed", seed)
        shutil.copytree(model(), PLACE / "model")
        (PLACE / "questions.jsonl").write_text(json.dumps(
            {"messages": [{"role": "user", "content": "Why?"}]}) + "\n")
        self.port = free_port()
        self.web = free_port()
        self.ran: set[str] = set()
        self.hosts: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}",
                            "PYTHONWARNINGS": "ignore", "HOME": str(PLACE),
                            "RAY_TMPDIR": str(PLACE / "hosts")}
        del self.environment["RAY_AUTH_TOKEN"]

    def tearDown(self) -> None:
        for host in reversed(self.hosts):
            host.terminate()
        for host in self.hosts:
            try:
                host.wait(30)
            except subprocess.TimeoutExpired:
                host.kill()
                host.wait()

    def here(self, line: str) -> str:
        """The line with what this machine has."""
        self.ran.add(line)
        for written, meant in (("host1:6379", f"127.0.0.1:{self.port}"),
                               ("--port=6379", f"--port={self.port}"),
                               ("localhost:8000", f"localhost:{self.web}"),
                               ("/srv/models/Qwen3-8B-AWQ", "./model"), (" --gpus 1", ""),
                               ("subbyte plan", f"{sys.executable} -m subbyte plan")):
            line = line.replace(written, meant)
        return line

    def start(self, line: str, *more: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*shlex.split(self.here(line)), *more], cwd=PLACE, env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.hosts.append(process)
        return process

    def run_line(self, line: str, *more: str) -> str:
        command = " ".join([self.here(line), *more])
        found = subprocess.run(["bash", "-c", command], cwd=PLACE, env=self.environment,
                               capture_output=True, text=True, timeout=240)
        self.assertEqual(found.returncode, 0, f"{command}\n{found.stdout[-2000:]}{found.stderr}")
        return found.stdout

    def is_up(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def test_lines(self) -> None:
        self.two_hosts()
        self.jobs()
        self.one_host()
        typed = [block for block in blocks() if not block.startswith(PRINTED)]
        for line in (line for block in typed for line in block.splitlines()):
            reason = any(line.startswith(beginning) for beginning in NOT_RUN)
            self.assertTrue(line in self.ran or reason, line)

    def two_hosts(self) -> None:
        few = ("--num-cpus=2", "--block")
        board = free_port()
        self.environment["RAY_DASHBOARD_ADDRESS"] = f"http://127.0.0.1:{board}"
        for line in lines_with("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = value
            self.ran.add(line)
        self.run_line(lines_with("ray get-auth-token")[0])
        self.start(lines_with("ray start --head")[0], *few, f"--dashboard-port={board}")
        wait_until(self.is_up)
        self.start(lines_with("ray start --address")[0], *few)
        self.environment["RAY_ADDRESS"] = f"127.0.0.1:{self.port}"
        [line] = [line for line in lines_with("python -m subbyte.ray serve") if "--detach" in line]
        self.run_line(line.replace(" -- ", f" --port {self.web} -- "))
        self.ran.add(line)
        self.assertEqual(len(servers()), 2)
        answer = json.loads(self.run_line(lines_with("curl localhost")[0]))
        self.assertEqual(answer["object"], "chat.completion")
        [block] = [block for block in blocks("python") if "Settings" in block]
        self.run_python(block)
        wait_until(lambda: len(servers()) == 2)
        self.assertIn("RUNNING", self.run_line(lines_with("serve status")[0]))
        self.run_line(lines_with("serve shutdown")[0])
        wait_until(lambda: not servers())
        line = lines_with("serve run")[0]
        process = self.start(line.replace("replicas=3", "replicas=2"))
        self.ran.add(line)
        wait_until(lambda: len(servers()) == 2)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        wait_until(lambda: not servers())

    def jobs(self) -> None:
        for job in ("quantize", "convert", "verify"):
            [line] = lines_with(f"python -m subbyte.ray {job}")
            rows = [json.loads(row) for row in self.run_line(line).splitlines()]
            self.assertEqual([row["error"] for row in rows], [None, None])
        self.run_line(lines_with("subbyte plan")[0])
        self.run_line(lines_with("python -m subbyte.ray answer")[0])
        for block in blocks("python"):
            if "Settings" not in block:  # that one is run with the servers
                self.assertNotIn("Error", self.run_python(block))
        self.assertEqual(len(list((PLACE / "other").iterdir())), 2)
        answers = [json.loads(line) for file in (PLACE / "answers").iterdir()
                   for line in file.read_text().splitlines()]
        self.assertEqual([answer["error"] for answer in answers], [None])

    def one_host(self) -> None:
        """The command that starts its own cluster, and Ray's own one for the application."""
        self.tearDown()
        self.hosts.clear()
        del self.environment["RAY_ADDRESS"]
        self.environment["RAY_TMPDIR"] = str(PLACE)  # nothing says there where the hosts were
        [line] = [line for line in lines_with("python -m subbyte.ray serve") if "-- " not in line]
        process = self.start(line, "--port", str(self.web), "--cpus", "0.5")
        wait_until(lambda: len(servers()) == 3, 120)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)
        wait_until(lambda: not servers())

    def run_python(self, text: str) -> str:
        found = subprocess.run([sys.executable, "-c", text], cwd=PLACE, env=self.environment,
                               capture_output=True, text=True, timeout=240)
        self.assertEqual(found.returncode, 0, text + found.stderr)
        return found.stdout


if __name__ == "__main__":
    unittest.main()
