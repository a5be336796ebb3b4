#!/usr/bin/env python3
"""Many clients of one `subbyte serve` at once: each answer is that of its request alone, whoever
else is served, goes away or sends nonsense; afterwards nothing is held.

    load.py PROGRAM [--requests N] [--clients N] [--memory]

--memory: the resident memory after all requests is within 1 % of that after the first 1,000.
"""
from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from client import Server, read_all, request_bytes, wait_until

CANCELLED = 0.10
BROKEN = 0.02
SLOW = 0.02  # who take their answer in small parts
KINDS = 40  # of requests whose answers are known


def body_of(kind: int) -> dict:
    choose = random.Random(kind)
    body = {"prompt": [choose.randrange(300) for _ in range(choose.choice([1, 7, 60, 200]))],
            "max_tokens": choose.choice([1, 5, 30]), "seed": kind, "ignore_eos": True,
            "temperature": choose.choice([0, 0.7, 1.5]), "n": choose.choice([1, 1, 1, 2]),
            "stream": kind % 2 == 0}
    if kind % 5 == 0:
        body["presence_penalty"] = 0.5
    return body


def read_slowly(connection: socket.socket) -> bytes:
    answer = b""
    while part := connection.recv(500):
        answer += part
        time.sleep(0.002)
    return answer


def ask(server: Server, body: dict, read: Callable = read_all) -> list[str]:
    """The texts of an answer, by their choices."""
    with server.connect() as connection:
        connection.settimeout(Server.longest)
        connection.sendall(request_bytes("/v1/completions", body, "Connection: close"))
        head, _, rest = read(connection).partition(b"\r\n\r\n")
    if b" 200 OK" not in head.split(b"\r\n")[0]:
        raise RuntimeError(head + rest)
    texts = [""] * body["n"]
    if body["stream"]:
        lines = [line for line in rest.split(b"\n") if line.startswith(b"data: {")]
        answers = [json.loads(line[6:]) for line in lines]
    else:
        answers = [json.loads(rest)]
    for answer in answers:
        for choice in answer["choices"]:
            texts[choice["index"]] += choice["text"]
    return texts


def go_away(server: Server, body: dict) -> None:
    with server.connect() as connection:
        connection.sendall(request_bytes("/v1/completions", body))
        if body["stream"]:
            connection.recv(1)


def send_nonsense(server: Server, choose: random.Random) -> None:
    text = choose.choice([b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"\x16\x03\x01",
                          b"GET / HTTP/1.1\n\n", bytes(choose.randrange(256) for _ in range(99)),
                          request_bytes("/v1/completions", {"prompt": 7}, "Connection: close")])
    with server.connect() as connection:
        try:
            connection.sendall(text + b"\r\n\r\n")
            read_all(connection)
        except ConnectionError:
            pass


def resident(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


class Load:
    def __init__(self, server: Server, known: list[list[str]]):
        self.server = server
        self.known = known
        self.wrong: list[str] = []

    def client(self, numbers: range) -> None:
        for number in numbers:
            choose = random.Random(number * 7919)
            kind = choose.randrange(KINDS)
            lot = choose.random()
            try:
                if lot < BROKEN:
                    send_nonsense(self.server, choose)
                elif lot < BROKEN + CANCELLED:
                    go_away(self.server, {**body_of(kind), "max_tokens": 300})
                else:
                    is_slow = lot < BROKEN + CANCELLED + SLOW
                    texts = ask(self.server, body_of(kind), read_slowly if is_slow else read_all)
                    if texts != self.known[kind]:
                        self.wrong.append(f"request {number} of kind {kind}: {texts}")
            except Exception as problem:  # all are counted, and the others go on
                self.wrong.append(f"request {number} of kind {kind}: {problem!r}")

    def run(self, first: int, count: int, clients: int) -> None:
        threads = [threading.Thread(target=self.client,
                                    args=(range(first + i, first + count, clients),))
                   for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: self.server.running() == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--longest", type=int, default=60, help="seconds that a client waits")
    arguments = parser.parse_args()
    Server.program = arguments.program
    Server.longest = arguments.longest
    with Server("qwen3", "--parallel", "16", "--batch-invariant", "--log", "none") as server:
        load = Load(server, [ask(server, body_of(kind)) for kind in range(KINDS)])
        warm = min(1000, arguments.requests)
        load.run(0, warm, arguments.clients)
        memory = resident(server)
        load.run(warm, arguments.requests - warm, arguments.clients)
        status = server.get("/status").json
        if status["cache"]["held_bytes"] != 0:
            load.wrong.append(f"held at the end: {status['cache']}")
        more = resident(server) / memory - 1
        if arguments.memory and more > 0.01:
            load.wrong.append(f"{100 * more:.1f} % more memory than after {warm} requests")
        if (code := server.stop()) != 0:
            load.wrong.append(f"exit code {code}\n{''.join(server.lines)}")
    print("\n".join(load.wrong[:20]), file=sys.stderr)
    print(f"{arguments.requests} requests of {arguments.clients} clients, {len(load.wrong)} wrong, "
          f"{100 * more:+.2f} % memory")
    return 1 if load.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
