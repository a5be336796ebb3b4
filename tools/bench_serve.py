#!/usr/bin/env python3
"""Measures `subbyte serve` from outside, with Python's standard library alone.

    bench_serve.py PROGRAM MODEL [OPTION...] [-- SERVE-OPTION...]
    bench_serve.py --address http://host:8000 [OPTION...]

A row for each number of clients, prompt and share: requests of random tokens, streamed, one after
the other for each client, ignore_eos, for --seconds after --warm. Tokens/s are those that the
server counted in that time; "first" is from a request to its first chunk, "between" from chunk to
chunk. CPU is that of the threads for connections and bodies, for each token. --overhead measures
one idle client instead: from the last byte of a request to the first of its answer, without the
engine's.

examples:
    bench_serve.py build/release/app/subbyte ./model --clients 1,4,16,64,256 -- --parallel 256
    bench_serve.py build/release/app/subbyte ./model --prompt 1024 --shared 0,0.9 --output 32
    bench_serve.py build/release/app/subbyte ./model --overhead
"""
from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

THREADS = ("connections", "reader")  # of the server, whose CPU is counted
OVERHEAD_REQUESTS = 2000


def percentile(values: list[float], share: float) -> float:
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Server:
    """The program with a model, or one that runs elsewhere."""

    def __init__(self, arguments: argparse.Namespace):
        self.process = None
        self.address = arguments.address
        if self.address is None:
            self.process = subprocess.Popen(
                [arguments.program, "serve", arguments.model, "--port", "0", "--log", "none",
                 *arguments.options], stderr=subprocess.PIPE, text=True)
            for line in self.process.stderr:
                if found := re.search(r"ready on (\S+)", line):
                    self.address = found[1]
                    break
                print(line, end="", file=sys.stderr)
            if self.address is None:
                raise SystemExit("the server did not start")
        url = urllib.parse.urlsplit(self.address)
        self.place = (url.hostname, url.port or 80)

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def generated(self) -> float:
        text = urllib.request.urlopen(self.address + "/metrics").read().decode()
        return float(re.search(r":generation_tokens_total\{.*\} (\S+)", text)[1])

    def cpu_seconds(self) -> float:
        """Of the threads that do not compute; nan where it runs elsewhere."""
        if self.process is None:
            return float("nan")
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().strip() in THREADS:
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


class Client(asyncio.Protocol):
    """Asks again whenever an answer has ended."""

    def __init__(self, make_request, end: float):
        self.make_request = make_request
        self.end = end
        self.over = asyncio.get_running_loop().create_future()
        self.firsts: list[tuple[float, float]] = []  # when, seconds
        self.gaps: list[tuple[float, float]] = []
        self.errors = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask()

    def ask(self) -> None:
        if time.perf_counter() >= self.end:
            self.transport.close()
            return
        self.has_first = False
        self.last = time.perf_counter()
        self.rest = b""
        self.transport.write(self.make_request())

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        count = data.count(b"data: {")
        if count:
            (self.gaps if self.has_first else self.firsts).append((now, now - self.last))
            self.gaps.extend([(now, 0.0)] * (count - 1))
            self.has_first = True
            self.last = now
        if b"HTTP/1.1 " in data and b"HTTP/1.1 200" not in data:
            self.errors += 1
            self.transport.close()
        elif (self.rest + data).endswith(b"0\r\n\r\n"):
            self.ask()
        self.rest = data[-5:]

    def connection_lost(self, _: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


def request_maker(row: dict, seed: int):
    choose = random.Random(seed)
    size = row["prompt"]
    num_shared = int(size * row["shared"])
    shared = random.Random(7).choices(range(10, 250), k=num_shared)

    def make() -> bytes:
        prompt = shared + choose.choices(range(10, 250), k=size - num_shared)
        body = json.dumps({"prompt": prompt, "max_tokens": row["output"], "ignore_eos": True,
                           "temperature": row["temperature"], "stream": True}).encode()
        return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
    return make


def run_clients(place: tuple[str, int], row: dict, numbers: list[int], begin: float, end: float,
                results) -> None:
    """Some of the clients, in a process of their own."""
    async def run() -> list[Client]:
        loop = asyncio.get_running_loop()
        clients = []
        for number in numbers:
            maker = request_maker(row, number + row["clients"] * 1000)
            _, client = await loop.create_connection(lambda made=maker: Client(made, end), *place)
            clients.append(client)
        await asyncio.wait([client.over for client in clients],
                           timeout=end - time.perf_counter() + 60)
        return clients

    clients = asyncio.run(run())
    chosen = [[value for client in clients for when, value in getattr(client, name)
               if begin <= when < end] for name in ("firsts", "gaps")]
    results.put((*chosen, sum(client.errors for client in clients)))


def measure(server: Server, row: dict, arguments: argparse.Namespace) -> dict:
    begin = time.perf_counter() + arguments.warm
    end = begin + arguments.seconds
    results = multiprocessing.Queue()
    num_processes = min(arguments.processes, row["clients"])
    processes = [multiprocessing.Process(target=run_clients, args=(
        server.place, row, list(range(i, row["clients"], num_processes)), begin, end, results))
        for i in range(num_processes)]
    for process in processes:
        process.start()
    time.sleep(begin - time.perf_counter())
    before = (server.generated(), server.cpu_seconds(), time.perf_counter())
    time.sleep(end - time.perf_counter())
    after = (server.generated(), server.cpu_seconds(), time.perf_counter())
    parts = [results.get() for _ in processes]
    for process in processes:
        process.join()
    firsts, gaps = ([value for part in parts for value in part[i]] for i in (0, 1))
    tokens = after[0] - before[0]
    return {**row, "tokens_per_second": tokens / (after[2] - before[2]), "requests": len(firsts),
            "first_p50": percentile(firsts, .5), "first_p99": percentile(firsts, .99),
            "between_p50": percentile(gaps, .5), "between_p99": percentile(gaps, .99),
            "cpu_per_token": (after[1] - before[1]) / max(tokens, 1),
            "errors": sum(part[2] for part in parts)}


def print_row(row: dict) -> None:
    print(f"|{row['clients']}|{row['prompt']}|{100 * row['shared']:.0f} %|"
          f"{row['tokens_per_second']:.0f}|{1000 * row['first_p50']:.1f}|"
          f"{1000 * row['first_p99']:.1f}|{1000 * row['between_p50']:.2f}|"
          f"{1000 * row['between_p99']:.2f}|{1e6 * row['cpu_per_token']:.0f}|{row['requests']}|"
          f"{row['errors']}|", flush=True)


def measure_overhead(server: Server) -> list[tuple[str, list[float]]]:
    """One client, one request at a time, over one connection."""
    chat = {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    kinds = (("GET /health", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"}"),
             ("its tokens counted", post("/v1/chat/completions/input_tokens", chat), b"}"),
             ("a streamed chat up to its head",
              post("/v1/chat/completions", {**chat, "max_tokens": 1, "stream": True}),
              b"\r\n0\r\n\r\n"))
    answers = []
    with socket.create_connection(server.place) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, request, end in kinds:
            seconds = []
            for _ in range(OVERHEAD_REQUESTS):
                connection.sendall(request)
                begin = time.perf_counter()
                data = connection.recv(65536)
                seconds.append(time.perf_counter() - begin)
                while not data.endswith(end):
                    data += connection.recv(65536)
            answers.append((name, seconds[100:]))
    return answers


def post(path: str, body: dict) -> bytes:
    text = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
            ).encode() + text


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog=__doc__[__doc__.index("examples:"):],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--address", help="of a server that runs")
    parser.add_argument("--clients", type=numbers, default=[1, 4, 16, 64, 256])
    parser.add_argument("--prompt", type=numbers, default=[512], help="tokens, with commas")
    parser.add_argument("--shared", type=numbers, default=[0], help="shares of a prompt")
    parser.add_argument("--output", type=int, default=128, help="tokens")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm", type=float, default=10)
    parser.add_argument("--processes", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 4)),
                        help="that the clients are divided over")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--json", help="a file for all numbers")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.options = words[at + 1:]
    if arguments.address is None and arguments.model is None:
        parser.error("expected PROGRAM and MODEL, or --address")
    server = Server(arguments)
    try:
        rows = []
        if arguments.overhead:
            print("|request|p50 ms|p99 ms|\n|---|---|---|")
            for name, seconds in measure_overhead(server):
                rows.append({"request": name, "p50": percentile(seconds, .5),
                             "p99": percentile(seconds, .99)})
                print(f"|{name}|{1000 * rows[-1]['p50']:.3f}|{1000 * rows[-1]['p99']:.3f}|")
        else:
            print("|clients|prompt|shared|tokens/s|first p50 ms|p99|between p50 ms|p99|"
                  "CPU us/token|requests|errors|\n|" + "---|" * 11)
            for prompt in arguments.prompt:
                for shared in arguments.shared:
                    for clients in arguments.clients:
                        rows.append(measure(server, {
                            "clients": int(clients), "prompt": int(prompt), "shared": shared,
                            "output": arguments.output, "temperature": arguments.temperature},
                            arguments))
                        print_row(rows[-1])
    finally:
        server.close()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
