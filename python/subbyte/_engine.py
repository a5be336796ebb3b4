"""Many requests at once on one model, for any number of threads and tasks."""
from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Union

from . import _core
from ._arguments import flag, integer, items, path, refusal, text, token_ids
from ._chat_formats import Template, template_of
from ._checkpoint import open_checkpoint
from ._core import Event
from ._errors import Error
from ._foreign import takes_foreign
from ._progress import Progress, reporter
from ._sampling import SamplingParams
from ._tokenizer import Tokenizer

#: A text, or token ids, or either as vLLM has it: {"prompt": ..} or {"prompt_token_ids": ..}.
Prompt = Union[str, Sequence[int], Mapping[str, Any]]

#: Messages of a conversation: dicts with "role" and "content".
Messages = Sequence[Mapping[str, Any]]


class Stream:
    """Events of requests of an engine, as an iterator and as an asynchronous one.

    Whoever waits for events computes: one thread at a time makes a step for the requests of all,
    and hands out what came of it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue = _core.EventQueue()

    def __iter__(self) -> Iterator[Event]:
        while (events := self._step()) is not None:
            yield from events

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (events := await self._engine._in_thread(self._step)) is not None:
            for event in events:
                yield event

    def _step(self) -> list[Event] | None:
        """The next events: those that are there, or what comes of a step, perhaps none; None where
        all requests have ended."""
        return self._engine._session.step(self._queue)

    def start(self, request: _core.Request) -> int:
        """Adds a request, whose events come from here, and returns its number."""
        return self._engine._session.add(request, self._queue)

    def close(self) -> None:
        """Cancels what has not ended; nothing can be added any more."""
        self._engine._session.cancel_all(self._queue)

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

    @takes_foreign("LLM")
    def __init__(self, model: str | os.PathLike[str], *, device: str = "auto", threads: int = 0,
                 pin_threads: bool = False, isa: str = "", activations: str = "f32",
                 batch_invariant: bool = False, tensor_parallel_size: int = 1,
                 pipeline_parallel_size: int = 1, gpu_layers: int = -1,
                 head_bits: int = 16, kv_cache_type: str = "f16", context: int = 0,
                 max_sequences: int = 8, cache_positions: int = 0,
                 enable_prefix_caching: bool = True, seed: int = 0,
                 progress: Progress = None, revision: str | None = None,
                 quantization: str | None = None,
                 tokenizer: str | os.PathLike[str] | None = None,
                 chat_template: Template = None,
                 chat_format: str | None = None) -> None:
        """Opens and loads a model.

        model: a directory with config.json, a GGUF, ak47 or ak48 file, or org/name[@revision] of
            the Hugging Face cache; nothing is downloaded.
        device: "cpu", "cuda", "cuda:N", or "auto": a GPU if there is one with room for the model.
        threads: of the CPU; 0: one for each processor. pin_threads keeps each on its own.
        isa: kernels of the CPU ("scalar" to "amx"); "": the best that this machine has.
        activations: "f32", "bf16", "int8"; "mxfp8" for experts, "fp8" for FP8 on Hopper.
        batch_invariant: a token's logits are the same bits alone and with others (slower).
        tensor_parallel_size: ranks that divide every weight and the cache among them: as many GPUs
            from that of device on, or groups of a CPU's threads.
        pipeline_parallel_size: stages that have some of the layers each: as many GPUs from that of
            device on, or groups of a CPU's threads.
        gpu_layers: layers on the GPU, the last ones, of which lm_head is one; those before are the
            CPU's. -1: all, where device says.
        head_bits: 4 or 8 quantize embedding and head while they are loaded.
        kv_cache_type: "f32", "f16", "bf16" or "fp8".
        context: positions of a sample at most; 0: 4096, or fewer where the model has fewer.
        max_sequences: that run at the same time. cache_positions: of all together; 0: a context
            for each.
        enable_prefix_caching: what requests begin with that were answered before is not computed
            again; False: only samples of a request share their prompt.
        seed: of requests that bring none.
        progress: told the bytes that are read and all; True: a bar of tqdm.
        revision: of an org/name. quantization, tokenizer: nothing but what the model has is taken.
        chat_template: the text of one, or a file, for messages instead of the model's own.
            chat_format: one by its name in llama-cpp-python, such as "chatml" or "llama-2".

        What other packages have beside these is in docs/python_arguments.md.

        Raises subbyte.Error: what is wrong with a file, an argument or the machine.
        """
        self.model = _with_revision(path("model", model), revision)
        if tokenizer is not None and path("tokenizer", tokenizer) not in (path("", model),
                                                                          self.model):
            raise refusal("tokenizer", f"{self.model!r}, as the tokenizer.json beside the model "
                          "is read", tokenizer)
        if quantization:
            _check_quantization(self.model, text("quantization", quantization))
        options = {
            "device": text("device", device), "threads": integer("threads", threads, *_INT),
            "pin_threads": flag("pin_threads", pin_threads), "isa": text("isa", isa),
            "activations": text("activations", activations),
            "batch_invariant": flag("batch_invariant", batch_invariant),
            "tensor_parallel_size": integer("tensor_parallel_size", tensor_parallel_size, *_INT),
            "pipeline_parallel_size": integer("pipeline_parallel_size", pipeline_parallel_size,
                                              *_INT),
            "gpu_layers": integer("gpu_layers", gpu_layers, *_INT),
            "head_bits": integer("head_bits", head_bits, *_INT),
            "kv_cache_type": text("kv_cache_type", kv_cache_type),
            "context": integer("context", context),
            "max_sequences": integer("max_sequences", max_sequences),
            "cache_positions": integer("cache_positions", cache_positions),
            "enable_prefix_caching": flag("enable_prefix_caching", enable_prefix_caching),
            "seed": integer("seed", seed, 0, 2**64 - 1),
            "chat_template": template_of(chat_template, chat_format)}
        with reporter(progress, "loading", "B") as tell:
            self._session = _core.Session(self.model, **options, progress=tell)
        self.tokenizer = Tokenizer._of(self._session.tokenizer, self.model)
        self._shared = Stream(self)  # of requests that add() has added
        # One thread for all tasks: each step of it is one for all requests.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="subbyte")

    def __repr__(self) -> str:
        state = "closed" if self._session.is_closed else self.device
        return f"{type(self).__name__}({self.model!r}, {self.model_type}, {state})"

    def close(self) -> None:
        """Ends all requests and gives the memory of the model back; twice is no error. The
        tokenizer stays. Every later call raises subbyte.Error with code session.closed."""
        self._session.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- requests

    @takes_foreign("add()")
    def add(self, prompt: Prompt | None = None, sampling_params: SamplingParams | None = None, *,
            messages: Messages | None = None, chat_template: Template = None,
            chat_template_kwargs: Mapping[str, Any] | None = None,
            tools: Sequence[Mapping[str, Any]] | None = None,
            parse_special: bool = False, priority: int = 0) -> int:
        """Puts a request into the queue and returns its number; nothing is computed.

        It goes on with a prompt or answers messages; chat_template is the text of one, or a file,
        instead of the model's own, chat_template_kwargs are variables of the template, such as
        {"enable_thinking": False}, and tools are functions that the model may call.
        `parse_special`: control tokens in a prompt that is a text are those, and not their
        letters. `priority`: the lower the sooner. Raises subbyte.Error, with code
        model.context_full for a prompt that leaves no room for a token.
        """
        if (prompt is None) == (messages is None):
            raise Error("expected either a prompt or messages", "completion.prompt")
        head = (prompt_body(prompt) if prompt is not None
                else chat_body(messages, chat_template=template_of(chat_template) or None,
                               chat_template_kwargs=chat_template_kwargs, tools=tools))
        return self._shared.start(self._read({**head, "priority": integer("priority", priority)},
                                             sampling_params,
                                             flag("parse_special", parse_special)))

    def events(self) -> Iterator[Event]:
        """What comes of the requests that add() has added, until all of them have ended."""
        return iter(self._shared)

    def events_async(self) -> AsyncIterator[Event]:
        """The same for `async for`."""
        return self._shared.__aiter__()

    def cancel(self, request_id: int) -> None:
        """Ends a request: at once, or after the step that is being made. No event comes of it."""
        self._session.cancel(integer("request_id", request_id))

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
        tokens = self._tokens_of(text)
        with reporter(progress, "perplexity", "token") as tell:
            per_token, nats, scored = self._session.perplexity(
                tokens, integer("window", window), tell)
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
        tokens = self._tokens_of(text)
        with reporter(progress, "logits", "token") as tell:
            return self._session.logits(tokens, tell)

    def _tokens_of(self, text: object) -> list[int]:
        return self.tokenizer.encode(text) if isinstance(text, str) else token_ids("text", text)

    # --- what streams share

    def _read(self, body: Mapping[str, Any], sampling_params: SamplingParams | None = None,
              parse_special: bool = False) -> _core.Request:
        """A request in OpenAI's form, with what the parameters add."""
        if sampling_params is None:
            return self._session.read(dict(body), parse_special, None)
        if not isinstance(sampling_params, SamplingParams):
            raise refusal("sampling_params", "a SamplingParams", sampling_params)
        more = sampling_params._body(is_chat="messages" in body)
        return self._session.read({**body, **more}, parse_special,
                                  sampling_params.prompt_logprobs)

    def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """A call that does not keep a task's loop waiting."""
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


_INT = (-2**31, 2**31 - 1)  # of C


def _with_revision(model: str, revision: str | None) -> str:
    """A model by its name and revision; a path is what it is, whatever the revision."""
    if not revision or "@" in model or os.path.exists(model):
        return model
    return f"{model}@{text('revision', revision)}"


def _check_quantization(model: str, wanted: str) -> None:
    """Refuses a method that is not the checkpoint's own; kernels in its name do not count."""
    own = open_checkpoint(model).quantization
    plain = wanted.lower().replace("_", "-").removeprefix("gpt-oss-")
    for kernels in ("-marlin", "-fp4"):
        plain = plain.removesuffix(kernels)
    if plain not in (own.replace("_", "-"), "subbyte"):
        raise refusal("quantization", f"{own!r}, which the checkpoint says, or nothing: "
                      "subbyte.quantize() makes another checkpoint", wanted)


def chat_body(messages: object, **fields: Any) -> dict[str, Any]:
    """A conversation as the body of a request, with what of `fields` is not None."""
    what = "a list of dicts with \"role\" and \"content\""
    chat = items("messages", what, messages)
    for i, message in enumerate(chat):
        if not isinstance(message, Mapping):
            raise refusal(f"messages[{i}]" if len(chat) > 1 else "messages", what, message)
    return {"messages": chat, **{name: value for name, value in fields.items()
                                 if value is not None}}


def prompt_body(prompt: object) -> dict[str, Any]:
    """A prompt as the body of a request, with the salt that is beside it."""
    salt = prompt.get("cache_salt") if isinstance(prompt, Mapping) else None
    return {"prompt": plain_prompt(prompt), **({} if salt is None else {"cache_salt": salt})}


def plain_prompt(prompt: object) -> str | list[int]:
    """A prompt as a text or token ids. Raises subbyte.Error for what is neither."""
    if isinstance(prompt, Mapping):
        for name, value in prompt.items():
            if name not in ("prompt", "prompt_token_ids", "type", "cache_salt") and value:
                raise Error(f"{name}: expected a prompt of a text or token ids alone",
                            "completion.prompt")
        ids = prompt.get("prompt_token_ids")
        prompt = ids if ids is not None else prompt.get("prompt")
        if prompt is None:
            raise Error("prompt: expected \"prompt\" or \"prompt_token_ids\" in it, found neither",
                        "completion.prompt")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, (bytes, bytearray)):
        raise refusal("prompt", "a text or token ids: decode() makes a text of bytes", prompt)
    return token_ids("prompt", prompt)
