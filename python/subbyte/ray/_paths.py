"""Paths that processes in other folders are given."""
from __future__ import annotations

import os


def absolute(path: str | os.PathLike[str]) -> str:
    """The path of a file or folder that is there; an org/name as it is."""
    text = os.fspath(path)
    return os.path.abspath(text) if os.path.exists(text) else text
