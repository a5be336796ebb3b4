#!/usr/bin/env python3
"""`subbyte serve` from outside: clients that come and go, the queue, the log, its end.

    operations_test.py PROGRAM [TEST...]
"""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import unittest
from pathlib import Path

from client import (FOLDER, HELLO, PATIENCE, TEXT, Server, main, model, read_all, request_bytes,
                    wait_until)


class Operations(unittest.TestCase):
    # Longer than any test waits.
    LONG = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True, "n": 128}

    def test_a_client_that_goes_away_ends_its_request(self) -> None:
        with Server("qwen3", "--parallel", "1", "--log", "json") as server:
            for stream in (True, False):
                first = server.connect()
                first.sendall(request_bytes(TEXT, {**self.LONG, "stream": stream}))
                queued = server.connect()
                queued.sendall(request_bytes(TEXT, self.LONG))
                queued.recv(1)  # it was taken, and so was the one before it
                wait_until(lambda: server.running() > 1)
                queued.close()
                first.close()
                wait_until(lambda: server.running() == 0)
            self.assertEqual(server.stop(), 0)
            ends = [json.loads(line) for line in server.lines if line.startswith("{")]
            gone = [line for line in ends if line.get("end") == "client_gone"]
            self.assertEqual(len(gone), 4)
            self.assertTrue(all(line["completion_tokens"] < 128 * 2000 for line in gone))
            self.assertFalse(any("Once" in line for line in server.lines))

    def test_a_full_queue(self) -> None:
        with Server("qwen3", "--parallel", "1", "--max-num-queued-reqs", "1") as server:
            held = [server.connect() for _ in range(2)]
            for connection in held:
                connection.sendall(request_bytes(TEXT, self.LONG))
                connection.recv(1)
                wait_until(lambda: server.get("/status").json["running"] > 0)  # it left the queue
            wait_until(lambda: server.get("/ready").status == 503)
            answer = server.post(TEXT, {"prompt": "a"})
            self.assertEqual((answer.status, answer.error["code"]), (429, "server.queue_full"))
            self.assertIn("Retry-After", answer.headers)
            for connection in held:
                connection.close()
            wait_until(lambda: server.running() == 0)
            self.assertEqual(server.post(TEXT, {"prompt": "a"}).status, 200)

    def test_a_queue_of_many_tokens(self) -> None:
        options = ("--parallel", "1", "--max-num-queued-tokens", "100")
        with Server("qwen3", *options) as server, server.connect() as first, \
                server.connect() as second:
            for connection in (first, second):
                connection.sendall(request_bytes(TEXT, self.LONG))
                connection.recv(1)
                wait_until(lambda: server.get("/status").json["running"] > 0)
            answer = server.post(TEXT, {"prompt": [1] * 200})
            self.assertEqual((answer.status, answer.error["code"]), (429, "server.queue_full"))

    def test_who_waits_for_too_long(self) -> None:
        with Server("qwen3", "--parallel", "1", "--max-queue-seconds", "1") as server, \
                server.connect() as first:
            first.sendall(request_bytes(TEXT, self.LONG))
            wait_until(lambda: server.get("/status").json["running"] > 0)
            answer = server.post(TEXT, {"prompt": "a"})
            self.assertEqual((answer.status, answer.error["code"]), (503, "server.queue_time"))
            self.assertIn("Retry-After", answer.headers)

    def test_a_line_of_the_log_says_how_it_went(self) -> None:
        with Server("qwen3", "--log", "json") as server:
            for _ in range(2):
                server.post(TEXT, {"prompt": [5] * 200, "max_tokens": 3, "ignore_eos": True},
                            x_request_id="mine")
            self.assertEqual(server.stop(), 0)
            first, line = (json.loads(line) for line in server.lines if line.startswith("{"))
            expected = {"id": "mine", "address": "127.0.0.1", "path": TEXT, "model": "qwen3",
                        "status": 200, "prompt_tokens": 200, "completion_tokens": 3,
                        "end": "length"}
            self.assertEqual({name: line[name] for name in expected}, expected)
            self.assertTrue(first["cached_tokens"] == 0 < line["cached_tokens"])
            self.assertTrue(0 <= line["queue_seconds"] <= line["first_token_seconds"]
                            <= line["seconds"], line)

    def test_a_queue_is_in_the_order_of_priorities(self) -> None:
        with Server("qwen3", "--parallel", "1", "--log", "json") as server:
            body = {"prompt": "Once", "max_tokens": 500, "ignore_eos": True}
            held = []
            for priority in (0, 0, 0, -1):  # the first is long enough for all to wait for it
                held.append(server.connect())
                held[-1].sendall(request_bytes(TEXT, {**body, "priority": priority},
                                               f"x-request-id: {len(held)}", "Connection: close"))
            for connection in held:
                self.assertIn(b" 200 ", read_all(connection))
                connection.close()
            self.assertEqual(server.stop(), 0)
            ended = [json.loads(line)["id"] for line in server.lines if line.startswith("{")]
            self.assertLess(ended.index("4"), ended.index("3"))

    def test_who_takes_no_answers_is_asked_for_nothing_more(self) -> None:
        with Server() as server, server.connect() as greedy:
            greedy.settimeout(2)
            with self.assertRaises(TimeoutError):
                for _ in range(1000):
                    greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
            self.assertLess(server.peak_bytes(), 200 << 20)
            self.assertEqual(server.get("/health").status, 200)

    def test_a_log_that_nobody_reads_keeps_nobody_waiting(self) -> None:
        with Server() as server, server.connect() as client:
            for _ in range(3000):
                client.sendall(b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b" 404 ", client.recv(65536))

    def test_a_line_of_the_log_is_one_line(self) -> None:
        with Server("qwen3", "--log-prompts") as server:
            server.post(TEXT, '{"prompt": "a",\n "max_tokens": 1}')
            self.assertEqual(server.stop(), 0)
            lines = [line for line in server.lines if "request=" in line]
            self.assertTrue(lines[0].endswith(r'\n \"max_tokens\": 1}"' + "\n"), lines)

    def test_an_end_in_order(self) -> None:
        with Server() as server, server.connect() as running:
            running.sendall(request_bytes(TEXT, {**self.LONG, "n": 2}))
            part = running.recv(65536)
            later = server.connect()
            later.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            later.recv(65536)
            server.process.send_signal(signal.SIGTERM)
            body = request_bytes(TEXT, {"prompt": "a", "max_tokens": 1})
            later.sendall(body)
            answer = later.recv(65536)
            while b" 200 " in answer:  # the signal is on its way
                later.sendall(body)
                answer = later.recv(65536)
                self.assertTrue(answer)
            self.assertIn(b" 503 ", answer)
            self.assertIn(b"Retry-After", answer)
            text = part + read_all(running)
            self.assertIn(b"data: [DONE]", text)
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_an_end_in_haste(self) -> None:
        with Server("qwen3", "--shutdown-timeout", "0") as server, \
                server.connect() as running:
            running.sendall(request_bytes(TEXT, self.LONG))
            part = running.recv(65536)
            server.process.send_signal(signal.SIGTERM)
            text = part + read_all(running)
            self.assertIn(b"server.shutdown", text)
            self.assertNotIn(b"[DONE]", text)
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_ready_while_it_ends(self) -> None:
        with Server("qwen3") as server, server.connect() as running:
            running.sendall(request_bytes(TEXT, {**self.LONG, "n": 2}))
            running.recv(65536)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.get("/ready").status == 503)
            self.assertEqual(server.get("/health").status, 200)
            self.assertEqual(server.get("/status").json["status"], "draining")

    def test_a_hangup_ends_nothing(self) -> None:
        with Server("qwen3", "--log", "none") as server:
            self.assertEqual(server.get("/health").status, 200)  # it listens to signals, too
            server.process.send_signal(signal.SIGHUP)
            self.assertIn("nothing to read again", server.process.stderr.readline())
            self.assertEqual(server.get("/health").status, 200)

    def test_it_starts_again_after_it_was_killed(self) -> None:
        path = str(Path(FOLDER.name) / "again")
        for _ in range(2):
            with Server("qwen3", "--uds", path) as server:
                server.process.kill()
                server.process.wait()
            self.assertTrue(os.path.exists(path))

    def test_a_log_on_a_full_disk(self) -> None:
        path = str(Path(FOLDER.name) / "full")
        with open("/dev/full", "w") as full, \
                subprocess.Popen([Server.program, "serve", str(model("qwen3")), "--uds", path,
                                  "--log", "json"], stderr=full) as process:
            def ask(text: bytes) -> bytes:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(path)
                    connection.sendall(text)
                    return read_all(connection)

            wait_until(lambda: os.path.exists(path))
            wait_until(lambda: b" 200 " in ask(b"GET /ready HTTP/1.0\r\n\r\n"))
            for _ in range(3):
                answer = ask(request_bytes(TEXT, {"prompt": "a"}, "Connection: close"))
                self.assertIn(b" 200 OK", answer)
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_many_clients_have_the_answers_of_one(self) -> None:
        with Server("qwen3", "--parallel", "16", "--batch-invariant") as server:
            bodies = [{"prompt": f"Story {i}", "max_tokens": 8 + i, "seed": i} for i in range(32)]
            alone = [server.post(TEXT, body).json["choices"] for body in bodies]
            connections = []
            for body in bodies:
                connection = server.connect()
                connection.sendall(request_bytes(TEXT, body, "Connection: close"))
                connections.append(connection)
            for connection, choices in zip(connections, alone):
                answer = read_all(connection).split(b"\r\n\r\n", 1)[1]
                self.assertEqual(json.loads(answer)["choices"], choices)
                connection.close()


ROOT = Path(__file__).resolve().parents[2]
NO_NGINX = shutil.which("nginx") is None
NO_SYSTEMD = shutil.which("systemd-analyze") is None


class Deployment(unittest.TestCase):
    """What docs/serve.md and packaging/ have others do."""

    @unittest.skipIf(NO_NGINX, "this machine has no nginx")
    def test_nginx_hashes_sessions(self) -> None:
        folder = Path(FOLDER.name) / "nginx"
        folder.mkdir()
        with Server("qwen3") as one, Server("qwen3") as two, Server("qwen3") as three, \
                Server("qwen3", "--port", "0") as place:
            servers = (one, two, three)
            port = place.port  # is free in a moment
            place.__exit__()
            text = (ROOT / "packaging/nginx.conf").read_text()
            for number, server in enumerate(servers, 8001):
                text = text.replace(f":{number};", f":{server.port};")
            text = text.replace("listen 8000;", f"listen 127.0.0.1:{port};")
            paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            (folder / "nginx.conf").write_text(
                f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
                f"events {{}}\nhttp {{ access_log off; {paths}\n{text} }}\n")
            command = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as proxy:
                try:
                    place.port = port
                    wait_until(lambda: self.listens(place))
                    bodies = [{**HELLO, "max_tokens": 8, "seed": i} for i in range(100)]
                    answers: list = [None] * 100

                    def ask(number: int) -> None:
                        answers[number] = place.post("/v1/chat/completions", bodies[number],
                                                     x_session_id=f"session-{number % 25}")

                    clients = [threading.Thread(target=ask, args=(i,)) for i in range(100)]
                    for client in clients:
                        client.start()
                    for client in clients:
                        client.join()
                    for body, answer in zip(bodies, answers):
                        self.assertEqual(answer.status, 200, answer.text)
                        alone = one.post("/v1/chat/completions", body).json
                        self.assertEqual(answer.json["choices"], alone["choices"])
                    counts = [server.metrics()["subbyte:time_to_first_token_seconds_count"]
                              for server in servers]
                    self.assertEqual(sum(counts), 200)
                    self.assertTrue(all(counts), counts)
                    for _ in range(9):  # one session is at one server
                        place.post("/v1/chat/completions", bodies[0], x_session_id="mine")
                    more = [server.metrics()["subbyte:time_to_first_token_seconds_count"]
                            for server in servers]
                    self.assertEqual(sorted(a - b for a, b in zip(more, counts)), [0, 0, 9])
                    page = place.post("/v1/chat/completions", bodies[0], Origin=place.address)
                    self.assertEqual(page.status, 200, page.text)
                    place.stream("/v1/chat/completions", bodies[0])
                finally:
                    proxy.terminate()

    def listens(self, place: Server) -> bool:
        try:
            place.connect().close()
        except ConnectionError:
            return False
        return True

    @unittest.skipIf(NO_SYSTEMD, "this machine has no systemd-analyze")
    def test_the_unit_is_understood(self) -> None:
        text = (ROOT / "packaging/subbyte.service").read_text()
        unit = Path(FOLDER.name) / "subbyte.service"
        unit.write_text(text.replace("=subbyte", "=" + os.path.abspath(Server.program)))
        found = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)],
                               capture_output=True, text=True)
        self.assertEqual((found.returncode, found.stderr), (0, ""))

    @unittest.skipIf(NO_SYSTEMD, "this machine has no systemd-analyze")
    def test_the_unit_takes_keys(self) -> None:
        """What its first lines have people add is understood, and comes after the unit's own."""
        text = (ROOT / "packaging/subbyte.service").read_text()
        added = re.search(r"(?:^#   .*\n)+", text[text.index("#   [Service]"):], re.MULTILINE)[0]
        unit = Path(FOLDER.name) / "subbyte-keys.service"
        text += "\n" + re.sub("^#   ", "", added, flags=re.MULTILINE)
        unit.write_text(text.replace("=subbyte", "=" + os.path.abspath(Server.program)))
        found = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)],
                               capture_output=True, text=True)
        self.assertEqual((found.returncode, found.stderr), (0, ""))

    def test_lines_of_the_document(self) -> None:
        """Each line with curl in docs/serve.md that asks localhost is answered with 200."""
        text = (ROOT / "docs/serve.md").read_text()
        lines = re.findall(r"^curl .*localhost:8000(?:.*(?:\n  .*)*)", text, re.MULTILINE)
        self.assertGreaterEqual(len(lines), 6)
        with Server("qwen3") as server:
            for line in lines:
                line = line.replace("localhost:8000", f"localhost:{server.port}")
                found = subprocess.run(["sh", "-c", line + " -sS -w '%{http_code}'"], text=True,
                                       capture_output=True, timeout=PATIENCE)
                self.assertEqual((found.stdout[-3:], found.stderr), ("200", ""), line)


if __name__ == "__main__":
    main()
