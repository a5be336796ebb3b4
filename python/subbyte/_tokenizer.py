"""Texts and tokens."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from ._paths import path_text


class Tokenizer:
    """The tokenizer of a model, and the template of its chats.

    model: a directory, org/name[@revision] of the Hugging Face cache, or a tokenizer.json, which
    knows no chats. Raises subbyte.Error: tokenizer.*, file.*, json.*.
    """

    def __init__(self, model: str | os.PathLike[str]) -> None:
        self._text = _core.Tokenizer(path_text(model))

    @classmethod
    def _of(cls, text: _core.Tokenizer) -> Tokenizer:
        tokenizer = cls.__new__(cls)
        tokenizer._text = text
        return tokenizer

    def encode(self, text: str, *, add_special_tokens: bool = True,
               parse_special: bool = False) -> list[int]:
        """The token ids of a text.

        add_special_tokens: with what the file puts around a text, such as a token of begin.
        parse_special: control tokens in the text, such as "<|im_end|>", are those; else their
            letters are encoded, so that no text from elsewhere can end a turn.
        """
        return self._text.encode(text, add_special_tokens, parse_special)

    def decode(self, token_ids: int | Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD.

        Raises subbyte.Error with code tokenizer.bad_id for ids that do not exist.
        """
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._text.decode(ids, skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for within a text; perhaps no whole characters."""
        return self._text.token_bytes(token_id)

    def token_to_id(self, token: str) -> int | None:
        """The id of an added token or of an entry of the vocabulary by its literal text."""
        return self._text.find(token)

    def is_special(self, token_id: int) -> bool:
        """Whether decode() leaves the token out with skip_special_tokens."""
        return self._text.is_special(token_id)

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
                            **variables: Any) -> list[int] | str:
        """The prompt of a conversation: the token ids that a chat computes, or with
        `tokenize=False` the text that the model's own template makes.

        messages: dicts with "role" (system, developer, user, assistant) and "content".
        variables: of the template, such as enable_thinking=False.

        Texts of messages are encoded as text: a "<|im_end|>" in one is no control token. Raises
        subbyte.Error: completion.* for what a chat does not compute, template.*.
        """
        plain = [dict(message) for message in messages]
        listed = None if tools is None else [dict(tool) for tool in tools]
        if not tokenize:
            return self._text.render_chat({
                "messages": plain, "tools": listed, "variables": variables,
                "add_generation_prompt": add_generation_prompt})
        body: dict[str, Any] = {"messages": plain, "add_generation_prompt": add_generation_prompt}
        if listed is not None:
            body["tools"] = listed
        if variables:
            body["chat_template_kwargs"] = variables
        return self._text.encode_chat(body)
