#!/usr/bin/env python3
"""Replicas of `subbyte serve` on a local cluster of Ray: what is routed where, and what is lost.

    ray_serve_test.py [--requests N] [TEST...]

Wants an interpreter with the package and with Ray: ./dev cluster-test ray makes one.
"""
from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from urllib.parse import unquote

import ray
from ray import serve
from ray_cluster import (CHAT, FOLDER, PORT, Load, ask, deploy, environment, kill, model, question,
                         servers, start_ray, wait_until)

from subbyte.ray import Settings
from subbyte.ray.__main__ import place_of_serve
from subbyte.ray._routing import routing_key
from subbyte.ray._serving import END_SECONDS, address_of, parallel_of, target_of

NUM_REQUESTS = 2000
COMMAND = [sys.executable, "-m", "subbyte.ray", "serve"]


class Routes(unittest.TestCase):
    """What the name of a conversation follows from."""

    @staticmethod
    def key(body: object, **headers: str) -> str:
        return routing_key({name.replace("_", "-"): value for name, value in headers.items()},
                           json.dumps(body).encode())

    def test_turns_of_a_conversation_are_together(self) -> None:
        system = {"role": "system", "content": "Be brief."}
        first = {"role": "user", "content": "Hello"}
        turns = [system, first, {"role": "assistant", "content": "Hi"},
                 {"role": "user", "content": "Why?"}]
        key = self.key({"messages": [system, first]})
        self.assertEqual(key, self.key({"messages": turns, "temperature": 0, "stream": True}))
        self.assertNotEqual(key, self.key({"messages": [first]}))
        self.assertNotEqual(key, self.key({"messages": turns, "cache_salt": "mine"}))
        self.assertNotEqual(key, self.key({"messages": turns, "tools": [{"type": "function"}]}))
        self.assertNotEqual(key, self.key({"messages": [system, {**first, "content": "Ho"}]}))

    def test_prompts_that_begin_alike_are_together(self) -> None:
        text = "a" * 1024
        self.assertEqual(self.key({"prompt": text + "b"}), self.key({"prompt": [text + "c"]}))
        self.assertNotEqual(self.key({"prompt": "b" + text}), self.key({"prompt": text}))
        ids = list(range(256))
        self.assertEqual(self.key({"prompt": [*ids, 1]}), self.key({"prompt": [[*ids, 2], [3]]}))
        self.assertNotEqual(self.key({"prompt": [1, *ids]}), self.key({"prompt": ids}))

    def test_a_session_comes_first(self) -> None:
        for body in ({"prompt": "a"}, {"prompt": "b"}, 7):
            self.assertEqual(self.key(body, x_session_id="me"), "session me")

    def test_what_is_no_request_has_no_name(self) -> None:
        for body in (b"", b"{", b"[" * 100_000, b"7", b"[]", b'{"messages": []}', b"\xff",
                     b'{"prompt": ""}', b'{"prompt": 7}', b'{"messages": "a"}'):
            self.assertEqual(routing_key({}, body), "", body)
        for body in (b'{"messages": [7, null]}', b'{"prompt": [null]}', b'{"prompt": [[]]}'):
            self.assertNotEqual(routing_key({}, body), "")


class Sizes(unittest.TestCase):
    def test_requests_at_once_are_those_of_the_options(self) -> None:
        for options, parallel in (("", 8), ("--parallel 64", 64), ("-t 2 --parallel=3", 3),
                                  ("--max-num-seqs 5 --seed 7", 5)):
            self.assertEqual(parallel_of(Settings(model="m", options=options)), parallel, options)


class Targets(unittest.TestCase):
    """What of a path goes to a server. `python -m unittest ray_serve_test.Targets` is enough."""

    @staticmethod
    def target(written: str, route: str = "/second", query: str = "") -> str:
        return target_of({"path": unquote(written), "raw_path": written.encode("latin-1"),
                          "root_path": route.rstrip("/"), "query_string": query.encode()})

    def test_it_is_what_follows_the_route(self) -> None:
        self.assertEqual(self.target("/second"), "/")
        self.assertEqual(self.target("/second/v1/a%2Fb%20c", query="d=%41"), "/v1/a%2Fb%20c?d=%41")
        self.assertEqual(self.target("/second/second/"), "/second/")
        self.assertEqual(self.target("/second", route="/"), "/second")
        self.assertEqual(target_of({"path": "/a b"}), "/a%20b")

    def test_what_goes_on_without_a_slash_is_none(self) -> None:
        for written in ("%2F@127.0.0.2:1/x", "%2f", "%2F:1/x", "%2F/x", "#@evil"):
            self.assertEqual(self.target(f"/second{written}", query="q"), "", written)
        for written in ("*", "@evil/x", "http://evil/x"):
            self.assertEqual(self.target(written, route="/"), "", written)

    def test_no_target_changes_the_server(self) -> None:
        for target in ("/", "//evil/x", "/@evil:1/x", "/%2F@evil?a=@evil", "/\\@evil", "/#@evil",
                       "%2F@evil/x", "@evil/x", ":1/x", "//u:p@evil:1/x?q", "?q"):
            found = address_of("http://127.0.0.1:4000", target)
            self.assertEqual((found.scheme, found.host, found.port, found.user),
                             ("http", "127.0.0.1", 4000, None), target)
        self.assertEqual(address_of("http://127.0.0.1:4000", "/a%2Fb?c=%41").raw_path_qs,
                         "/a%2Fb?c=%41")


class Places(unittest.TestCase):
    """Of the Serve that runs, which a function says that is private to Ray."""

    def test_another_ray_does_not_say_it(self) -> None:
        self.assertEqual(place_of_serve().port, PORT)
        name = "ray.serve.context._get_global_client"
        with unittest.mock.patch(name, side_effect=TypeError):
            self.assertIsNone(place_of_serve())
        with unittest.mock.patch(name, return_value=object()):
            self.assertIsNone(place_of_serve())
        with unittest.mock.patch(name):
            del ray.serve.context._get_global_client
            self.assertIsNone(place_of_serve())


class Answers(unittest.TestCase):
    """With three replicas of which none is lost."""

    @classmethod
    def setUpClass(cls) -> None:
        deploy()

    def test_a_stream_is_the_whole_answer(self) -> None:
        whole = ask(question("Hello"))
        stream = ask(question("Hello", stream=True))
        self.assertEqual((whole.status, stream.status), (200, 200))
        self.assertEqual(whole.content, stream.content)
        self.assertEqual(stream.headers["content-type"].partition(";")[0], "text/event-stream")

    def test_conversations_stay_where_their_prefix_is(self) -> None:
        places = set()
        for i in range(12):
            first = ask(question(f"Conversation {i}"))
            body = question(f"Conversation {i}")
            body["messages"] += [{"role": "assistant", "content": first.content},
                                 {"role": "user", "content": "And then?"}]
            second = ask(body)
            self.assertEqual(first.replica, second.replica)
            usage = json.loads(second.text)["usage"]
            self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
            places.add(first.replica)
        self.assertEqual(len(places), 3)

    def test_sessions_stay_together(self) -> None:
        places = {ask(question(f"Message {i}"), x_session_id="me").replica for i in range(8)}
        self.assertEqual(len(places), 1)

    def test_refusals_come_through(self) -> None:
        answer = ask({**question("Hello"), "temperature": -1})
        self.assertEqual(answer.status, 400)
        self.assertEqual(json.loads(answer.text)["error"]["param"], "temperature")
        self.assertEqual(ask("{").status, 400)
        self.assertEqual(ask(None, "GET", "/none").status, 404)
        answer = ask(None, "PUT", "/health")
        self.assertEqual((answer.status, answer.headers["allow"][:3]), (405, "GET"))
        self.assertEqual(ask(None, "GET", "/health", Host="evil.example").status, 403)
        self.assertEqual(ask(question("a"), Origin="https://evil").status, 403)
        self.assertEqual(ask(None, path="/reset_prefix_cache").status, 501)
        for path in ("/./reset_prefix_cache", "/x/../reset_prefix_cache", "/reset%5Fprefix_cache/"):
            self.assertEqual(ask(None, path=path).status, 501, path)
        self.assertEqual(ask(None, "GET", "/v1/../health").status, 404)  # nothing is normalized
        self.assertEqual(ask("x" * 1_000_001).status, 413)

    def test_other_paths(self) -> None:
        self.assertEqual(ask(None, "GET", "/ready").status, 200)
        self.assertIn("<html", ask(None, "GET", "/").text)
        self.assertEqual(json.loads(ask({"prompt": "Hello"}, path="/tokenize").text)["count"],
                         len(json.loads(ask({"prompt": "Hello"}, path="/tokenize").text)["tokens"]))
        answer = ask(question("Hello"), x_request_id="mine")
        self.assertEqual(answer.headers["x-request-id"], "mine")

    def test_who_goes_away_ends_the_request(self) -> None:
        for stream in (True, False):
            body = json.dumps(question("Long", max_tokens=1900, stream=stream))
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
            connection.request("POST", CHAT, body, {"x-session-id": "gone"})
            wait_until(lambda: self.running() == 1)
            connection.sock.close()
            connection.close()
            wait_until(lambda: self.running() == 0)

    @staticmethod
    def running() -> int:
        status = json.loads(ask(None, "GET", "/status", x_session_id="gone").text)
        return status["running"] + status["waiting"]

    def test_one_that_is_overloaded_is_helped(self) -> None:
        """At most 16 requests are at a replica: others of a session go to the next."""
        places: list[str] = []
        threads = [threading.Thread(target=lambda: places.append(
            ask(question("Long", max_tokens=400), x_session_id="many").replica))
            for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(places.count(place) for place in set(places)), [8, 16])


class Losses(unittest.TestCase):
    def setUp(self) -> None:
        """None of an application before is there, which might be killed in place of one."""
        serve.delete("subbyte")
        wait_until(lambda: not servers())
        deploy()
        wait_until(lambda: len(servers()) == 3)

    def test_nothing_is_lost_with_a_server(self) -> None:
        """One of three is killed under load; Ray starts another one."""
        load = Load(NUM_REQUESTS)
        before = servers()
        begin = time.monotonic()
        load.start()
        wait_until(lambda: load.done > NUM_REQUESTS // 4)
        killed = next(iter(before))
        kill(killed)
        seconds = wait_until(lambda: len(servers()) == 3 and killed not in servers())
        load.wait()
        taken = time.monotonic() - begin
        print(f"{load.done} requests in {taken:.1f} s, {len(load.wrong)} lost, {load.cut} "
              f"streams cut; another server was started within {seconds:.1f} s")
        self.assertEqual(load.wrong, [])
        self.assertEqual(load.done, NUM_REQUESTS)
        self.assertEqual(ask(None, "GET", "/ready").status, 200)

    def test_nothing_is_lost_with_its_process_of_ray(self) -> None:
        load = Load(NUM_REQUESTS // 4)
        before = servers()
        load.start()
        wait_until(lambda: load.done > load.requests // 4)
        server, replica = next(iter(before.items()))
        kill(replica)
        wait_until(lambda: server not in servers())  # no orphan
        load.wait()
        self.assertEqual(load.wrong, [])
        wait_until(lambda: len(servers()) == 3)

    def test_streams_that_have_begun_end_with_an_error(self) -> None:
        answers = []
        threads = [threading.Thread(target=lambda i=i: answers.append(
            ask(question(f"Stream {i}", stream=True, max_tokens=1900)))) for i in range(12)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        kill(next(iter(servers())))
        for thread in threads:
            thread.join()
        lost = [answer for answer in answers if answer.events[-1] != "[DONE]"]
        self.assertTrue(0 < len(lost) < 12)
        for answer in lost:
            error = json.loads(answer.events[-1])["error"]
            self.assertEqual(error["code"], "cluster.replica")
            for event in answer.events[:-1]:
                self.assertIn("choices", json.loads(event))
        self.assertEqual(len({answer.replica for answer in lost}), 1)


class Causes(unittest.TestCase):
    """Of what requests meet; what they ask is a stand-in for the program."""

    def setUp(self) -> None:
        deploy(program=f"{sys.executable} {Path(__file__).with_name('fragile_serve.py')}")
        wait_until(lambda: len(servers()) == 3)

    def test_a_connection_that_is_cut_is_told_at_once(self) -> None:
        before = set(servers())
        begin = time.monotonic()
        answer = ask({"prompt": "cut"}, path="/v1/completions")
        self.assertLess(time.monotonic() - begin, END_SECONDS)
        self.assertEqual(answer.status, 502)
        self.assertEqual(set(servers()), before)

    def test_a_server_that_is_gone_before_its_process_is_none(self) -> None:
        """The request is sent to another one."""
        before = set(servers())
        answer = ask({"prompt": f"deaf {FOLDER.name}/deaf."}, path="/v1/completions")
        self.assertEqual((answer.status, answer.text), (200, "{}"))
        wait_until(lambda: len(servers()) == 3 and set(servers()) != before)  # by its health

    def test_a_request_that_ends_servers_ends_two(self) -> None:
        """Of three."""
        before = set(servers())
        answer = ask({"prompt": "end"}, path="/v1/completions")
        self.assertEqual(answer.status, 503)
        self.assertEqual(len(before - set(servers())), 2)
        self.assertEqual(ask({"prompt": "stay"}, path="/v1/completions").status, 200)


class Numbers(unittest.TestCase):
    """Of replicas, while requests are answered."""

    def test_one_that_is_taken_away_ends_its_answers_first(self) -> None:
        deploy(replicas=3)
        wait_until(lambda: len(servers()) == 3)
        load = Load(NUM_REQUESTS // 4)
        load.TOKENS = 40
        load.known = {kind: ask(load.body(kind)).content for kind in range(load.KINDS)}
        load.start()
        wait_until(lambda: load.done > 10)
        deploy(replicas=1)
        wait_until(lambda: len(servers()) == 1)
        load.wait()
        self.assertEqual((load.wrong, load.cut), ([], 0))

    def test_there_are_more_where_many_wait(self) -> None:
        deploy(replicas=1, max_replicas=2, up_seconds=1, target_requests=2)
        wait_until(lambda: len(servers()) == 1)
        threads = [threading.Thread(target=lambda i=i: [ask(
            question(f"{i}", max_tokens=200)).content for _ in range(30)]) for i in range(12)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(servers()) == 2)
        for thread in threads:
            thread.join()
        wait_until(lambda: len(servers()) == 1)


class Starts(unittest.TestCase):
    def test_a_model_that_does_not_load_is_told(self) -> None:
        with self.assertRaises(RuntimeError):
            deploy(model="/nowhere", replicas=1)
        status = serve.status().applications["subbyte"]
        self.assertIn("model.not_found", str(status))

    def test_hosts_that_others_reach_want_a_key(self) -> None:
        open_to_all = self.command("--host", "0.0.0.0")
        self.assertEqual(open_to_all.returncode, 2)
        self.assertIn("--api-key-file", open_to_all.stderr)
        # With one it comes as far as the Serve that runs here.
        with_key = self.command("--host", "0.0.0.0", "--", "--api-key-file=/keys")
        self.assertIn(f"listens on 127.0.0.1:{PORT}", with_key.stderr)

    def test_what_is_typed_wrongly_is_a_line(self) -> None:
        found = self.command("--replicas", "0")
        self.assertEqual(found.returncode, 2)
        self.assertRegex(found.stderr, r"\Asubbyte.ray: --replicas: .*\n\Z")

    def test_other_applications_stay(self) -> None:
        deploy(replicas=1)
        taken = self.command("--port", str(PORT))
        self.assertEqual(taken.returncode, 2)
        self.assertIn("--replace", taken.stderr)
        second = subprocess.Popen(
            [*COMMAND, str(model()), "--port", str(PORT), "--name", "second", "--route", "/second"],
            env=environment(), stderr=subprocess.DEVNULL)
        wait_until(lambda: ask(None, "GET", "/second/ready").status == 200)
        self.assertEqual(ask(question("Hello"), path=f"/second{CHAT}").status, 200)
        for words in (("--name", "third"), ("--name", "second", "--replace")):  # both with route /
            refused = self.command("--port", str(PORT), *words)
            self.assertEqual(refused.returncode, 2)
            self.assertRegex(refused.stderr, r"(?m)^subbyte.ray: Prefix / is .*\n\Z")
            self.assertNotIn("Traceback", refused.stderr)
        self.assertEqual(ask(None, "GET", "/second/ready").status, 200)
        self.assertEqual(ask(None, "GET", "/second%2F@127.0.0.2:1/x").status, 400)
        second.terminate()
        self.assertEqual(second.wait(60), 0)
        self.assertEqual(ask(question("Hello")).status, 200)
        self.assertEqual(ask(None, "GET", "/second/ready").status, 404)

    @staticmethod
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, str(model()), *words], capture_output=True, text=True,
                              env=environment(), timeout=60)


def main() -> int:
    global NUM_REQUESTS
    words = sys.argv[1:]
    if "--requests" in words:
        at = words.index("--requests")
        NUM_REQUESTS = int(words[at + 1])
        del words[at:at + 2]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    start_ray()
    try:
        program = unittest.main(argv=[sys.argv[0], *words], exit=False)
    finally:
        serve.shutdown()
        ray.shutdown()
    wait_until(lambda: not servers())  # none is left
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
