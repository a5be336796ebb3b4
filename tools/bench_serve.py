#!/usr/bin/env python3
"""Measures `subbyte serve` from outside, with Python's standard library alone.

    bench_serve.py PROGRAM MODEL [OPTION...] [-- SERVE-OPTION...]
    bench_serve.py PROGRAM MODEL --peer LLAMA-SERVER FILE.gguf [OPTION...] [-- SERVE-OPTION...]
    bench_serve.py --address http://host:8000 [OPTION...]

A row for each number of clients, prompt and share: requests of random tokens, streamed, one after
the other for each client, ignore_eos, for --seconds after --warm. Tokens/s are those of the
answers, each spread evenly from its first chunk to its end; "first" is from a request to its first
chunk, "between" from chunk to chunk. CPU is that of the threads that do not compute, for each token
(of llama-server all but its first thread, so with a GPU alone). --late prompts come one second
apart while the others are answered, and "between" is of those others then. --peer: each row a
second time with llama-server of as many slots. --overhead measures one idle client instead: from
the last byte of a request to the first of its answer, without the engine's.

examples:
    bench_serve.py build/release/app/subbyte ./model --clients 1,4,16,64,256 -- --parallel 256
    bench_serve.py build/release/app/subbyte ./model --prompt 1024 --shared 0,0.9 --output 32
    bench_serve.py build/release/app/subbyte ./model --clients 64 --late 8 -- --parallel 72
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
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

OVERHEAD_REQUESTS = 2000
LATE_PROMPT = 8192  # tokens
LAST_CHUNK = b"\r\n0\r\n\r\n"  # heads may end in "0\r\n\r\n", too
START_SECONDS = 240
TABLE_HEAD = ("|server|clients|prompt|shared|tokens/s|first p50 ms|p99|between p50 ms|p99|"
              "CPU us/token|requests|errors|\n|" + "---|" * 12)
Span = tuple[float, float]


def percentile(values: list[float], share: float) -> float:
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Server:
    """A program that answers until close(), or one that runs elsewhere."""

    def __init__(self, address: str | None):
        self.address = address
        self.process: subprocess.Popen | None = None

    @property
    def place(self) -> tuple[str, int]:
        url = urllib.parse.urlsplit(self.address)
        return (url.hostname, url.port or 80)

    def is_counted(self, task: Path) -> bool:
        """Whether a thread is one that does not compute."""
        return (task / "comm").read_text().strip() in ("connections", "reader")

    def cpu_seconds(self) -> float:
        """Of the threads that do not compute; nan where it runs elsewhere."""
        if self.process is None:
            return float("nan")
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if self.is_counted(task):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


class Ours(Server):
    """`subbyte serve` with a model."""

    def __init__(self, program: str, model: str, options: list[str]):
        super().__init__(None)
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--log", "none", *options],
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"ready on (\S+)", line):
                self.address = found[1]
                return
            print(line, end="", file=sys.stderr)
        raise SystemExit("the server did not start")


class Theirs(Server):
    """llama-server with a GGUF file, flash attention and a slot for each client."""

    def __init__(self, program: str, file: str, options: list[str]):
        with socket.socket() as one:  # a port that is free in a moment
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        super().__init__(f"http://127.0.0.1:{port}")
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program, "-m", file, "--port", str(port), "-fa", "on", "--no-webui", *options],
            stdout=self.log, stderr=self.log, text=True)
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                self.log.seek(0)
                raise SystemExit("llama-server did not start: " + self.log.read()[-2000:])
            time.sleep(0.1)

    def is_ready(self) -> bool:
        try:
            return urllib.request.urlopen(self.address + "/health").status == 200
        except OSError:
            return False

    def is_counted(self, task: Path) -> bool:
        return int(task.name) != self.process.pid  # the first one has the model


class Client(asyncio.Protocol):
    """Asks again whenever an answer has ended."""

    def __init__(self, place: tuple[str, int], make_request, end: float):
        self.place = place
        self.make_request = make_request
        self.end = end
        self.over = asyncio.get_running_loop().create_future()
        self.firsts: list[tuple[float, float]] = []  # when, seconds
        self.gaps: list[tuple[float, float]] = []
        self.answers: list[Span] = []  # from the first chunk to the end
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
        elif (self.rest + data).endswith(LAST_CHUNK):
            if self.firsts:
                self.answers.append((self.firsts[-1][0], now))
            self.ask()
        self.rest = (self.rest + data)[-len(LAST_CHUNK):]

    def connection_lost(self, _: Exception | None) -> None:
        self.over.get_loop().create_task(self.go_on())

    async def go_on(self) -> None:
        """A connection is for so many requests with some servers."""
        if time.perf_counter() < self.end and self.errors == 0:
            try:
                await self.over.get_loop().create_connection(lambda: self, *self.place)
                return
            except OSError:
                self.errors += 1
        if not self.over.done():
            self.over.set_result(None)


def body_of(prompt: list[int], output: int, temperature: float = 1.0, top_k: int = 40) -> dict:
    """How tokens are drawn is said whole, as what is not said each server has its own of."""
    return {"prompt": prompt, "max_tokens": output, "ignore_eos": True, "stream": True,
            "temperature": temperature, "top_k": top_k, "top_p": 1.0, "min_p": 0.0}


def request_maker(row: dict, seed: int):
    choose = random.Random(seed)
    size = row["prompt"]
    num_shared = int(size * row["shared"])
    shared = random.Random(7).choices(range(10, 250), k=num_shared)

    def make() -> bytes:
        prompt = shared + choose.choices(range(10, 250), k=size - num_shared)
        return post("/v1/completions", body_of(
            prompt, row["output"], row["temperature"], row["top_k"]))
    return make


def ask_once(place: tuple[str, int], request: bytes) -> float:
    """Seconds to the first chunk of one answer, which is read to its end."""
    with socket.create_connection(place) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        connection.sendall(request)
        data = b""
        seconds = float("nan")
        while not data.endswith(LAST_CHUNK):
            part = connection.recv(65536)
            if not part:
                raise SystemExit(f"no answer: {data[-500:]!r}")
            data += part
            if seconds != seconds and b"data: {" in data:
                seconds = time.perf_counter() - begin
    return seconds


def run_clients(place: tuple[str, int], row: dict, numbers: list[int], begin: float, end: float,
                results) -> None:
    """Some of the clients, in a process of their own."""
    async def run() -> list[Client]:
        loop = asyncio.get_running_loop()
        clients = []
        for number in numbers:
            maker = request_maker(row, number + row["clients"] * 1000)
            clients.append(Client(place, maker, end))
            await loop.create_connection(lambda made=clients[-1]: made, *place)
        await asyncio.wait([client.over for client in clients],
                           timeout=end - time.perf_counter() + 60)
        return clients

    clients = asyncio.run(run())
    chosen = [[value for client in clients for when, value in getattr(client, name)
               if begin <= when < end] for name in ("firsts", "gaps")]
    answers = [span for client in clients for span in client.answers]
    results.put((*chosen, answers, sum(client.errors for client in clients)))


def tokens_within(answers: list[Span], output: int, begin: float, end: float) -> float:
    """Of answers of so many tokens, each spread evenly from its first chunk to its end."""
    inside = (max(0.0, min(last, end) - max(first, begin)) / max(last - first, 1e-9)
              for first, last in answers)
    return output * sum(inside)


def send_late(server: Server, count: int) -> None:
    """So many long prompts, one second apart."""
    choose = random.Random(11)
    for _ in range(count):
        prompt = choose.choices(range(10, 250), k=LATE_PROMPT)
        request = post("/v1/completions", body_of(prompt, 4))
        threading.Thread(target=ask_once, args=(server.place, request), daemon=True).start()
        time.sleep(1)


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
    cpu = server.cpu_seconds()
    send_late(server, arguments.late)
    time.sleep(max(0.0, end - time.perf_counter()))
    cpu = server.cpu_seconds() - cpu
    parts = [results.get() for _ in processes]
    for process in processes:
        process.join()
    firsts, gaps, answers = ([value for part in parts for value in part[i]] for i in (0, 1, 2))
    tokens = tokens_within(answers, row["output"], begin, end)
    return {**row, "tokens_per_second": tokens / (end - begin), "requests": len(firsts),
            "first_p50": percentile(firsts, .5), "first_p99": percentile(firsts, .99),
            "between_p50": percentile(gaps, .5), "between_p99": percentile(gaps, .99),
            "cpu_per_token": cpu / max(tokens, 1), "errors": sum(part[3] for part in parts)}


def print_row(row: dict) -> None:
    print(f"|{row['server']}|{row['clients']}|{row['prompt']}|{100 * row['shared']:.0f} %|"
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


def peer_options(clients: int, size: int, arguments: argparse.Namespace) -> list[str]:
    """For slots of `size` tokens, and prompts that come late."""
    slots = clients + arguments.late
    if arguments.late:
        size = clients * size + arguments.late * (LATE_PROMPT + 64)
        return ["-np", str(slots), "-kvu", "-c", str(size), *arguments.peer_options]
    return ["-np", str(slots), "-c", str(slots * (size + 64)), *arguments.peer_options]


def run_rows(arguments: argparse.Namespace) -> list[dict]:
    """A row for each number of clients, prompt and share, and the same of the other server."""
    print(TABLE_HEAD)
    rows = []
    for prompt in arguments.prompt:
        for shared in arguments.shared:
            for clients in arguments.clients:
                row = {"clients": int(clients), "prompt": int(prompt), "shared": shared,
                       "output": arguments.output, "temperature": arguments.temperature,
                       "top_k": arguments.top_k}
                for name in ("ours", "theirs") if arguments.peer else ("ours",):
                    server = start(name, row, arguments)
                    try:
                        rows.append(measure(server, {"server": name, **row}, arguments))
                        print_row(rows[-1])
                    finally:
                        server.close()
    return rows


def start(name: str, row: dict, arguments: argparse.Namespace) -> Server:
    if name == "theirs":
        options = peer_options(row["clients"], row["prompt"] + row["output"], arguments)
        return Theirs(*arguments.peer, options)
    if arguments.address is not None:
        return Server(arguments.address)
    return Ours(arguments.program, arguments.model, arguments.options)


def run_overhead(arguments: argparse.Namespace) -> list[dict]:
    server = start("ours", {}, arguments)
    rows = []
    print("|request|p50 ms|p99 ms|\n|---|---|---|")
    try:
        for name, seconds in measure_overhead(server):
            rows.append({"request": name, "p50": percentile(seconds, .5),
                         "p99": percentile(seconds, .99)})
            print(f"|{name}|{1000 * rows[-1]['p50']:.3f}|{1000 * rows[-1]['p99']:.3f}|")
    finally:
        server.close()
    return rows


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog=__doc__[__doc__.index("examples:"):],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--address", help="of a server that runs")
    parser.add_argument("--peer", nargs=2, metavar=("LLAMA-SERVER", "FILE"),
                        help="measured in turns with ours")
    parser.add_argument("--peer-options", type=str.split, default=[], help="for llama-server")
    parser.add_argument("--clients", type=numbers, default=[1, 4, 16, 64, 256])
    parser.add_argument("--prompt", type=numbers, default=[512], help="tokens, with commas")
    parser.add_argument("--shared", type=numbers, default=[0], help="shares of a prompt")
    parser.add_argument("--output", type=int, default=128, help="tokens")
    parser.add_argument("--late", type=int, default=0,
                        help=f"prompts of {LATE_PROMPT} tokens that come meanwhile")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=40, help="0: drawn from all tokens")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm", type=float, default=10)
    parser.add_argument("--processes", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 4)),
                        help="that the clients are divided over")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--json", help="a file for all numbers")
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.options = words[at + 1:]
    if arguments.address is None and arguments.model is None:
        parser.error("expected PROGRAM and MODEL, or --address")
    return arguments


def main() -> int:
    arguments = parse(sys.argv[1:])
    rows = run_overhead(arguments) if arguments.overhead else run_rows(arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
