"""How far long work is, told to a callback or shown as a bar."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Union

from ._arguments import refusal
from ._errors import Error

#: A function of what is done and of all; True: a bar of tqdm; None or False: nothing.
Progress = Union[Callable[[int, int], None], bool, None]


def bar_if_there_is_one(use_tqdm: object) -> bool:
    """What vLLM's use_tqdm asks for: a bar where tqdm is installed."""
    return bool(use_tqdm) and find_spec("tqdm") is not None


@contextmanager
def reporter(progress: Progress, title: str,
             unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives the callback that tells `progress`; a bar is closed in the end.

    Raises subbyte.Error where a bar is wanted and tqdm is not installed.
    """
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        if not callable(progress):
            raise refusal("progress", "a function of what is done and of all, True or None",
                          progress)
        yield progress
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise Error("progress: expected tqdm, which draws bars, found it not installed: "
                        "pip install tqdm", "usage.argument") from None

        with tqdm(desc=title, unit=unit, unit_scale=unit == "B") as bar:
            def tell(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield tell
