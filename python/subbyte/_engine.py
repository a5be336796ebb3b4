"""Many requests at once on one model, for any number of threads and tasks."""
from __future__ import annotations

import asyncio
import operator
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Union

from . import _core
from ._core import Event
from ._errors import Error
from ._paths import path_text
from ._progress import Progress, reporter
from ._sampling import SamplingParams
from ._tokenizer import Tokenizer

#: A text, or token ids, or either as vLLM has it: {"prompt": ..} or {"prompt_token_ids": ..}.
Prompt = Union[str, Sequence[int], Mapping[str, Any]]

# What other software calls options of a model, and what they are called here.
_FOREIGN = {
    "dtype": "activations", "gpu_memory_utilization": "cache_positions", "kv_cache_dtype":
    "kv_cache_type", "max_model_len": "context", "max_num_seqs": "max_sequences", "model_path":
    "model", "n_ctx": "context", "n_gpu_layers": "device", "n_threads": "threads",
}


class Stream:
    """Events of requests of an engine, as an iterator and as an asynchronous one.

    Whoever waits for events computes: one thread at a time makes a step for the requests of all,
    and hands out what came of it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue = _core.EventQueue()
        self._is_closed = False

    def __iter__(self) -> Iterator[Event]:
        while (events := self._engine._step(self)) is not None:
            yield from events

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (events := await self._engine._in_thread(self._engine._step, self)) is not None:
            for event in events:
                yield event

    def close(self) -> None:
        """Cancels what has not ended; nothing can be added any more."""
        self._is_closed = True
        self._engine._cancel(self)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine:
    """A loaded model that answers many requests at once, step by step.

    >>> engine = subbyte.Engine("demo/model")
    >>> first = engine.add("Once", subbyte.SamplingParams(max_tokens=20))
    >>> second = engine.add(messages=[{"role": "user", "content": "Why?"}])
    >>> for event in engine.events():
    ...     print(event.request_id, event.text)

    Any thread may add, wait and cancel; a step is made by one that waits. The GIL is released
    meanwhile, and Ctrl-C works between two steps.
    """

    def __init__(self, model: str | os.PathLike[str], *, device: str = "auto", threads: int = 0,
                 pin_threads: bool = False, isa: str = "", activations: str = "f32",
                 batch_invariant: bool = False, head_bits: int = 16, kv_cache_type: str = "f16",
                 context: int = 0, max_sequences: int = 8, cache_positions: int = 0, seed: int = 0,
                 progress: Progress = None, **foreign: object) -> None:
        """Opens and loads a model.

        model: a directory with config.json, an ak47 or ak48 file, or org/name[@revision] of the
            Hugging Face cache; nothing is downloaded.
        device: "cpu", "cuda", "cuda:N", or "auto": a GPU if there is one with room for the model.
        threads: of the CPU; 0: one for each processor. pin_threads keeps each on its own.
        isa: kernels of the CPU ("scalar" to "amx"); "": the best that this machine has.
        activations: "f32", "bf16", "int8"; "mxfp8" for experts, "fp8" for FP8 on Hopper.
        batch_invariant: a token's logits are the same bits alone and with others (slower).
        head_bits: 4 or 8 quantize embedding and head while they are loaded.
        kv_cache_type: "f32", "f16", "bf16" or "fp8".
        context: positions of a sample at most; 0: 4096, or fewer where the model has fewer.
        max_sequences: that run at the same time. cache_positions: of all together; 0: a context
            for each.
        seed: of requests that bring none.
        progress: told the bytes that are read and all; True: a bar of tqdm.

        Raises subbyte.Error: what is wrong with a file, an option or the machine.
        """
        for name in foreign:
            hint = f"; it is called {_FOREIGN[name]} here" if name in _FOREIGN else ""
            raise TypeError(f"unknown option {name}{hint}")
        with reporter(progress, "loading", "B") as tell:
            self._session = _core.Session(
                path_text(model), device=device, threads=threads, pin_threads=pin_threads, isa=isa,
                activations=activations, batch_invariant=batch_invariant, head_bits=head_bits,
                kv_cache_type=kv_cache_type, context=context, max_sequences=max_sequences,
                cache_positions=cache_positions, seed=seed, progress=tell)
        self.model = path_text(model)
        self.tokenizer = Tokenizer._of(self._session.tokenizer)
        self._lock = threading.Lock()  # who has it uses the session
        self._to_cancel: deque[int | Stream] = deque()
        self._shared = Stream(self)  # of requests that add() has added
        # One thread for all tasks: each step of it is one for all requests.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="subbyte")

    # --- requests

    def add(self, prompt: Prompt | None = None, sampling_params: SamplingParams | None = None, *,
            messages: Sequence[Mapping[str, Any]] | None = None,
            chat_template_kwargs: Mapping[str, Any] | None = None,
            parse_special: bool = False) -> int:
        """Puts a request at the end of the queue and returns its number; nothing is computed.

        It goes on with a prompt or answers messages; chat_template_kwargs are variables of the
        template, such as {"enable_thinking": False}. `parse_special`: control tokens in a prompt
        that is a text are those, and not their letters. Raises subbyte.Error, with code
        model.context_full for a prompt that leaves no room for a token.
        """
        if (prompt is None) == (messages is None):
            raise Error("expected either a prompt or messages", "completion.prompt")
        head = ({"prompt": _plain(prompt)} if prompt is not None
                else _chat_of(messages or (), chat_template_kwargs))
        return self._start(self._read(head, sampling_params, parse_special), self._shared)

    def events(self) -> Iterator[Event]:
        """What comes of the requests that add() has added, until all of them have ended."""
        return iter(self._shared)

    def events_async(self) -> AsyncIterator[Event]:
        """The same for `async for`."""
        return self._shared.__aiter__()

    def cancel(self, request_id: int) -> None:
        """Ends a request: at once, or after the step that is being made. No event comes of it."""
        self._cancel(request_id)

    def _cancel(self, what: int | Stream) -> None:
        """A request, or all that a stream has."""
        self._to_cancel.append(what)
        if self._lock.acquire(blocking=False):  # else who has it does so
            try:
                self._cancel_all()
            finally:
                self._lock.release()

    @property
    def num_running(self) -> int:
        """Samples that are computed now."""
        return self._session.num_running

    @property
    def num_waiting(self) -> int:
        """Samples that wait for their turn."""
        return self._session.num_waiting

    # --- the model

    @property
    def device(self) -> str:
        """The machine, such as "avx2 kernels, 8 threads"."""
        return self._session.device

    @property
    def device_choice(self) -> str:
        """What the device "auto" took, and why; empty where another one was asked for."""
        return self._session.device_choice

    @property
    def context(self) -> int:
        """Positions of a sample at most."""
        return self._session.context

    @property
    def model_type(self) -> str:
        """The family of the model, such as "qwen3"."""
        return self._session.model_type

    @property
    def vocab_size(self) -> int:
        """Logits of a token."""
        return self._session.vocab_size

    def perplexity(self, text: str | Sequence[int], *, window: int = 512,
                   progress: Progress = None) -> dict[str, Any]:
        """How well the model predicts a text, or token ids, in windows that do not overlap.

        Returns "perplexity" (per token), "nats" (the sum of the negative log likelihoods),
        "scored" (tokens that were predicted), "tokens", "window" and, of a text, "bytes" and
        "nats_per_byte". Raises subbyte.Error: perplexity.too_short, perplexity.window,
        usage.context, session.busy while requests are on their way.
        """
        tokens = self.tokenizer.encode(text) if isinstance(text, str) else list(text)
        with reporter(progress, "perplexity", "token") as tell, self._lock:
            per_token, nats, scored = self._session.perplexity(tokens, window, tell)
        result: dict[str, Any] = {"perplexity": per_token, "nats": nats, "scored": scored,
                                  "tokens": len(tokens), "window": window}
        if isinstance(text, str):
            result["bytes"] = len(text.encode())
            result["nats_per_byte"] = nats / result["bytes"]
        return result

    def logits(self, text: str | Sequence[int], *, progress: Progress = None) -> Any:
        """Logits after each token of a text or of token ids: numpy float32 [tokens, vocab_size].

        Raises subbyte.Error: usage.context, model.token_range, session.busy.
        """
        tokens = self.tokenizer.encode(text) if isinstance(text, str) else list(text)
        with reporter(progress, "logits", "token") as tell, self._lock:
            return self._session.logits(tokens, tell)

    # --- what streams share

    def _read(self, body: Mapping[str, Any], sampling_params: SamplingParams | None = None,
              parse_special: bool = False) -> _core.Request:
        """A request in OpenAI's form, with what the parameters add."""
        params = sampling_params or _NO_PARAMS
        more = params._body(is_chat="messages" in body) if sampling_params else {}
        return self._session.read({**body, **more}, parse_special, params.prompt_logprobs)

    def _start(self, request: _core.Request, stream: Stream) -> int:
        with self._lock:
            if stream._is_closed:
                raise Error("the request was cancelled before it was added", "session.cancelled")
            request_id: int = self._session.add(request, stream._queue)
            self._cancel_all()
        return request_id

    def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """A call that does not keep a task's loop waiting."""
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _step(self, stream: Stream) -> list[Event] | None:
        """The next events of a stream: those that are there, or what comes of a step, perhaps
        none; None where all its requests have ended."""
        with self._lock:
            self._cancel_all()
            events = stream._queue.take()
            if events or not stream._queue.is_open:
                return events or None
            self._session.step()
            self._cancel_all()
            return stream._queue.take()

    def _cancel_all(self) -> None:
        while self._to_cancel:
            what = self._to_cancel.popleft()
            for request_id in [what] if isinstance(what, int) else what._queue.open_requests:
                self._session.cancel(request_id)


_NO_PARAMS = SamplingParams()


def _chat_of(messages: Sequence[Mapping[str, Any]],
             chat_template_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    chat: dict[str, Any] = {"messages": [dict(message) for message in messages]}
    if chat_template_kwargs:
        chat["chat_template_kwargs"] = dict(chat_template_kwargs)
    return chat


def _plain(prompt: Prompt | None) -> str | list[int]:
    if isinstance(prompt, Mapping):
        ids = prompt.get("prompt_token_ids")
        prompt = ids if ids is not None else prompt.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if prompt is None:
        raise Error("expected \"prompt\" or \"prompt_token_ids\"", "completion.prompt")
    if isinstance(prompt, (bytes, bytearray)):
        raise TypeError("a prompt is a text or token ids, not bytes: decode() makes a text of them")
    return [operator.index(token) for token in prompt]
