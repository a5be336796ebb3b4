"""A model as vLLM and llama-cpp-python have it."""
from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Union

from . import _core
from ._arguments import flag, integer, is_integer, items, refusal
from ._chat_formats import Template, template_of
from ._engine import Engine, Messages, Prompt, Stream, chat_body, prompt_body
from ._errors import Error
from ._foreign import refuse_member, take_foreign, takes_foreign
from ._outputs import Collector, RequestOutput
from ._progress import Progress, bar_if_there_is_one, reporter
from ._sampling import SamplingParams

#: Functions that a model may call, as OpenAI describes them.
Tools = Union[Sequence[Mapping[str, Any]], None]
#: One for all prompts, or one for each.
Params = Union[SamplingParams, Sequence[SamplingParams], None]
Priority = Union[int, Sequence[int], None]


class LLM:
    """A loaded model.

    >>> llm = subbyte.LLM("demo/model")
    >>> [output] = llm.generate("Once", subbyte.SamplingParams(max_tokens=20))
    >>> print(output.outputs[0].text)
    >>> answer = llm.create_chat_completion([{"role": "user", "content": "Why?"}])
    >>> print(answer["choices"][0]["message"]["content"])

    The options are those of Engine, which `llm.engine` is. Threads and tasks may share a model:
    their requests are computed together. Methods whose names end in _async do the same for asyncio.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, device: str = "auto",
                 **options: Any) -> None:
        """Opens and loads a model; the options are those of Engine. Raises subbyte.Error."""
        if model is not None:
            options["model"] = model
        self.engine = Engine(device=device, **options)
        self.tokenizer = self.engine.tokenizer
        self._name = os.path.basename(os.path.normpath(self.engine.model))

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str] | None = None, **options: Any) -> LLM:
        """The same by the name of transformers and llama-cpp-python; nothing is downloaded."""
        return cls(model, **options)

    def __repr__(self) -> str:
        return repr(self.engine).replace("Engine", type(self).__name__, 1)

    def __getattr__(self, name: str) -> Any:
        raise refuse_member("LLM", name)

    def close(self) -> None:
        """Ends all requests and gives the memory of the model back: Engine.close()."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_default_sampling_params(self) -> SamplingParams:
        """How a request is sampled that says nothing of it, for changes; 16 tokens, as in vLLM."""
        usual = self.engine._session.sampling
        return SamplingParams(**{name: usual[name] for name in
                                 ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")})

    def get_tokenizer(self) -> Any:
        """The subbyte.Tokenizer of the model."""
        return self.tokenizer

    def perplexity(self, text: str | Sequence[int], *, window: int = 512,
                   progress: Progress = None) -> dict[str, Any]:
        """How well the model predicts a text: Engine.perplexity()."""
        return self.engine.perplexity(text, window=window, progress=progress)

    def logits(self, text: str | Sequence[int], *, progress: Progress = None) -> Any:
        """Logits after each token, numpy float32 [tokens, vocab_size]: Engine.logits()."""
        return self.engine.logits(text, progress=progress)

    # --- as vLLM has it

    @takes_foreign("generate()")
    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *,
                 parse_special: bool = False, priority: Priority = None,
                 progress: Progress = None, use_tqdm: bool = False) -> list[RequestOutput]:
        """Goes on with each of the prompts and returns a RequestOutput for each, in their order.

        prompts: a text, token ids, {"prompt": ..} or {"prompt_token_ids": ..}, or a list of these.
            A dict may have a "cache_salt", too: what prompts begin with is shared by those of the
            same alone.
        sampling_params: for all prompts or one for each; None: SamplingParams(), 16 tokens.
        parse_special: control tokens in texts are those, and not their letters.
        priority: of all prompts or one for each; the lower the sooner where requests wait.
        progress: told the prompts that are done and all; True: a bar of tqdm. use_tqdm: a bar
            where tqdm is installed.

        Raises subbyte.Error for the first prompt that is refused or fails; nothing goes on then.
        """
        return self._run(_prompt_bodies(prompts, priority), sampling_params or SamplingParams(),
                         flag("parse_special", parse_special),
                         progress or bar_if_there_is_one(use_tqdm))

    @takes_foreign("chat()")
    def chat(self, messages: Messages | Sequence[Messages], sampling_params: Params = None, *,
             tools: Tools = None, add_generation_prompt: bool | None = None,
             continue_final_message: bool | None = None, chat_template: Template = None,
             chat_template_kwargs: Mapping[str, Any] | None = None,
             progress: Progress = None, use_tqdm: bool = False) -> list[RequestOutput]:
        """Answers a conversation, or each of several: a RequestOutput for each, in their order.

        messages: dicts with "role" (system, developer, user, assistant, tool) and "content", a text
            or parts {"type": "text", "text": ..}. Reasoning is apart, in `outputs[0].reasoning`.
        sampling_params: None: as the model's makers sample, until it ends or the context is full.
        tools: functions that the model may call; its calls are `outputs[0].tool_calls`.
        add_generation_prompt: False: the prompt does not begin an answer.
        continue_final_message: the answer goes on with the last message.
        chat_template: the text of one, or a file, instead of the model's own.
        chat_template_kwargs: variables of the template, such as {"enable_thinking": False}.

        The rest is as in generate().
        """
        bodies = _chat_bodies(messages, tools=tools, add_generation_prompt=add_generation_prompt,
                              continue_final_message=continue_final_message,
                              chat_template=template_of(chat_template) or None,
                              chat_template_kwargs=chat_template_kwargs)
        return self._run(bodies, sampling_params, False, progress or bar_if_there_is_one(use_tqdm))

    @takes_foreign("generate_async()")
    async def generate_async(self, prompts: Prompt | Sequence[Prompt],
                             sampling_params: Params = None, *,
                             parse_special: bool = False,
                             priority: Priority = None) -> list[RequestOutput]:
        """generate() for asyncio; what is cancelled is not computed any more."""
        return await self._run_async(_prompt_bodies(prompts, priority),
                                     sampling_params or SamplingParams(),
                                     flag("parse_special", parse_special))

    @takes_foreign("chat_async()")
    async def chat_async(
            self, messages: Messages | Sequence[Messages], sampling_params: Params = None, *,
            tools: Tools = None, add_generation_prompt: bool | None = None,
            continue_final_message: bool | None = None, chat_template: Template = None,
            chat_template_kwargs: Mapping[str, Any] | None = None) -> list[RequestOutput]:
        """chat() for asyncio; what is cancelled is not computed any more."""
        bodies = _chat_bodies(messages, tools=tools, add_generation_prompt=add_generation_prompt,
                              continue_final_message=continue_final_message,
                              chat_template=template_of(chat_template) or None,
                              chat_template_kwargs=chat_template_kwargs)
        return await self._run_async(bodies, sampling_params, False)

    # --- as OpenAI and llama-cpp-python have it

    def create_completion(self, prompt: Prompt, *, stream: bool = False,
                          **fields: Any) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """Goes on with a prompt: the body of OpenAI's /v1/completions, or with `stream` its chunks.

        fields: those of a request of OpenAI or vLLM (docs/prompts.md lists them), such as
            max_tokens (16; -1: until the context is full), temperature, top_p, stop, logprobs,
            seed, n, echo. A field that would change the answer and is not computed is refused.

        Raises subbyte.Error: completion.field, json.type, json.range, model.context_full.
        """
        return self._create({"max_tokens": 16, **fields, **prompt_body(prompt)}, stream)

    def __call__(self, prompt: Prompt, *, stream: bool = False,
                 **fields: Any) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """create_completion()."""
        return self.create_completion(prompt, stream=stream, **fields)

    def create_chat_completion(self, messages: Messages, *, stream: bool = False,
                               **fields: Any) -> dict[str, Any] | Iterator[dict[str, Any]]:
        """Answers messages: the body of OpenAI's /v1/chat/completions, or with `stream` its chunks.

        fields: as create_completion(), with max_tokens up to the context. Reasoning is in
        "reasoning_content" of the message. In a stream, the reasoning of a model that does not
        open it (text/think_parser.h) comes as content.
        """
        return self._create({**fields, **chat_body(messages)}, stream)

    async def create_completion_async(
            self, prompt: Prompt, *, stream: bool = False,
            **fields: Any) -> dict[str, Any] | AsyncIterator[dict[str, Any]]:
        """create_completion() for asyncio; with `stream` for `async for`."""
        return await self._create_async(
            {"max_tokens": 16, **fields, **prompt_body(prompt)}, stream)

    async def create_chat_completion_async(
            self, messages: Messages, *, stream: bool = False,
            **fields: Any) -> dict[str, Any] | AsyncIterator[dict[str, Any]]:
        """create_chat_completion() for asyncio; with `stream` for `async for`."""
        return await self._create_async({**fields, **chat_body(messages)}, stream)

    # --- how they do so

    def _start_all(self, stream: Stream, inputs: list[dict[str, Any]], sampling_params: Params,
                   parse_special: bool) -> dict[int, Collector]:
        collectors = {}
        all_params = _params_of(sampling_params, len(inputs))
        requests = [self.engine._read(body, params, parse_special)
                    for body, params in zip(inputs, all_params)]
        for body, params, request in zip(inputs, all_params, requests):
            request.is_whole = True
            request_id = stream.start(request)
            prompt = body.get("prompt")
            collectors[request_id] = Collector(request_id, request,
                                               prompt if isinstance(prompt, str) else None, params,
                                               self.tokenizer)
        return collectors

    def _run(self, inputs: list[dict[str, Any]], sampling_params: Params, parse_special: bool,
             progress: Progress) -> list[RequestOutput]:
        with reporter(progress, "generating", "prompt") as tell, Stream(self.engine) as stream:
            collectors = self._start_all(stream, inputs, sampling_params, parse_special)
            num_done = 0
            for event in stream:
                if collectors[event.request_id].take(event):
                    num_done += 1
                    if tell:
                        tell(num_done, len(collectors))
        return [collector.output for collector in collectors.values()]

    async def _run_async(self, inputs: list[dict[str, Any]], sampling_params: Params,
                         parse_special: bool) -> list[RequestOutput]:
        with Stream(self.engine) as stream:
            collectors = await self.engine._in_thread(self._start_all, stream, inputs,
                                                      sampling_params, parse_special)
            async for event in stream:
                collectors[event.request_id].take(event)
        return [collector.output for collector in collectors.values()]

    def _create(self, body: dict[str, Any],
                is_stream: bool) -> dict[str, Any] | Iterator[dict[str, Any]]:
        answer = _Answer(self.engine, body, self._name)
        if flag("stream", is_stream):
            return answer.chunks()
        with answer.stream:
            answer.start(is_whole=True)
            for event in answer.stream:
                answer.take(event)
        return answer.body()

    async def _create_async(self, body: dict[str, Any],
                            is_stream: bool) -> dict[str, Any] | AsyncIterator[dict[str, Any]]:
        answer = await self.engine._in_thread(_Answer, self.engine, body, self._name)
        if flag("stream", is_stream):
            return answer.chunks_async()
        with answer.stream:
            await self.engine._in_thread(answer.start, True)
            async for event in answer.stream:
                answer.take(event)
        return answer.body()


class _Answer:
    """An answer in OpenAI's form: a body, or chunks of it."""

    def __init__(self, engine: Engine, body: dict[str, Any], model: str) -> None:
        options = body.pop("stream_options", None) or {}
        if not isinstance(options, Mapping):
            raise refusal("stream_options", "a dict", options)
        self._has_usage = bool(options.get("include_usage"))
        self._request = engine._read(_fields_of(body))
        self._model = str(body.get("model") or model)
        self._digest = uuid.uuid4().hex
        self._created = int(time.time())
        self._begun: set[int] = set()  # samples of a chat whose role was said
        self._engine = engine
        self.stream = Stream(engine)

    def start(self, is_whole: bool = False) -> None:
        """Not before somebody waits for it: a stream that nobody reads is not computed."""
        self._request.is_whole = is_whole
        self.stream.start(self._request)

    def take(self, event: Any) -> None:
        if event.error is not None:
            raise event.error
        self._request.take(event)

    def body(self) -> dict[str, Any]:
        body = self._request.take_answer(self._digest, self._model)
        body["created"] = self._created
        return body

    def chunks(self) -> Iterator[dict[str, Any]]:
        with self.stream:
            self.start()
            for event in self.stream:
                self.take(event)
                yield self._chunk(event)
        if self._has_usage:
            yield self._usage()

    async def chunks_async(self) -> AsyncIterator[dict[str, Any]]:
        with self.stream:
            await self._engine._in_thread(self.start)
            async for event in self.stream:
                self.take(event)
                yield self._chunk(event)
        if self._has_usage:
            yield self._usage()

    def _chunk(self, event: Any) -> dict[str, Any]:
        choice = self._request.choice_of(event)
        choice["finish_reason"] = event.finish_reason
        if self._request.is_chat:
            delta = choice.pop("message")
            if event.index in self._begun:
                del delta["role"]
            self._begun.add(event.index)
            choice["delta"] = delta
        return {**self._head(), "choices": [choice]}

    def _head(self) -> dict[str, Any]:
        is_chat = self._request.is_chat
        return {"id": ("chatcmpl-" if is_chat else "cmpl-") + self._digest,
                "object": "chat.completion.chunk" if is_chat else "text_completion",
                "created": self._created, "model": self._model}

    def _usage(self) -> dict[str, Any]:
        return {**self._head(), "choices": [], "usage": self.body()["usage"]}


def _fields_of(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request, of those of others those of ours that do the same."""
    called = "create_chat_completion()" if "messages" in body else "create_completion()"
    others = {name: body.pop(name) for name in list(body) if not _core.field_rule(name)}
    take_foreign(called, others, SamplingParams.__dataclass_fields__, "completion.field")
    if twice := others.keys() & body.keys():
        raise Error(f"{twice.pop()}: {called} is given it twice, by two names", "usage.argument")
    body.update(others)
    limit = body.get("max_tokens")
    if is_integer(limit) and (limit < 0 or (limit == 0 and not body.get("echo"))):
        del body["max_tokens"]  # as llama-cpp-python has it: until the context is full
    return body


def _prompt_bodies(prompts: Any, priority: Priority) -> list[dict[str, Any]]:
    """The prompts that a caller gives, one or a list of them, as bodies of requests."""
    if isinstance(prompts, (str, bytes, bytearray, Mapping)):
        bodies = [prompt_body(prompts)]
    else:
        given = items("prompts", "a text, token ids, or a list of these", prompts)
        each = [given] if given and is_integer(given[0]) else given
        bodies = [prompt_body(one) for one in each]
    if priority is None:
        return bodies
    wanted = _each("priority", "a whole number, or one for each prompt", priority, len(bodies),
                   is_integer(priority))
    return [{**body, "priority": integer("priority", one)} for body, one in zip(bodies, wanted)]


def _chat_bodies(messages: Any, **fields: Any) -> list[dict[str, Any]]:
    """One conversation or several as bodies of requests, each with the same fields."""
    what = "a list of dicts with \"role\" and \"content\", or a list of such lists"
    given = items("messages", what, messages)
    if not given or isinstance(given[0], Mapping):
        given = [given]
    elif isinstance(given[0], (str, bytes)):
        raise refusal("messages", what, given[0])
    return [chat_body(chat, **fields) for chat in given]


def _params_of(params: Params, count: int) -> list[SamplingParams | None]:
    return _each("sampling_params", "a SamplingParams, or one for each prompt", params, count,
                 params is None or isinstance(params, SamplingParams))


def _each(name: str, what: str, given: Any, count: int, is_one: bool) -> list[Any]:
    """One for each prompt: the same, or as many as there are."""
    if is_one:
        return [given] * count
    found = items(name, what, given)
    if len(found) != count:
        raise Error(f"{name}: expected one for each of {count} prompts, found {len(found)}",
                    "completion.params")
    return found
