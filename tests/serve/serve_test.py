#!/usr/bin/env python3
"""`subbyte serve` from outside: endpoints, fields, limits, its end.

    serve_test.py PROGRAM [TEST...]

Models are of random weights, so texts say nothing; what is compared is streams with whole answers,
answers with their numbers, and refusals with the field that they are about.
"""
from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import tempfile
import unittest
from pathlib import Path

from client import PATIENCE, Server, make_model, read_all, request_bytes, wait_until

PROGRAM = ""
ARCHS = ("qwen3", "qwen3.5", "gpt-oss", "llama")
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}
FOLDER = tempfile.TemporaryDirectory()


def model(arch: str = "qwen3") -> Path:
    directory = Path(FOLDER.name) / arch
    return directory if directory.exists() else make_model(PROGRAM, arch, directory)


def together(chunks: list[dict], index: int = 0) -> dict:
    """What the chunks of a choice are as one."""
    whole: dict = {"text": "", "reasoning": "", "logprobs": [], "roles": 0, "reason": None}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice.get("delta", {})
            assert whole["reason"] is None, "a chunk after the last"
            whole["roles"] += "role" in delta
            whole["text"] += delta.get("content") or choice.get("text") or ""
            whole["reasoning"] += delta.get("reasoning_content") or ""
            assert delta.get("reasoning_content") == delta.get("reasoning")
            if choice["logprobs"]:
                logprobs = choice["logprobs"]
                whole["logprobs"] += logprobs.get("content") or logprobs["token_logprobs"]
            whole["reason"] = choice["finish_reason"]
    return whole


class Streams(unittest.TestCase):
    """A stream put together is the whole answer, for each family."""

    def test_chats(self) -> None:
        for arch in ARCHS:
            with self.subTest(arch), Server(PROGRAM, model(arch)) as server:
                body = {**HELLO, "max_tokens": 40, "seed": 5, "n": 2, "logprobs": True,
                        "top_logprobs": 2, "temperature": 1.5}
                whole = server.post(CHAT, body).json
                chunks = server.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
                self.assertEqual(chunks[-1]["choices"], [])
                self.assertEqual(chunks[-1]["usage"], whole["usage"])
                self.assertEqual(whole["usage"]["completion_tokens"], 80)
                self.assertEqual({chunk["id"] for chunk in chunks}, {chunks[0]["id"]})
                for index, choice in enumerate(whole["choices"]):
                    stream = together(chunks[:-1], index)
                    self.assertEqual(stream["roles"], 1)
                    self.assertEqual(stream["text"], choice["message"]["content"])
                    self.assertEqual(stream["reasoning"],
                                     choice["message"].get("reasoning_content", ""))
                    self.assertEqual(stream["logprobs"], choice["logprobs"]["content"])
                    self.assertEqual(len(stream["logprobs"]), 40)
                    self.assertEqual(stream["reason"], choice["finish_reason"])

    def test_texts(self) -> None:
        with Server(PROGRAM, model()) as server:
            body = {"prompt": ["Once", [40, 41, 42]], "max_tokens": 20, "seed": 1, "logprobs": 1,
                    "echo": True, "n": 2, "ignore_eos": True}
            whole = server.post(TEXT, body).json
            chunks = server.stream(TEXT, body)
            self.assertEqual([choice["index"] for choice in whole["choices"]], [0, 1, 2, 3])
            for index, choice in enumerate(whole["choices"]):
                stream = together(chunks, index)
                self.assertEqual(stream["text"], choice["text"])
                self.assertEqual(stream["logprobs"], choice["logprobs"]["token_logprobs"])
            self.assertTrue(whole["choices"][0]["text"].startswith("Once"))
            self.assertEqual(whole["usage"]["completion_tokens"], 80)
            self.assertTrue(all("usage" not in chunk for chunk in chunks))

    def test_stop_texts_do_not_show_up(self) -> None:
        with Server(PROGRAM, model()) as server:
            body = {"prompt": "Once", "max_tokens": 60, "seed": 1, "ignore_eos": True}
            text = server.post(TEXT, body).json["choices"][0]["text"]
            stop = text[20:23]
            for answer in (server.post(TEXT, {**body, "stop": stop}).json["choices"][0],
                           together(server.stream(TEXT, {**body, "stop": [stop]}))):
                self.assertEqual(answer["text"], text[:text.index(stop)])
                self.assertEqual(answer.get("finish_reason", answer.get("reason")), "stop")

    def test_usage_in_each_chunk(self) -> None:
        with Server(PROGRAM, model()) as server:
            options = {"include_usage": True, "continuous_usage_stats": True}
            chunks = server.stream(CHAT, {**HELLO, "max_tokens": 4, "stream_options": options})
            counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
            self.assertEqual(counts, sorted(counts))
            self.assertEqual(counts[-1], 4)

    def test_seeds(self) -> None:
        with Server(PROGRAM, model()) as server:
            body = {**HELLO, "max_tokens": 20, "temperature": 1}
            answers = [server.post(CHAT, body).json for _ in range(3)]
            self.assertEqual(len({answer["id"] for answer in answers}), 3)
            self.assertEqual(len({answer["seed"] for answer in answers}), 3)
            again = server.post(CHAT, {**body, "seed": answers[0]["seed"]}).json
            self.assertEqual(again["choices"], answers[0]["choices"])


class Refusals(unittest.TestCase):
    """Every wrong value is 400 and names its field."""

    WRONG = [
        ({"temperature": -1}, "temperature"), ({"temperature": "1"}, "temperature"),
        ({"top_p": 2}, "top_p"), ({"top_p": 0}, "top_p"), ({"top_k": -2}, "top_k"),
        ({"min_p": 1.1}, "min_p"), ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"n": 0}, "n"), ({"n": 129}, "n"), ({"seed": -1}, "seed"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"), ({"logprobs": 2}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"), ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"), ({"stop": 7}, "stop"),
        ({"stop": ["a"] * 17}, "stop"), ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": [99999999]}, "stop_token_ids"), ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"), ({"messages": [7]}, "messages[0]"),
        ({"messages": [{"role": "nobody", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content.type"),
        ({"messages": [{"role": "user", "content": "", "x": 1}]}, "messages[0].x"),
        ({"tools": 3}, "tools"), ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"), ({"stream": 1}, "stream"),
        ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a"}, "guided_regex"), ({"priority": "high"}, "priority"),
        ({"prompt": "Hi"}, "prompt"), ({"no_such_field": 1}, "no_such_field"),
        ({"echo": True}, "echo"), ({"presence_penalty": 3}, "presence_penalty"),
        ({"chat_template": "{{"}, "messages"), ({"model": 5}, "model"), ({"user": 5}, "user"),
        ({"metadata": "a"}, "metadata"), ({"store": "yes"}, "store"),
        ({"service_tier": 1}, "service_tier"), ({"cache_salt": 7}, "cache_salt"),
        ({"prompt_cache_key": []}, "prompt_cache_key"), ({"length_penalty": ""}, "length_penalty"),
    ]
    WRONG_OF_TEXTS = [
        ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": 7}, "prompt"),
        ({"prompt": [[1], "a", 5]}, "prompt"), ({"prompt": [99999999]}, "prompt"),
        ({"prompt": ["a"] * 1025}, "prompt"), ({"prompt": ["a"] * 9, "n": 128}, "n"),
        ({"logprobs": 21}, "logprobs"), ({"best_of": 2}, "best_of"), ({"suffix": "a"}, "suffix"),
        ({"messages": []}, "messages"), ({"tools": [{}]}, "tools"),
        ({"prompt": ["a"] * 1024, "stop": ["x" * 100_000]}, "prompt"),
    ]

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(PROGRAM, model())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.__exit__()

    def test_wrong_values(self) -> None:
        for path, usual, table in ((CHAT, HELLO, self.WRONG),
                                   (TEXT, {"prompt": "Hi"}, self.WRONG_OF_TEXTS)):
            for wrong, field in table:
                with self.subTest(wrong):
                    answer = self.server.post(path, {**usual, **wrong})
                    self.assertEqual(answer.status, 400, answer.text)
                    self.assertEqual(answer.error["type"], "invalid_request_error")
                    self.assertEqual(answer.error["param"], field, answer.text)

    def test_bodies_that_are_no_json(self) -> None:
        for body in ("", "{", "[]", "7", '{"n":1,"n":1}', "[" * 100, '{"prompt":"\ud800"}',
                     b"\xff", "{} {}"):
            with self.subTest(body):
                text = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
                self.assertEqual(self.server.post(TEXT, text).status, 400)

    def test_prompts_that_never_fit(self) -> None:
        answer = self.server.post(TEXT, {"prompt": [1] * 5000})
        self.assertEqual(answer.status, 400)
        self.assertEqual(answer.error["code"], "context_length_exceeded")

    def test_other_models(self) -> None:
        answer = self.server.post(CHAT, {**HELLO, "model": "gpt-4"})
        self.assertEqual((answer.status, answer.error["code"]), (404, "model_not_found"))

    def test_paths_and_methods(self) -> None:
        self.assertEqual(self.server.get("/v2").status, 404)
        for method, path, allowed in (("GET", CHAT, "POST"), ("PUT", "/health", "GET")):
            answer = self.server.ask(method, path)
            self.assertEqual(answer.status, 405)
            self.assertIn(allowed, answer.headers["Allow"])
            answer = self.server.ask("OPTIONS", path)
            self.assertEqual(answer.status, 204)
            self.assertIn(allowed, answer.headers["Allow"])
        self.assertIn(b"Allow: ", self.server.raw(b"OPTIONS * HTTP/1.0\r\n\r\n"))
        whole = b"GET http://localhost/health HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n"
        self.assertIn(b" 200 OK", self.server.raw(whole))
        self.assertIn(b" 403 ", self.server.raw(b"GET http://evil/health HTTP/1.0\r\n\r\n"))
        self.assertEqual(self.server.ask("HEAD", "/health").status, 200)

    def test_hosts_and_origins(self) -> None:
        self.assertEqual(self.server.get("/health", Host="evil.example").status, 403)
        self.assertEqual(self.server.get("/health", Host="localhost:1").status, 200)
        self.assertEqual(self.server.post(TEXT, {"prompt": "a"}, Origin="https://evil").status, 403)

    def test_smuggling(self) -> None:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        for fields in (b"Content-Length: 4\r\nContent-Length: 4\r\n", b"Content-Length : 4\r\n",
                       b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                       b"Transfer-Encoding: xchunked\r\n", b"X: a\r\n b\r\n", b"X: a\rb\r\n",
                       b"X: a\x00b\r\n"):
            with self.subTest(fields):
                self.assertIn(b" 400 ", self.server.raw(head + fields + b"\r\nGET /"))
        for text in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
            self.assertIn(b" 400 ", self.server.raw(text))


class Limits(unittest.TestCase):
    """Those that are no time; `slow.py` has the others, http_test all of them with short times."""

    def test_heads_and_bodies(self) -> None:
        with Server(PROGRAM, model(), "--max-body-bytes", "30000", "--max-held-bytes",
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
        with Server(PROGRAM, model(), "--max-connections", "5",
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
        with Server(PROGRAM, model()) as server:
            for stream in (False, True):
                with server.connect() as client:
                    client.sendall(request_bytes(TEXT, {"prompt": "a", "max_tokens": 30,
                                                        "ignore_eos": True, "stream": stream}))
                    client.shutdown(socket.SHUT_WR)
                    answer = read_all(client)
                    self.assertIn(b"[DONE]" if stream else b'"length"', answer)


class Endpoints(unittest.TestCase):
    def test_tokens_and_templates(self) -> None:
        with Server(PROGRAM, model(), "--served-model-name", "a/b", "--served-model-name", "c",
                    "--api-prefix", "/x/") as server:
            ids = server.post("/x/tokenize", {"prompt": "Hello <|im_end|>"}).json
            self.assertEqual(ids["count"], len(ids["tokens"]))
            text = server.post("/x/detokenize", {"tokens": ids["tokens"]}).json
            self.assertEqual((text["prompt"], text["content"]), ("Hello <|im_end|>",) * 2)
            more = server.post("/x/tokenize", {"content": "Hello <|im_end|>",
                                               "parse_special": False}).json
            self.assertGreater(more["count"], ids["count"])
            prompt = server.post("/x/apply-template", HELLO).json["prompt"]
            self.assertIn("Why is the sky blue?", prompt)
            counted = server.post("/x/v1/chat/completions/input_tokens", HELLO).json["input_tokens"]
            answer = server.post("/x/v1/chat/completions", {**HELLO, "max_tokens": 1, "model": "c"})
            self.assertEqual(answer.json["usage"]["prompt_tokens"], counted)
            self.assertEqual(answer.json["model"], "c")
            names = [one["id"] for one in server.get("/x/v1/models").json["data"]]
            self.assertEqual(names, ["a/b", "c"])
            self.assertEqual(server.get("/x/v1/models/a%2Fb").json["max_model_len"], 2048)
            self.assertEqual(server.get("/x/v1/models/d").status, 404)
            self.assertEqual(server.get("/health").status, 404)

    def test_metrics(self) -> None:
        with Server(PROGRAM, model()) as server:
            server.post(CHAT, {**HELLO, "max_tokens": 7, "n": 2})
            values = server.metrics()
            self.assertEqual(values["subbyte:generation_tokens_total"], 14)
            self.assertEqual(values["subbyte:request_success_total"], 2)
            self.assertEqual(values["subbyte:time_to_first_token_seconds_count"], 1)
            self.assertEqual(values["subbyte:inter_token_latency_seconds_count"], 12)

    def test_openai_client(self) -> None:
        try:
            import openai
        except ImportError:
            self.skipTest("this Python has no package openai")
        with Server(PROGRAM, model(), "--api-key", "secret") as server:
            client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="secret")
            name = client.models.list().data[0].id
            body = {"model": name, "messages": HELLO["messages"], "max_tokens": 9, "seed": 2}
            whole = client.chat.completions.create(**body, logprobs=True, top_logprobs=3)
            self.assertEqual(whole.usage.completion_tokens, 9)
            self.assertEqual(len(whole.choices[0].logprobs.content), 9)
            parts = list(client.chat.completions.create(
                **body, stream=True, stream_options={"include_usage": True}))
            text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
            self.assertEqual(text, whole.choices[0].message.content)
            self.assertEqual(parts[-1].usage.total_tokens, whole.usage.total_tokens)
            old = client.completions.create(model=name, prompt=["a", "b"], max_tokens=2)
            self.assertEqual(len(old.choices), 2)
            with self.assertRaises(openai.BadRequestError) as wrong:
                client.chat.completions.create(**body, temperature=-1)
            self.assertEqual(wrong.exception.param, "temperature")
            with self.assertRaises(openai.NotFoundError):
                client.chat.completions.create(**{**body, "model": "other"})
            other = openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong")
            with self.assertRaises(openai.AuthenticationError):
                other.models.list()


class Access(unittest.TestCase):
    def test_keys(self) -> None:
        with Server(PROGRAM, model(), "--api-key", "first",
                    environment={"SUBBYTE_API_KEY": "second"}) as server:
            for path in ("/health", "/ready", "/version"):
                self.assertEqual(server.get(path).status, 200)
            for path in ("/v1/models", "/metrics", "/status", "/v2"):
                self.assertEqual(server.get(path).status, 401)
            self.assertEqual(server.get("/status", Authorization="Bearer first").status, 200)
            self.assertEqual(server.get("/status", x_api_key="second").status, 200)
            self.assertEqual(server.get("/status", Authorization="Bearer firs").status, 401)

    def test_origins(self) -> None:
        with Server(PROGRAM, model(), "--allowed-origins", "https://mine") as server:
            asked = server.ask("OPTIONS", CHAT, Origin="https://mine",
                               Access_Control_Request_Method="POST")
            self.assertEqual(asked.status, 204)
            self.assertEqual(asked.headers["Access-Control-Allow-Origin"], "https://mine")
            answer = server.post(TEXT, {"prompt": "a"}, Origin="https://mine")
            self.assertEqual(answer.headers["Access-Control-Allow-Origin"], "https://mine")

    def test_a_socket_is_of_its_owner(self) -> None:
        path = str(Path(FOLDER.name) / "socket")
        with Server(PROGRAM, model(), "--uds", path) as server:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                self.assertIn(b"200 OK", read_all(connection))
            self.assertEqual(server.stop(), 0)
            self.assertFalse(os.path.exists(path))


class Operations(unittest.TestCase):
    # Longer than any test waits.
    LONG = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True, "n": 128}

    def test_a_client_that_goes_away_ends_its_request(self) -> None:
        with Server(PROGRAM, model(), "--parallel", "1", "--log", "json") as server:
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
        with Server(PROGRAM, model(), "--parallel", "1", "--max-num-queued-reqs", "1") as server:
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

    def test_a_queue_is_in_the_order_of_priorities(self) -> None:
        with Server(PROGRAM, model(), "--parallel", "1", "--log", "json") as server:
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
        with Server(PROGRAM, model()) as server, server.connect() as greedy:
            greedy.settimeout(2)
            with self.assertRaises(TimeoutError):
                for _ in range(1000):
                    greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
            self.assertLess(server.peak_bytes(), 200 << 20)
            self.assertEqual(server.get("/health").status, 200)

    def test_a_log_that_nobody_reads_keeps_nobody_waiting(self) -> None:
        with Server(PROGRAM, model()) as server, server.connect() as client:
            for _ in range(3000):
                client.sendall(b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b" 404 ", client.recv(65536))

    def test_an_end_in_order(self) -> None:
        with Server(PROGRAM, model()) as server, server.connect() as running:
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
        with Server(PROGRAM, model(), "--shutdown-timeout", "0") as server, \
                server.connect() as running:
            running.sendall(request_bytes(TEXT, self.LONG))
            part = running.recv(65536)
            server.process.send_signal(signal.SIGTERM)
            text = part + read_all(running)
            self.assertIn(b"server.shutdown", text)
            self.assertNotIn(b"[DONE]", text)
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_many_clients_have_the_answers_of_one(self) -> None:
        with Server(PROGRAM, model(), "--parallel", "16", "--batch-invariant") as server:
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


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
