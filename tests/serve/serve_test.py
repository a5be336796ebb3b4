#!/usr/bin/env python3
"""`subbyte serve` from outside: endpoints, fields, streams.

    serve_test.py PROGRAM [TEST...]

Models are of random weights, so texts say nothing; what is compared is streams with whole answers,
answers with their numbers, and refusals with the field that they are about.
"""
from __future__ import annotations

import contextlib
import subprocess
import tempfile
import unittest

from client import CHAT, HELLO, TEXT, Server, main, model, read_all, request_bytes

ARCHS = ("qwen3", "qwen3.5", "gpt-oss", "llama")


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
            with self.subTest(arch), Server(arch, "--batch-invariant") as server:
                body = {**HELLO, "max_tokens": 40, "seed": 5, "n": 2, "logprobs": True,
                        "top_logprobs": 2, "temperature": 1.5, "ignore_eos": True}
                whole = server.post(CHAT, body).json
                chunks = server.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
                self.assertEqual(chunks[-1]["choices"], [])
                # The second time what the prompt begins with is known.
                first, second = (answer["usage"].pop("prompt_tokens_details")["cached_tokens"]
                                 for answer in (whole, chunks[-1]))
                self.assertTrue(first == 0 < second)
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
        with Server("qwen3", "--batch-invariant") as server:
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
        with Server("qwen3", "--batch-invariant") as server:
            body = {"prompt": "Once", "max_tokens": 60, "seed": 1, "ignore_eos": True}
            text = server.post(TEXT, body).json["choices"][0]["text"]
            stop = text[20:23]
            for answer in (server.post(TEXT, {**body, "stop": stop}).json["choices"][0],
                           together(server.stream(TEXT, {**body, "stop": [stop]}))):
                self.assertEqual(answer["text"], text[:text.index(stop)])
                self.assertEqual(answer.get("finish_reason", answer.get("reason")), "stop")

    def test_usage_in_each_chunk(self) -> None:
        with Server() as server:
            options = {"include_usage": True, "continuous_usage_stats": True}
            chunks = server.stream(CHAT, {**HELLO, "max_tokens": 4, "stream_options": options})
            counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
            self.assertEqual(counts, sorted(counts))
            self.assertEqual(counts[-1], 4)
            # How much of the prompt was known is said by the last one alone.
            self.assertEqual([i for i, chunk in enumerate(chunks)
                              if "prompt_tokens_details" in chunk["usage"]], [len(chunks) - 1])

    def test_seeds(self) -> None:
        with Server() as server:
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
        ({"cache_salt": "a" * 257}, "cache_salt"),
        ({"logit_bias": {" 1": 1}}, "logit_bias"), ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs.messages"),
        ({"prompt_cache_key": []}, "prompt_cache_key"), ({"length_penalty": ""}, "length_penalty"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_completion_tokens"),
        ({"skip_clone": 1}, "skip_clone"), ({"stream_interval": "x"}, "stream_interval"),
        ({"output_kind": []}, "output_kind"), ({"early_stopping": 5}, "early_stopping"),
        ({"output_text_buffer_length": -1}, "output_text_buffer_length"),
        ({"moderation": 3}, "moderation"), ({"documents": [{"a": 1}]}, "documents"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs.a"),
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
        cls.server = Server()

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

    def test_other_paths_of_chats_refuse_the_same(self) -> None:
        """But for what only a model with its tokens can refuse."""
        for path in ("/tokenize", "/apply-template", CHAT + "/input_tokens"):
            for wrong, field in self.WRONG:
                if "99999999" in str(wrong) or wrong == {"messages": "Hi"} or field == "messages":
                    continue
                with self.subTest((path, wrong)):
                    answer = self.server.post(path, {**HELLO, **wrong})
                    self.assertEqual(answer.status, 400, answer.text)
                    self.assertEqual(answer.error["param"], field, answer.text)
            self.assertEqual(self.server.post(path, {**HELLO, "stream": True}).status, 200)
        answer = self.server.post("/tokenize", {"prompt": "a", "add_special_tokens": True,
                                                "add_special": False})
        self.assertEqual((answer.status, answer.error["param"]), (400, "add_special"))

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

    def test_options_that_nobody_could_use(self) -> None:
        for options in (["--served-model-name", ""], ["--metrics-prefix", ""],
                        ["--metrics-prefix", "a b"], ["--metrics-prefix", "9x"]):
            with self.subTest(options):
                ended = subprocess.run(
                    [Server.program, "serve", str(model("qwen3")), "--port", "0", *options],
                    capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(ended.returncode, 2, ended.stderr)
                self.assertIn(options[0], ended.stderr)

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


class Endpoints(unittest.TestCase):
    def test_tokens_and_templates(self) -> None:
        with Server("qwen3", "--served-model-name", "a/b", "--served-model-name", "c",
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

    def test_templates_see_the_variables_of_the_server(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write("{{ place }}: {{ messages[0].content }}")
            template.flush()
            with Server("qwen3", "--chat-template-file", template.name,
                        "--chat-template-kwargs", '{"place": "Dartmoor"}') as server:
                prompt = server.post("/apply-template", HELLO).json["prompt"]
                self.assertEqual(prompt, "Dartmoor: Why is the sky blue?")
                used = server.post(CHAT, {**HELLO, "max_tokens": 1}).json["usage"]["prompt_tokens"]
                self.assertEqual(server.post("/tokenize", HELLO).json["count"], used)
                counted = server.post(CHAT + "/input_tokens", HELLO).json["input_tokens"]
                self.assertEqual(counted, used)

    def test_reset_prefix_cache(self) -> None:
        key = {"x_api_key": "key"}
        with Server("qwen3", "--api-key", "key") as server:
            def cached() -> int:
                usage = server.post(TEXT, {"prompt": "a" * 200, "max_tokens": 1}, **key).json
                return usage["usage"]["prompt_tokens_details"]["cached_tokens"]

            self.assertTrue(cached() == 0 < cached())
            self.assertEqual(server.post("/reset_prefix_cache", None).status, 401)
            self.assertLess(0, cached())
            self.assertEqual(server.post("/reset_prefix_cache", None, **key).status, 200)
            self.assertTrue(cached() == 0 < cached())
        with Server() as server:
            self.assertEqual(server.post("/reset_prefix_cache", None).status, 403)

    def test_clients_that_come_together_compute_their_prompt_once(self) -> None:
        def ask(i: int, repeated: int) -> dict:
            return {"messages": [{"role": "system", "content": "Be brief. " * repeated},
                                 {"role": "user", "content": f"Question {i}"}],
                    "max_tokens": 4, "ignore_eos": True}

        for arch in ARCHS:
            with Server(arch, "--parallel", "10", "--cache-positions", "60000") as server:
                size = server.post(f"{CHAT}/input_tokens", ask(0, 100)).json["input_tokens"]
                bodies = [ask(i, 100 * 1900 // size) for i in range(10)]
                size = server.post(f"{CHAT}/input_tokens", bodies[0]).json["input_tokens"]
                self.assertGreater(size, 1700)
                before = server.metrics()["subbyte:computed_tokens_total"]
                with contextlib.ExitStack() as clients:
                    connections = [clients.enter_context(server.connect()) for _ in bodies]
                    for connection, body in zip(connections, bodies):
                        connection.sendall(request_bytes(CHAT, body, "Connection: close"))
                    for connection in connections:
                        self.assertIn(b" 200 OK", read_all(connection).split(b"\r\n")[0])
                computed = server.metrics()["subbyte:computed_tokens_total"] - before
                self.assertLess(computed, size + 10 * 60, arch)

    def test_the_memory_of_the_cache(self) -> None:
        with Server("qwen3", "--kv-cache-memory-bytes", "9000000", "-c", "1024") as server:
            cache = server.get("/status").json["cache"]
            self.assertLessEqual(cache["total_bytes"], 9_000_000)
            self.assertGreater(cache["total_bytes"], 8_000_000)
        for options, problem in ((["--kv-cache-memory-bytes", "1000"], "has no room for a context"),
                                 (["--gpu-memory-utilization", "0.9"], "share of a GPU's memory"),
                                 (["--gpu-memory-utilization", "1.5"], "up to 1, found 1.5")):
            found = subprocess.run([Server.program, "serve", str(model("qwen3")), "--device", "cpu",
                                    "--port", "0", *options], capture_output=True, text=True)
            self.assertEqual(found.returncode, 2, found.stderr)
            self.assertIn(problem, found.stderr)

    def test_metrics(self) -> None:
        with Server() as server:
            server.post(CHAT, {**HELLO, "max_tokens": 7, "n": 2})
            values = server.metrics()
            self.assertEqual(values["subbyte:generation_tokens_total"], 14)
            self.assertEqual(values["subbyte:request_success_total"], 2)
            self.assertEqual(values["subbyte:time_to_first_token_seconds_count"], 1)
            self.assertEqual(values["subbyte:inter_token_latency_seconds_count"], 12)
            self.assertEqual(values["subbyte:request_decode_time_seconds_count"], 1)
            self.assertEqual(values["subbyte:request_params_max_tokens_sum"], 7)
            parts = [values[f"subbyte:request_{part}_time_seconds_sum"]
                     for part in ("prefill", "decode", "inference")]
            self.assertAlmostEqual(parts[0] + parts[1], parts[2], places=3)
        options = ("--parallel", "1", "--state-cache-memory-bytes", "150000")
        with Server("qwen3.5", *options) as server:
            for last in (1, 2, 3):
                server.post(TEXT, {"prompt": [7] * 500 + [last], "max_tokens": 1})
            # The first page of the second prompt ends in it; the third finds the state there.
            self.assertEqual(server.labelled("prefix_cache_group_hits_total"),
                             {"attention": 1000, "window": 1000, "state": 500})
            self.assertEqual(server.metrics()["subbyte:discarded_steps_total"], 0)
            self.assertGreater(server.metrics()["subbyte:prefix_cache_checkpoints"], 2)
            for first in range(6):
                server.post(TEXT, {"prompt": list(range(first, 50)), "max_tokens": 1})
            self.assertGreater(server.labelled("prefix_cache_evictions_total")["checkpoint"], 0)
        with Server("qwen3", "--metrics-prefix", "vllm") as server:
            self.assertIn("vllm:num_requests_running", server.metrics())

    def test_openai_client(self) -> None:
        try:
            import openai
        except ImportError:
            self.skipTest("this Python has no package openai")
        with Server("qwen3", "--api-key", "secret") as server:
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
            self.assertEqual(client.models.retrieve(name).id, name)
            every = client.chat.completions.create(
                **{**body, "max_tokens": None}, max_completion_tokens=5, n=2, stop=["\n\n"],
                temperature=0.5, top_p=0.9, presence_penalty=0.1, frequency_penalty=0.1,
                logit_bias={"5": -100}, user="me", metadata={"a": "b"}, store=False,
                service_tier="auto", safety_identifier="me", prompt_cache_key="k",
                reasoning_effort="low", response_format={"type": "text"}, tool_choice="auto",
                parallel_tool_calls=False, modalities=["text"],
                tools=[{"type": "function", "function": {
                    "name": "add", "parameters": {"type": "object", "properties": {}}}}],
                extra_body={"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1,
                            "ignore_eos": True, "priority": 1,
                            "chat_template": "{{ tools[0].function.name }} {{ reasoning_effort }} "
                                             "{{ messages[0].content }}"})
            self.assertEqual(len(every.choices), 2)
            self.assertTrue(every.id.startswith("chatcmpl-"))
            self.assertGreater(every.created, 1.7e9)
            old = client.completions.create(model=name, prompt=["a", "b"], max_tokens=2)
            self.assertEqual(len(old.choices), 2)
            ids = client.completions.create(model=name, prompt=[[40, 41], [42]], max_tokens=2,
                                            echo=True, logprobs=2, seed=1)
            self.assertEqual(len(ids.choices[0].logprobs.token_logprobs), 4)
            self.assertIsNone(ids.choices[0].logprobs.token_logprobs[0])
            parts = list(client.completions.create(model=name, prompt=[40, 41], max_tokens=4,
                                                   seed=1, stream=True))
            whole = client.completions.create(model=name, prompt=[40, 41], max_tokens=4, seed=1)
            self.assertEqual("".join(part.choices[0].text for part in parts),
                             whole.choices[0].text)
            counted = client.post("/chat/completions/input_tokens", cast_to=dict, body=body)
            self.assertGreater(counted["input_tokens"], 3)
            with self.assertRaises(openai.BadRequestError) as wrong:
                client.chat.completions.create(**body, temperature=-1)
            self.assertEqual(wrong.exception.param, "temperature")
            with self.assertRaises(openai.NotFoundError):
                client.chat.completions.create(**{**body, "model": "other"})
            other = openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong")
            with self.assertRaises(openai.AuthenticationError):
                other.models.list()


if __name__ == "__main__":
    main()
