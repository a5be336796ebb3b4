"""Texts and tokens."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from ._arguments import flag, integer, is_integer, items, path
from ._arguments import text as _text
from ._arguments import token_ids as _token_ids
from ._chat_formats import Template, template_of
from ._foreign import take_foreign, takes_foreign


class Tokenizer:
    """The tokenizer of a model, and the template of its chats.

    model: a directory, org/name[@revision] of the Hugging Face cache, or a tokenizer.json, which
    knows no chats. Raises subbyte.Error: tokenizer.*, file.*, json.*.
    """

    @takes_foreign("Tokenizer")
    def __init__(self, model: str | os.PathLike[str]) -> None:
        self._name = path("model", model)
        self._text = _core.Tokenizer(self._name)

    @classmethod
    def from_pretrained(cls, *arguments: Any, **named: Any) -> Tokenizer:
        """Tokenizer() by the name of transformers."""
        return cls(*arguments, **named)

    @classmethod
    def _of(cls, text: _core.Tokenizer, name: str) -> Tokenizer:
        tokenizer = cls.__new__(cls)
        tokenizer._text, tokenizer._name = text, name
        return tokenizer

    def __repr__(self) -> str:
        return f"Tokenizer({self._name!r}, {len(self)} tokens)"

    @takes_foreign("encode()")
    def encode(self, text: str, *, add_special_tokens: bool = True,
               parse_special: bool = False) -> list[int]:
        """The token ids of a text.

        add_special_tokens: with what the file puts around a text, such as a token of begin.
        parse_special: control tokens in the text, such as "<|im_end|>", are those; else their
            letters are encoded, so that no text from elsewhere can end a turn.
        """
        return self._text.encode(_text("text", text),
                                 flag("add_special_tokens", add_special_tokens),
                                 flag("parse_special", parse_special))

    @takes_foreign("decode()")
    def decode(self, token_ids: int | Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD.

        An id without a token has no text. Raises subbyte.Error with code tokenizer.bad_id for
        negative ones.
        """
        given = [token_ids] if is_integer(token_ids) else _token_ids("token_ids", token_ids)
        return self._text.decode([_id(each) for each in given],
                                 flag("skip_special_tokens", skip_special_tokens))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for within a text; perhaps no whole characters."""
        return self._text.token_bytes(_id(token_id))

    def token_to_id(self, token: str) -> int | None:
        """The id of an added token or of an entry of the vocabulary by its literal text."""
        return self._text.find(_text("token", token))

    def is_special(self, token_id: int) -> bool:
        """Whether decode() leaves the token out with skip_special_tokens."""
        return self._text.is_special(_id(token_id))

    @property
    def eos_token_id(self) -> int | None:
        """The token that tokenizer_config.json calls eos_token."""
        return self._text.end_token

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return self._text.size

    def __len__(self) -> int:
        return self._text.size

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]],
                            tools: Sequence[Mapping[str, Any]] | None = None, *,
                            tokenize: bool = True, add_generation_prompt: bool = True,
                            continue_final_message: bool = False,
                            chat_template: Template = None,
                            **variables: Any) -> list[int] | str:
        """The prompt of a conversation: the token ids that a chat computes, or with
        `tokenize=False` the text that the model's own template makes.

        messages: dicts with "role" (system, developer, user, assistant, tool) and "content".
        tools: functions that the model may call. continue_final_message: the prompt ends in the
            middle of the last message. chat_template: the text of one, or a file, instead of the
            model's own.
        variables: of the template, such as enable_thinking=False.

        Texts of messages are encoded as text: a "<|im_end|>" in one is no control token. Raises
        subbyte.Error: completion.* for what a chat does not compute, template.*.
        """
        fields = {"messages": items("messages", "a list of dicts", messages), "tools": tools,
                  "add_generation_prompt": flag("add_generation_prompt", add_generation_prompt),
                  "continue_final_message": flag("continue_final_message",
                                                 continue_final_message)}
        if continue_final_message:
            del fields["add_generation_prompt"]
        for name in [name for name in variables if _core.foreign_argument(name)]:
            take_foreign("apply_chat_template()", {name: variables.pop(name)}, {})
        if chat_template is not None:
            fields["chat_template"] = template_of(chat_template)
        if variables:
            fields["chat_template_kwargs"] = variables
        if flag("tokenize", tokenize):
            return self._text.encode_chat(fields)
        return self._text.render_chat(fields)


def _id(token_id: object) -> int:
    return integer("token_id", token_id, -2**31, 2**31 - 1)
