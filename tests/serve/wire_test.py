#!/usr/bin/env python3
"""`subbyte serve` from outside, byte by byte: what HTTP/1.1 has, and what each answer brings.

    wire_test.py PROGRAM [TEST...]
"""
from __future__ import annotations

import json
import re
import unittest

from client import CHAT, HELLO, TEXT, Server, main, read_all, request_bytes

SHORT = {"prompt": "Once", "max_tokens": 3, "ignore_eos": True}


def head_of(connection) -> bytes:
    """Of one answer, up to its end and no byte more."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, head
        head += byte
    return head


def answer_of(connection) -> tuple[bytes, bytes]:
    """Head and body, which has a length."""
    head = head_of(connection)
    length = int(re.search(rb"Content-Length: (\d+)", head)[1])
    body = b""
    while len(body) < length:
        part = connection.recv(length - len(body))
        assert part, body
        body += part
    return head, body


class Wire(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server("qwen3", "--batch-invariant")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.__exit__()

    def test_a_connection_has_several_answers(self) -> None:
        with self.server.connect() as client:
            for _ in range(3):
                client.sendall(request_bytes(TEXT, SHORT))
                head, body = answer_of(client)
                self.assertTrue(head.startswith(b"HTTP/1.1 200 OK\r\n"), head)
                self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 3)

    def test_requests_that_come_at_once_are_answered_in_their_order(self) -> None:
        bodies = [{**SHORT, "max_tokens": tokens} for tokens in (9, 1, 5)]
        with self.server.connect() as client:
            client.sendall(b"".join(request_bytes(TEXT, body) for body in bodies))
            answers = [json.loads(answer_of(client)[1]) for _ in bodies]
        self.assertEqual([one["usage"]["completion_tokens"] for one in answers], [9, 1, 5])

    def test_a_body_in_chunks_is_the_same_body(self) -> None:
        text = json.dumps({**SHORT, "seed": 1}).encode()
        parts = [text[:1], text[1:20], text[20:]]
        chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts)
        head = (f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                "Transfer-Encoding: chunked\r\n\r\n").encode()
        answer = self.server.raw(head + chunks + b"0\r\nX-Trailer: a\r\n\r\n")
        whole = self.server.post(TEXT, {**SHORT, "seed": 1}).json
        self.assertEqual(json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"], whole["choices"])

    def test_a_client_that_asks_whether_to_go_on_is_told(self) -> None:
        text = json.dumps(SHORT).encode()
        fields = (f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                  "Content-Length: ").encode()
        with self.server.connect() as client:
            client.sendall(fields + b"%d\r\n\r\n" % len(text))
            self.assertEqual(head_of(client), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(text)
            self.assertIn(b" 200 OK", answer_of(client)[0])
        refused = self.server.raw(fields + b"99999999999\r\n\r\n")
        self.assertTrue(refused.startswith(b"HTTP/1.1 413 "), refused)

    def test_older_clients(self) -> None:
        old = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertTrue(old.startswith(b"HTTP/1.0 200 OK\r\n"), old)
        body = json.dumps({**SHORT, "stream": True}).encode()
        stream = self.server.raw(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                                 % (TEXT.encode(), len(body), body))
        self.assertNotIn(b"Transfer-Encoding", stream)
        self.assertTrue(stream.endswith(b"data: [DONE]\n\n"), stream[-50:])

    def test_head_has_the_head_alone(self) -> None:
        whole = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n").split(b"\r\n\r\n")
        head = self.server.raw(b"HEAD /health HTTP/1.0\r\n\r\n").split(b"\r\n\r\n")
        self.assertEqual(head[1], b"")
        length = b"Content-Length: %d" % len(whole[1])
        self.assertIn(length, head[0])

    def test_a_request_without_a_host(self) -> None:
        self.assertIn(b" 400 ", self.server.raw(b"GET /health HTTP/1.1\r\n\r\n"))

    def test_each_answer_has_an_id(self) -> None:
        for own, is_kept in (("mine-1", True), ("a" * 64, True), ("a" * 65, False), ("a b", False)):
            for method, path, body in (("GET", "/health", None), ("GET", "/none", None),
                                       ("PUT", "/health", None), ("POST", TEXT, {"prompt": 7}),
                                       ("POST", TEXT, SHORT), ("POST", CHAT, "{"),
                                       ("POST", TEXT, {**SHORT, "stream": True})):
                answer = self.server.ask(method, path, body, x_request_id=own)
                found = answer.headers["x-request-id"]
                self.assertEqual(found == own, is_kept, (method, path, own))
                self.assertTrue(found)
        ids = {self.server.get("/health").headers["x-request-id"] for _ in range(20)}
        self.assertEqual(len(ids), 20)

    def test_a_stream_is_not_stored_on_its_way(self) -> None:
        answer = self.server.post(CHAT, {**HELLO, "max_tokens": 2, "stream": True})
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        self.assertEqual(answer.headers["X-Accel-Buffering"], "no")
        self.assertTrue(all(line.startswith(("data: ", ": ")) or not line
                            for line in answer.text.split("\n")))

    def test_half_a_request_and_the_end(self) -> None:
        with self.server.connect() as client:
            client.sendall(b"GET /health HT")
            client.shutdown(1)
            self.assertEqual(read_all(client), b"")


if __name__ == "__main__":
    main()
