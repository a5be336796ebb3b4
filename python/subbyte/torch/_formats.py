"""What the texts for formats say."""

from __future__ import annotations

import ctypes

from ._library import LIBRARY

BITS = {"f32": 32, "f16": 16, "bf16": 16, "e2m1": 4, "e4m3": 8, "e5m2": 8, "nf4": 4, "vq2": 2,
        "vq4": 4}
DENSE = ("f32", "f16", "bf16")


def canonical(name: str, cols: int = 0) -> str:
    """The text of a format for weights of so many inputs by any name of it: one of the program
    ("awq"), an element ("u4"), or the text itself. ValueError says what may be meant."""
    failed = ctypes.c_int32()
    text = LIBRARY.subbyte_torch_format(name.encode(), cols, ctypes.byref(failed)).decode()
    if failed.value:
        raise ValueError(text)
    return text


# As torch.compiler.assume_constant_result() says it, which would load the whole of torch.compile.
canonical._dynamo_marked_constant = True


def is_dense(fmt: str) -> bool:
    return fmt in DENSE


def bits_of(fmt: str) -> int:
    """Bits of the element of a format."""
    if " " not in fmt and not is_dense(fmt):
        fmt = canonical(fmt)
    element = fmt.split(" ")[0]
    return BITS.get(element) or int("".join(c for c in element if c.isdigit()))


def group_of(fmt: str) -> int:
    """How many inputs share a scale; 0: the whole row."""
    word = fmt.split(" ")[1]
    return 0 if word == "per" else int(word[1:])
