"""How far long work is, told to a callback or shown as a bar."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Union

#: A function of what is done and of all; True: a bar of tqdm; None or False: nothing.
Progress = Union[Callable[[int, int], None], bool, None]


@contextmanager
def reporter(progress: Progress, title: str,
             unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives the callback that tells `progress`; a bar is closed in the end.

    Raises ImportError where a bar is wanted and tqdm is not installed.
    """
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        yield progress
    else:
        from tqdm.auto import tqdm

        with tqdm(desc=title, unit=unit, unit_scale=unit == "B") as bar:
            def tell(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield tell
