"""Which requests belong together: those whose conversations begin alike."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: Of a prompt that is no conversation: characters of a text, and token ids.
FIRST_CHARACTERS = 1024
FIRST_TOKENS = 256


def routing_key(headers: Mapping[str, str], body: bytes) -> str:
    """Names the conversation that a request belongs to; "" where it has none.

    Requests with equal names find their common prefix in the cache of one replica. A client names
    its conversation itself by the header x-session-id. Otherwise equal first blocks do: the
    messages up to the first one of a user with the tools, or the beginning of a prompt, for equal
    values of cache_salt.
    """
    session = headers.get("x-session-id", "")
    if session:
        return "session " + session
    block = first_block(body)
    if block is None:
        return ""
    text = json.dumps(block, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def first_block(body: bytes) -> list[Any] | None:
    """The part of a request by which it is routed; None where the body is no request."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    messages, prompt = request.get("messages"), request.get("prompt")
    if isinstance(messages, list) and messages:
        first = [request.get("tools"), until_user(messages)]
    elif isinstance(prompt, (str, list)) and prompt:
        first = [None, beginning(prompt)]
    else:
        return None
    return [request.get("cache_salt"), *first]


def until_user(messages: list[Any]) -> list[Any]:
    """The messages up to the first one of a user, which all turns of a conversation share."""
    for position, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[:position + 1]
    return messages


def beginning(prompt: str | list[Any]) -> Any:
    """The beginning of a prompt, or of the first one of a list."""
    if isinstance(prompt, str):
        return prompt[:FIRST_CHARACTERS]
    first = prompt[0]
    return beginning(first) if isinstance(first, (str, list)) and first else prompt[:FIRST_TOKENS]
