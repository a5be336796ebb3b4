"""Arguments as Python's protocols have them, checked where callers give them."""
from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import Error


def refusal(name: str, expected: str, value: object, code: str = "usage.argument") -> Error:
    """The error of an argument that is something else than expected."""
    return Error(f"{name}: expected {expected}, found {shown(value)}", code)


def shown(value: object) -> str:
    """A value in a message: itself where it is short, else what it is."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return ascii(value if len(value) <= 60 else value[:57] + "...")
    kind = type(value).__name__
    return f"an {kind}" if kind[:1] in "aeiou" else f"a {kind}"


def is_integer(value: object) -> bool:
    """Whether it is a whole number by its protocol; an array of one is not."""
    if getattr(value, "ndim", 0) != 0:
        return False
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def integer(name: str, value: object, least: int = -2**63, most: int = 2**63 - 1) -> int:
    """A whole number: whatever has __index__, as those of numpy have."""
    if not is_integer(value):
        raise refusal(name, "a whole number", value)
    number = operator.index(value)  # type: ignore[arg-type]
    if not least <= number <= most:
        raise refusal(name, f"a whole number of {least} to {most}", number)
    return number


def number(name: str, value: object) -> float:
    """A number: whatever has __float__, and is no text."""
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        pass
    raise refusal(name, "a number", value)


def flag(name: str, value: object) -> bool:
    """True or False, also of numpy, or 1 or 0."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if is_integer(value) and operator.index(value) in (0, 1):  # type: ignore[arg-type]
        return bool(value)
    raise refusal(name, "True or False", value)


def text(name: str, value: object) -> str:
    """A text that is Unicode."""
    if not isinstance(value, str):
        raise refusal(name, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refusal(name, "a text that is Unicode, without halves of surrogate pairs",
                      value) from None
    return value


def texts(name: str, value: object) -> list[str]:
    """One text or several."""
    if isinstance(value, str):
        return [text(name, value)]
    return [text(name, each) for each in items(name, "a text or a list of texts", value)]


def items(name: str, expected: str, value: Any) -> list[Any]:
    """The elements of what can be walked over and is no text, no bytes and no dict."""
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise refusal(name, expected, value)
    try:
        return list(value)
    except TypeError:  # an array without dimensions
        raise refusal(name, expected, value) from None


def token_ids(name: str, value: object) -> list[int]:
    """Token ids as a list, of whatever can be walked over."""
    found = items(name, "token ids", value)
    for each in found:
        if not is_integer(each):
            raise refusal(name, "token ids", each)
    return [operator.index(each) for each in found]


def path(name: str, value: object) -> str:
    """The text of a path, as open() takes it."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise refusal(name, "a path", value)
    found = os.fsdecode(value)
    if "\0" in found:
        raise refusal(name, "a path without null characters", found)
    return text(name, found)
