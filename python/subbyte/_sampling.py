"""How tokens of an answer are chosen and when it ends, by the names of vLLM."""
from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from . import _core
from ._arguments import integer, refusal
from ._foreign import ARGUMENTS, take_foreign


@dataclass
class SamplingParams:
    """How an answer is sampled.

    Where none of temperature, top_k, top_p and min_p is given, the model's generation_config.json
    says how, else temperature 0.8, top_k 40, top_p 0.95 and min_p 0.05. Beside those that are
    given the others are neutral: temperature 1 and no cut, as in vLLM.

    n: samples; sample i has the seed of the first plus i.
    temperature: 0 is greedy. top_k: 0 or -1 is all. top_p: 1 is all. min_p: of the likeliest.
    repetition_penalty: 1 is none. frequency_penalty, presence_penalty: 0 is none.
    seed: the same seed, the same tokens; None: that of the model that was opened.
    stop: texts that end the answer and do not belong to it. stop_token_ids: tokens that do.
    max_tokens: new tokens at most; None: until the context is full. min_tokens: before these
        nothing ends the answer. ignore_eos: the model's own end tokens do not.
    logprobs: so many of the likeliest tokens beside each token, 0 to 20; None: no probabilities.
    prompt_logprobs: the same for the tokens of the prompt after the first.
    logit_bias: numbers of -100 to 100 that are added to the logits of token ids.

    Raises subbyte.Error where a value is out of its range, and for what vLLM has beside these if
    it asks for something (docs/python_arguments.md).
    """

    n: int = 1
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        _core.check_request(self._body(is_chat=False), _WHERE)

    def _body(self, is_chat: bool) -> dict[str, Any]:
        """The fields of a request in OpenAI's form."""
        body = {field.name: getattr(self, field.name) for field in fields(self)}
        prompt_logprobs = body.pop("prompt_logprobs")  # which that form has no field for
        if prompt_logprobs is not None:
            integer("prompt_logprobs", prompt_logprobs, 0, 20)
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, Mapping):
                raise refusal("logit_bias", "a dict of token ids and numbers", self.logit_bias)
            body["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        if is_chat and self.logprobs is not None:
            body["logprobs"], body["top_logprobs"] = True, self.logprobs
        return {name: value for name, value in body.items() if value is not None}


_WHERE = "SamplingParams"
_NAMES = {field.name: field for field in fields(SamplingParams)}
ARGUMENTS[_WHERE] = list(_NAMES)


def _taking_foreign(make: Any) -> Any:
    """Fields of other software beside our own."""
    @functools.wraps(make)
    def init(self: SamplingParams, *arguments: Any, **named: Any) -> None:
        for name in [name for name in named if _core.field_rule(name) and name not in _NAMES]:
            _core.check_field(name, named.pop(name), _WHERE)
        take_foreign(_WHERE, named, _NAMES, "completion.field")
        make(self, *arguments, **named)

    return init


SamplingParams.__init__ = _taking_foreign(SamplingParams.__init__)  # type: ignore[method-assign]
