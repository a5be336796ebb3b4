#!/usr/bin/env python3
"""Slow clients of `subbyte serve` beside good ones: each slow one is closed by its limit, and none
of the good ones is refused, wrong or kept waiting.

    slow.py PROGRAM [--headers 300] [--bodies 40] [--readers 16] [--good 100]

The limits are those that there are without options, so it takes more than a minute. It prints when
the first and the last of each kind were closed, and how long the good ones took.
"""
from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import json
import sys
import time

from client import TEXT, Server, request_bytes, wait_until

PAUSE = 1.0  # seconds between two bytes of a slow client
SLACK = 5.0  # on a machine with much to do


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def dribble(server: Server, first: bytes, part: bytes) -> tuple[float, bytes]:
    """Seconds until the server ends the connection, and what it said."""
    reader, writer = await connect(server)
    begin = time.monotonic()
    writer.write(first)
    ended = asyncio.ensure_future(reader.read())
    while not ended.done():
        try:
            writer.write(part)
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.wait([ended], timeout=PAUSE)
    try:
        said = await ended
    except ConnectionError:
        said = b""
    writer.close()
    return time.monotonic() - begin, said


async def read_nothing(server: Server) -> tuple[float, bytes]:
    """The same of a client that takes none of what it asks for: answers to 3,000 requests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    begin = time.monotonic()
    writer.transport.pause_reading()
    try:
        for _ in range(3000):
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while True:
            await asyncio.sleep(PAUSE)
            writer.write(b"\r\n")
            await asyncio.wait_for(writer.drain(), PAUSE)
    except TimeoutError:
        while not writer.transport.is_closing():
            await asyncio.sleep(PAUSE / 10)
    except ConnectionError:
        pass
    writer.transport.abort()
    return time.monotonic() - begin, b""


async def ask_well(server: Server, number: int, known: str) -> float:
    begin = time.monotonic()
    reader, writer = await connect(server)
    body = {"prompt": f"Story {number % 10}", "max_tokens": 20, "seed": number % 10}
    writer.write(request_bytes(TEXT, body, "Connection: close"))
    head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b" 200 OK" not in head or json.loads(rest)["choices"][0]["text"] != known:
        raise RuntimeError(f"good request {number}: {head + rest}")
    return time.monotonic() - begin


async def run(server: Server, arguments: argparse.Namespace) -> list[str]:
    known = [server.post(TEXT, {"prompt": f"Story {i}", "max_tokens": 20, "seed": i})
             .json["choices"][0]["text"] for i in range(10)]
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    kinds = {
        "headers": ([dribble(server, head, b"X: a\r\n") for _ in range(arguments.headers)],
                    10, b" 408 "),
        "bodies": ([dribble(server, post, b"a") for _ in range(arguments.bodies)], 60, b" 408 "),
        "readers": ([read_nothing(server) for _ in range(arguments.readers)], 30, b""),
    }
    slow = {name: asyncio.gather(*clients) for name, (clients, _, _) in kinds.items()}
    await asyncio.sleep(PAUSE)
    times = []
    for number in range(arguments.good):
        times.append(await ask_well(server, number, known[number % 10]))
        await asyncio.sleep(0.05)
    wrong = []
    for name, (_, limit, answer) in kinds.items():
        ends = await slow[name]
        seconds = [end for end, _ in ends]
        print(f"{len(ends)} slow {name}: closed after {min(seconds):.1f} to {max(seconds):.1f} s, "
              f"limit {limit} s")
        # asyncio writes to closed connections a while before it learns of it.
        if min(seconds) < limit - 1 or max(seconds) > limit + SLACK:
            wrong.append(f"slow {name}: expected their end after {limit} s")
        wrong += [f"slow {name}: {said!r}" for _, said in ends if answer not in said]
    times.sort()
    print(f"{len(times)} good requests beside them: {1000 * times[len(times) // 2]:.1f} ms, the "
          f"longest {1000 * times[-1]:.1f} ms")
    if times[-1] > SLACK:
        wrong.append("a good request was kept waiting")
    return wrong


def hear_of_waiting() -> list[str]:
    """A stream that waits in the queue is told that the connection is alive."""
    body = {"prompt": "Once", "max_tokens": 2000, "n": 128, "ignore_eos": True}
    with Server("qwen3", "--parallel", "1", "--log", "none") as server, \
            server.connect() as first, server.connect() as next_one, server.connect() as second:
        for busy in (first, next_one):
            busy.sendall(request_bytes(TEXT, body))
        wait_until(lambda: server.running() > 0)
        begin = time.monotonic()
        second.sendall(request_bytes(TEXT, {**body, "stream": True}))
        said = b""
        while b"\n\n" not in said and (part := second.recv(65536)):
            said += part
        seconds = time.monotonic() - begin
    print(f"a stream that waits: a ping after {seconds:.1f} s")
    is_ping = b": ping\n\n" in said and b"data:" not in said
    return [] if is_ping and 14 < seconds < 15 + SLACK else [f"a stream that waits: {said!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    for name, number in (("headers", 300), ("bodies", 40), ("readers", 16), ("good", 100)):
        parser.add_argument(f"--{name}", type=int, default=number)
    arguments = parser.parse_args()
    Server.program = arguments.program
    with Server("qwen3", "--batch-invariant", "--log", "none") as server, \
            concurrent.futures.ThreadPoolExecutor() as beside:
        waiting = beside.submit(hear_of_waiting)
        wrong = asyncio.run(run(server, arguments)) + waiting.result()
        limits = {name: value for name, value in server.limits().items() if value}
        print("limits that were hit:", json.dumps(limits))
        if (code := server.stop()) != 0:
            wrong.append(f"exit code {code}")
    print("\n".join(wrong[:20]), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
