"""Answers by the names of vLLM."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Union

from ._core import Event, Request
from ._sampling import SamplingParams
from ._tokenizer import Tokenizer

#: The text or the token that ended a sample.
StopReason = Union[str, int, None]


@dataclass(frozen=True)
class Logprob:
    """How likely a token was: the natural logarithm, before any penalty, temperature or cut.

    rank: its place among all tokens, from 1 on; None where it is not among those listed.
    """

    logprob: float
    rank: int | None
    decoded_token: str


@dataclass
class CompletionOutput:
    """One sample.

    text: the answer; reasoning: what a chat model thought before it. token_ids: of both, without
    those that end them. logprobs: a dict of token ids for each token, where they are wanted.
    finish_reason: "stop", "tool_calls", "length" or "abort". stop_reason: the stop text or token
    that came. tool_calls: those of a chat with tools, as OpenAI's messages have them.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: StopReason = None
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, Any] | None = None

    def finished(self) -> bool:
        """Whether nothing comes after this."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """What came of a prompt: its samples, in their order.

    prompt: its text, None for token ids and chats. prompt_logprobs: None for the first token.
    """

    request_id: int
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    finished: bool = False


class Collector:
    """Puts the events of a request together."""

    def __init__(self, request_id: int, request: Request, prompt: str | None,
                 params: SamplingParams | None, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._num_logprobs = params.logprobs if params else None
        self._num_prompt_logprobs = params.prompt_logprobs if params else None
        self._num_left = request.num_samples
        self.output = RequestOutput(request_id, prompt, request.prompt_token_ids,
                                    [CompletionOutput(i) for i in range(request.num_samples)])
        if self._num_prompt_logprobs is not None:
            self.output.prompt_logprobs = [None]
        if self._num_logprobs is not None:
            for sample in self.output.outputs:
                sample.logprobs, sample.cumulative_logprob = [], 0.0

    def take(self, event: Event) -> bool:
        """Whether the request has ended with this event. Raises the error of its sample."""
        if event.error is not None:
            raise event.error
        sample = self.output.outputs[event.index]
        sample.text += event.text
        sample.reasoning += event.reasoning
        sample.tool_calls += event.tool_calls
        sample.token_ids += event.token_ids
        if sample.logprobs is not None:
            for one in event.logprobs:
                sample.cumulative_logprob += one[0][1]
                sample.logprobs.append(self._dict_of(one, self._num_logprobs))
        if self.output.prompt_logprobs is not None:
            self.output.prompt_logprobs += [self._dict_of(one, self._num_prompt_logprobs)
                                            for one in event.prompt_logprobs]
        if event.is_last:
            sample.finish_reason, sample.stop_reason = event.finish_reason, event.stop_reason
            sample.stats = event.stats
            self._num_left -= 1
            self.output.finished = self._num_left == 0
        return self.output.finished

    def _dict_of(self, tokens: Iterable[tuple[int, float]],
                 num_top: int | None) -> dict[int, Logprob]:
        """The token itself first, then the likeliest ones, as vLLM has them."""
        (chosen, logprob), *top = tokens
        ranks = {token: rank for rank, (token, _) in enumerate(top, 1)}
        result = {chosen: (logprob, ranks.get(chosen))}
        for token, likely in top[:num_top]:
            result.setdefault(token, (likely, ranks[token]))
        return {token: Logprob(value, rank, self._text_of(token))
                for token, (value, rank) in result.items()}

    def _text_of(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode(errors="replace")
