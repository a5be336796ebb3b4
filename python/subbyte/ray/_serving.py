"""The application of Ray Serve: replicas that are `subbyte serve`, and what passes requests on.

    client -> proxy of Ray -> Ingress -> router of Ray -> Replica -> subbyte serve

Annotations are no texts here, as Ray reads that of application().
"""
import argparse
import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
import yarl
from pydantic import (BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt,
                      PositiveFloat, PositiveInt)
from ray import serve
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator
from ray.serve.schema import LoggingConfig
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ._paths import absolute
from ._routing import routing_key
from ._server import Server

#: A name of a conversation chooses a place on a ring, and the ring the order of the replicas.
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"


class ServerEndedError(Exception):
    """The server of a replica has ended before it answered, and the replica ends, too."""


#: What a request is sent again after: its replica is gone, or its server. Once, as it may be why.
LOST = (ActorDiedError, ActorUnavailableError, ServerEndedError)
TRIES = 2
HEALTH_SECONDS = 10
USUAL_PARALLEL = 8  # of subbyte serve
#: Within which a replica is gone whose server is, and a server that answers nothing has ended.
END_SECONDS = 5
MAX_PASSED_ON = 100_000  # requests at one ingress
#: Fields that are about one connection, or that are made anew.
OF_CONNECTION = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te",
                 "trailer", "transfer-encoding", "upgrade", "content-length", "expect", "date"}
#: The end of paths that one replica would answer as if it were all.
OF_ONE_REPLICA = "/reset_prefix_cache"


class Settings(BaseModel):
    """What an application is made of."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="directory, file or org/name, on every machine")
    options: str = Field("", description="further ones of `subbyte serve`, as a shell has them")
    program: str = Field("", description="run instead of the program of the package")
    replicas: PositiveInt = Field(1, description="at least so many")
    max_replicas: int = Field(0, description="at most so many, where that is more")
    target_requests: NonNegativeFloat = Field(
        0, description="in progress for each replica, which their number aims at; 0: --parallel")
    max_requests: NonNegativeInt = Field(
        0, description="in progress at one replica; further ones go to the next of their order; "
                       "0: twice --parallel")
    cpus: PositiveFloat = Field(1, description="processors of each replica")
    gpus: float = Field(0, description="GPUs of each replica")
    max_body_bytes: PositiveInt = Field(32 << 20, description="of a request; then 413")
    ingresses: PositiveInt = Field(1, description="processes that pass requests on")
    up_seconds: float = Field(30, description="of long queues before there are more replicas")
    down_seconds: float = Field(600, description="of short queues before there are fewer")
    drain_seconds: PositiveFloat = Field(
        30, description="that answers have to end in where a replica is taken away")


def program_words(settings: Settings) -> list[str]:
    """The program and its first arguments."""
    return shlex.split(settings.program) or [sys.executable, "-m", "subbyte"]


def serve_options(settings: Settings) -> list[str]:
    """Options of the program: as many threads as processors where nothing else is said."""
    options = ["--max-body-bytes", str(settings.max_body_bytes), *shlex.split(settings.options)]
    if not settings.gpus and not {"-t", "--threads"} & set(options):
        options = ["--threads", str(max(1, int(settings.cpus))), *options]
    return options


def parallel_of(settings: Settings) -> int:
    """Samples that a server computes at once: what its options say, or else what is usual."""
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--parallel", "--max-num-seqs", "-np", default="")
    said = options.parse_known_args(shlex.split(settings.options))[0].parallel
    return int(said) if said.isdigit() and int(said) > 0 else USUAL_PARALLEL


@dataclass(frozen=True)
class Question:
    """A request as it goes to a replica."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """The head of an answer and its body, or the first bytes of one that comes as a stream."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def is_stream(self) -> bool:
        """Whether more bytes follow."""
        return any(name.lower() == "content-type" and value.startswith("text/event-stream")
                   for name, value in self.headers)


class Replica:
    """A `subbyte serve`. Where it ends, this process ends, and Ray starts another one."""

    def __init__(self, settings: Settings) -> None:
        """Starts it and waits until the model is loaded. Raises RuntimeError where it is not."""
        self._name = serve.get_replica_context().replica_id.unique_id
        self._session: aiohttp.ClientSession | None = None
        self._server = Server(program_words(settings), settings.model, serve_options(settings),
                              lambda code: os._exit(1))

    async def answer(self, question: Question) -> AsyncIterator[Answer | bytes]:
        """Asks the server; an Answer comes first, and then the other bytes of a stream."""
        try:
            async for part in self._answer(question):
                yield part
        except aiohttp.ClientError:
            if await self._is_healthy():
                raise
            # Where the server has ended, this process does so now: what asks hears of that, and
            # sends nothing more here. One that ends in order, or late, says so.
            if not self._server.is_stopping:
                await asyncio.sleep(END_SECONDS)
            raise ServerEndedError from None

    async def _answer(self, question: Question) -> AsyncIterator[Answer | bytes]:
        async with self._client().request(
                question.method, address_of(self._server.address, question.path),
                headers=question.headers, data=question.body or None,
                allow_redirects=False) as response:
            headers = [(name, value) for name, value in response.headers.items()
                       if name.lower() not in OF_CONNECTION]
            answer = Answer(response.status, [*headers, ("x-subbyte-replica", self._name)], b"")
            if not answer.is_stream:
                yield Answer(answer.status, answer.headers, await response.read())
                return
            yield Answer(answer.status, answer.headers, await response.content.readany())
            async for part in response.content.iter_any():
                yield part

    async def check_health(self) -> None:
        """Raises where the server does not answer, or says that it has failed."""
        async with self._client().get(self._server.address + "/health",
                                      timeout=aiohttp.ClientTimeout(HEALTH_SECONDS)) as response:
            response.raise_for_status()

    async def _is_healthy(self) -> bool:
        """Whether the server is there, and its backend."""
        try:
            await self.check_health()
        except Exception:  # whatever it is, there was no answer
            return False
        return True

    def __del__(self) -> None:
        """Ends the server; Ray calls this when nothing is in progress any more."""
        if hasattr(self, "_server"):
            self._server.stop(END_SECONDS)

    def _client(self) -> aiohttp.ClientSession:
        """Connections to the server, which wait for as long as it does."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None))
        return self._session


class Ingress:
    """Passes requests on to replicas, and once more where one is lost before it answers."""

    def __init__(self, replicas: DeploymentHandle, max_body_bytes: int) -> None:
        """Takes the replicas of the application, and the limit of bodies."""
        self._replicas = replicas.options(method_name="answer", stream=True)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, request: Request) -> Response:
        """Answers a request of HTTP."""
        target = target_of(request.scope)
        if not target:
            return problem(400, "a path goes on with / after the route of its application")
        if unquote(target.partition("?")[0]).rstrip("/").endswith(OF_ONE_REPLICA):
            return problem(501, f"{OF_ONE_REPLICA} would reach one replica of several")
        read = bytearray()
        async for part in request.stream():
            read += part
            if len(read) > self._max_body_bytes:
                return problem(413, f"the body has more than {self._max_body_bytes} bytes")
        body = bytes(read)
        handle = self._replicas.options(session_id=routing_key(request.headers, body))
        headers = [(name, value) for name, value in request.headers.items()
                   if name not in OF_CONNECTION]
        try:
            answer, rest = await begin(handle, Question(request.method, target, headers, body))
        except BackPressureError:
            return problem(429, "as many requests wait as may")
        except (*LOST, DeploymentUnavailableError):
            return problem(503, f"{TRIES} replicas were lost before one answered")
        except RayError:
            return problem(502, "the server of a replica gave no answer")
        if answer.is_stream:
            return with_headers(StreamingResponse(whole_events(answer.body, rest), answer.status),
                                answer)
        return with_headers(Response(answer.body, answer.status), answer)


async def begin(handle: DeploymentHandle,
                question: Question) -> tuple[Answer, DeploymentResponseGenerator[Any]]:
    """Asks a replica, and another one where it is lost; raises what the last of them met."""
    for _ in range(TRIES - 1):
        rest = handle.remote(question)
        try:
            return await anext(rest), rest
        except LOST:
            pass
    rest = handle.options(session_id="").remote(question)  # not where the name would lead again
    return await anext(rest), rest


def target_of(scope: Mapping[str, Any]) -> str:
    """The path as the client wrote it, below the route of the application, with its query.

    "" where it does not go on with a slash: the proxy has matched the route with a path without
    escapes, whose slash may be written %2F.
    """
    written = scope.get("raw_path") or quote(scope["path"]).encode()
    path = written.decode("latin-1").removeprefix(scope.get("root_path", "")) or "/"
    if not path.startswith("/"):
        return ""
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query else path


def address_of(server: str, target: str) -> yarl.URL:
    """Where a server has a target, none of which changes the server."""
    path, _, query = target.partition("?")
    return yarl.URL.build(scheme="http", authority=yarl.URL(server).authority, path=path,
                          query_string=query, encoded=True)


async def whole_events(first: bytes,
                       rest: DeploymentResponseGenerator[Any]) -> AsyncIterator[bytes]:
    """The events of a stream, none of which is cut; the last is an error where it is lost."""
    kept = b""
    part = first
    try:
        while True:
            events, separator, kept = (kept + part).rpartition(b"\n\n")
            if events:
                yield events + separator
            part = await anext(rest)
    except StopAsyncIteration:
        if kept:
            yield kept
    except RayError:
        text = problem_text(503, "the replica was lost before the answer was whole")
        yield b"data: " + text + b"\n\n"
    finally:
        rest.cancel()


def with_headers(response: Response, answer: Answer) -> Response:
    """Gives a response the fields of an answer."""
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response


def problem_text(status: int, message: str) -> bytes:
    """An error as OpenAI has it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return json.dumps({"error": {"message": message, "type": kind, "param": None,
                                 "code": "cluster.replica"}}).encode()


def problem(status: int, message: str) -> Response:
    """An answer that is an error."""
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    return Response(problem_text(status, message), status, headers, "application/json")


def application(settings: Settings) -> serve.Application:
    """The application, for serve.run() and for `serve run subbyte.ray:application model=...`."""
    most = max(settings.replicas, settings.max_replicas)
    parallel = parallel_of(settings)
    quiet = LoggingConfig(enable_access_log=False)
    replicas = serve.deployment(Replica).options(
        name="replica", logging_config=quiet,
        max_ongoing_requests=settings.max_requests or 2 * parallel,
        ray_actor_options={"num_cpus": settings.cpus, "num_gpus": settings.gpus},
        autoscaling_config=AutoscalingConfig(
            min_replicas=settings.replicas, max_replicas=most, initial_replicas=settings.replicas,
            target_ongoing_requests=settings.target_requests or parallel,
            upscale_delay_s=settings.up_seconds, downscale_delay_s=settings.down_seconds),
        health_check_period_s=1, health_check_timeout_s=HEALTH_SECONDS,
        graceful_shutdown_wait_loop_s=0.5, graceful_shutdown_timeout_s=settings.drain_seconds,
        request_router_config=RequestRouterConfig(
            request_router_class=ROUTER, request_router_kwargs={"num_fallback_replicas": most}))
    ingress = serve.deployment(Ingress).options(
        name="ingress", logging_config=quiet, num_replicas=settings.ingresses,
        max_ongoing_requests=MAX_PASSED_ON, ray_actor_options={"num_cpus": 0})
    there = settings.model_copy(update={"model": absolute(settings.model)})
    return ingress.bind(replicas.bind(there), settings.max_body_bytes)
