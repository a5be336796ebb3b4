"""Paths as Python has them."""
from __future__ import annotations

import os


def path_text(path: str | os.PathLike[str]) -> str:
    """The text of a path, as open() takes it: ValueError for one with a null character."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError(f"embedded null character in the path {text!r}")
    return text
