#!/usr/bin/env python3
"""`subbyte serve` from outside: who may ask, and limits.

    access_test.py PROGRAM [TEST...]
"""
from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import unittest
import warnings
from pathlib import Path

from client import CHAT, FOLDER, TEXT, Server, main, read_all, request_bytes, wait_until


class Access(unittest.TestCase):
    def test_keys(self) -> None:
        with Server("qwen3", "--api-key", "first",
                    environment={"SUBBYTE_API_KEY": "second"}) as server:
            for path in ("/", "/health", "/ready", "/version"):
                self.assertEqual(server.get(path).status, 200)
            for path in ("/v1/models", "/metrics", "/status", "/v2"):
                answer = server.get(path)
                self.assertEqual((answer.status, answer.headers["WWW-Authenticate"]),
                                 (401, "Bearer"))
            self.assertEqual(server.get("/status", Authorization="Bearer first").status, 200)
            self.assertEqual(server.get("/status", x_api_key="second").status, 200)
            self.assertEqual(server.get("/status", Authorization="Bearer firs").status, 401)

    def test_a_file_of_keys(self) -> None:
        path = Path(FOLDER.name) / "keys"
        path.write_bytes(b"# two\r\n\r\n first \r\nsecond\t")
        with Server("qwen3", "--api-key-file", str(path)) as server:
            for key, status in (("first", 200), ("second", 200), ("# two", 401), ("third", 401)):
                self.assertEqual(server.get("/status", x_api_key=key).status, status, key)
        path.write_bytes(b"# none\r\n \r\n")
        with self.assertRaises(RuntimeError) as wrong:  # whatever other keys there are
            Server("qwen3", "--api-key-file", str(path), "--api-key", "first")
        self.assertIn("no key in it", str(wrong.exception))

    def test_a_body_that_nobody_reads_is_not_held(self) -> None:
        head = (b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 30000\r\n\r\n" + b"a" * 20000)
        body = {"prompt": "a" * 2000, "max_tokens": 1}
        with Server("qwen3", "--api-key", "first", "--max-body-bytes", "40000",
                    "--max-held-bytes", "40000") as server:
            held = [server.connect() for _ in range(3)]
            for connection in held:
                connection.sendall(head)
                self.assertIn(b" 400 ", connection.recv(65536))
            self.assertEqual(server.post(TEXT, body, x_api_key="first").status, 200)
            for connection in held:
                connection.close()

    def test_origins(self) -> None:
        with Server("qwen3", "--allowed-origins", "https://mine") as server:
            asked = server.ask("OPTIONS", CHAT, Origin="https://mine",
                               Access_Control_Request_Method="POST")
            self.assertEqual(asked.status, 204)
            self.assertEqual(asked.headers["Access-Control-Allow-Origin"], "https://mine")
            self.assertIn("x-api-key", asked.headers["Access-Control-Allow-Headers"])
            for names, allowed in (("authorization, x-stainless-os", True), ("a: b", False)):
                asked = server.ask("OPTIONS", CHAT, Origin="https://mine",
                                   Access_Control_Request_Method="POST",
                                   Access_Control_Request_Headers=names)
                found = asked.headers["Access-Control-Allow-Headers"]
                self.assertEqual(found == names, allowed, found)
            answer = server.post(TEXT, {"prompt": "a"}, Origin="https://mine")
            self.assertEqual(answer.headers["Access-Control-Allow-Origin"], "https://mine")

        with Server() as server:
            answer = server.post(TEXT, {"prompt": "a"})
            self.assertNotIn("Access-Control-Allow-Origin", answer.headers)
            asked = server.ask("OPTIONS", CHAT, Origin="https://mine",
                               Access_Control_Request_Method="POST")
            self.assertNotIn("Access-Control-Allow-Origin", asked.headers)

    def test_a_host_that_others_reach(self) -> None:
        with self.assertRaises(RuntimeError) as wrong:
            Server("qwen3", "--host", "0.0.0.0")
        self.assertIn("--allow-open", str(wrong.exception))
        with Server("qwen3", "--host", "0.0.0.0", "--allow-open") as server:
            self.assertEqual(server.get("/health", Host="any.example").status, 200)

    def test_names_of_the_host(self) -> None:
        with Server("qwen3", "--allowed-hosts", "models.example") as server:
            for name, status in (("models.example", 200), ("models.example:80", 200),
                                 ("localhost", 200), ("[::1]:8000", 200), ("evil.example", 403)):
                self.assertEqual(server.get("/health", Host=name).status, status, name)

    def test_a_socket_is_of_its_owner(self) -> None:
        path = str(Path(FOLDER.name) / "socket")
        with Server("qwen3", "--uds", path) as server:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                self.assertIn(b"200 OK", read_all(connection))
            self.assertEqual(server.stop(), 0)
            self.assertFalse(os.path.exists(path))


def make_certificate(name: str) -> tuple[str, str]:
    """Files of a key and of its certificate for localhost."""
    key, certificate = (str(Path(FOLDER.name) / f"{name}.{kind}") for kind in ("key", "crt"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return key, certificate


class Tls(unittest.TestCase):
    def setUp(self) -> None:
        self.key, self.certificate = make_certificate("first")

    def server(self) -> Server:
        return Server("qwen3", "--ssl-keyfile", self.key, "--ssl-certfile", self.certificate)

    def shake_hands(self, server: Server, certificate: str,
                    maximum_version: int = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=certificate)
        context.maximum_version = maximum_version
        return context.wrap_socket(server.connect(), server_hostname="localhost")

    def test_answers(self) -> None:
        with self.server() as server:
            self.assertTrue(server.address.startswith("https://"))
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                with self.shake_hands(server, self.certificate, maximum_version=version) as client:
                    body = {"prompt": "a" * 50_000, "max_tokens": 30, "ignore_eos": True}
                    client.sendall(request_bytes("/tokenize", {"prompt": "a" * 50_000}))
                    self.assertIn(b" 200 OK", client.recv(65536))
                with self.shake_hands(server, self.certificate, maximum_version=version) as client:
                    body = {"prompt": "a", "max_tokens": 30, "ignore_eos": True, "stream": True}
                    client.sendall(request_bytes(TEXT, body, "Connection: close"))
                    self.assertIn(b"data: [DONE]", read_all(client))
            self.assertEqual(server.stop(), 0)

    def test_refuses_what_is_older_or_no_tls(self) -> None:
        with self.server() as server:
            self.assertEqual(server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), b"")
            context = ssl.create_default_context(cafile=self.certificate)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")  # without which it would not even ask
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = ssl.TLSVersion.TLSv1_1
            with self.assertRaises(ssl.SSLError) as refused:
                context.wrap_socket(server.connect(), server_hostname="localhost")
            self.assertEqual(refused.exception.reason, "TLSV1_ALERT_PROTOCOL_VERSION")
            with self.shake_hands(server, self.certificate):
                pass

    def test_an_end_is_answered_with_an_end(self) -> None:
        with self.server() as server, self.shake_hands(server, self.certificate) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b" 200 ", client.recv(65536))
            client.unwrap()  # waits for the server's, else it raises

    def test_who_goes_away_ends_its_request(self) -> None:
        with self.server() as server:
            with self.shake_hands(server, self.certificate) as client:
                client.sendall(request_bytes(TEXT, {"prompt": "a", "max_tokens": 2000, "n": 128,
                                                    "ignore_eos": True}))
                wait_until(lambda: self.running(server) > 0)
            wait_until(lambda: self.running(server) == 0)

    def running(self, server: Server) -> int:
        with self.shake_hands(server, self.certificate) as client:
            client.sendall(b"GET /status HTTP/1.0\r\n\r\n")
            return json.loads(read_all(client).split(b"\r\n\r\n", 1)[1])["running"]

    def test_reads_its_files_again(self) -> None:
        with self.server() as server:
            before = self.shake_hands(server, self.certificate)
            key, certificate = make_certificate("second")
            for wrong in (True, False):
                os.replace(key, self.key)
                if not wrong:
                    os.replace(certificate, self.certificate)
                server.process.send_signal(signal.SIGHUP)
                line = server.process.stderr.readline()
                self.assertIn("stays" if wrong else "read again", line)
                if wrong:
                    os.replace(self.key, key)
            with self.shake_hands(server, self.certificate):
                pass
            before.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            self.assertIn(b" 200 ", read_all(before))
            before.close()

    def test_wrong_pairs(self) -> None:
        other, _ = make_certificate("other")
        text = str(Path(FOLDER.name) / "text")
        Path(text).write_text("no key")
        for options, expected in (
                (("--ssl-keyfile", self.key), "one of them"),
                (("--ssl-keyfile", other, "--ssl-certfile", self.certificate), other),
                (("--ssl-keyfile", self.key, "--ssl-certfile", text), text),
                (("--ssl-keyfile", text, "--ssl-certfile", self.certificate), text),
                (("--ssl-keyfile", self.key, "--ssl-certfile", "none.crt"), "none.crt")):
            with self.assertRaises(RuntimeError) as wrong:
                Server("qwen3", *options)
            self.assertIn(expected, str(wrong.exception))


class Limits(unittest.TestCase):
    """Those that are no time; `slow.py` has the others, http_test all of them with short times."""

    def test_a_body_that_is_compressed(self) -> None:
        with Server() as server:
            body = {"prompt": "a", "max_tokens": 1}
            answer = server.post(TEXT, gzip.compress(json.dumps(body).encode()),
                                 Content_Encoding="gzip")
            self.assertEqual((answer.status, answer.json["error"]["code"]), (415, "server.coding"))
            self.assertEqual(server.post(TEXT, body, Content_Encoding="identity").status, 200)

    def test_heads_and_bodies(self) -> None:
        with Server("qwen3", "--max-body-bytes", "30000", "--max-held-bytes",
                    "40000") as server:
            line = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            for fields, status in ((b"X: a\r\n" * 98, 200), (b"X: a\r\n" * 99, 431),
                                   (b"X: " + b"a" * 16000 + b"\r\n", 200),
                                   (b"X: " + b"a" * 16400 + b"\r\n", 431)):
                self.assertIn(b" %d " % status, server.raw(line + fields + b"\r\n"))
            for size, status in ((8192, 200), (8193, 414)):
                url = b"/health?".ljust(size, b"a")
                self.assertIn(b" %d " % status, server.raw(b"GET " + url + b" HTTP/1.0\r\n\r\n"))
            text = {"prompt": "a" * 2000, "max_tokens": 1}
            self.assertEqual(server.post(TEXT, text).status, 200)
            self.assertEqual(server.post(TEXT, {"prompt": "a" * 30000}).status, 413)
            depth = {"prompt": "a", "metadata": json.loads('{"a":' * 64 + "1" + "}" * 64)}
            self.assertEqual(server.post(TEXT, depth).status, 400)
            depth["metadata"] = depth["metadata"]["a"]
            self.assertEqual(server.post(TEXT, depth).status, 200)
            part = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Length: 25000\r\n\r\n" + b"a" * 24000)
            with server.connect() as first:
                first.sendall(part)
                wait_until(lambda: server.metrics()["subbyte:http_held_bytes"] >= 24000)
                self.assertIn(b" 503 ", server.raw(part))

    def test_connections(self) -> None:
        with Server("qwen3", "--max-connections", "5",
                    "--max-connections-per-address", "3") as server:
            held = [server.connect() for _ in range(3)]
            for connection in held:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b" 200 ", connection.recv(65536))
            with server.connect() as connection:
                self.assertIn(b" 503 ", read_all(connection))
            held.pop(0).close()
            wait_until(lambda: b" 200 " in server.raw(b"GET /health HTTP/1.0\r\n\r\n"))
            for connection in held:
                connection.close()

    def test_half_closed(self) -> None:
        with Server() as server:
            for stream in (False, True):
                with server.connect() as client:
                    client.sendall(request_bytes(TEXT, {"prompt": "a", "max_tokens": 30,
                                                        "ignore_eos": True, "stream": stream}))
                    client.shutdown(socket.SHUT_WR)
                    answer = read_all(client)
                    self.assertIn(b"[DONE]" if stream else b'"length"', answer)


if __name__ == "__main__":
    main()
