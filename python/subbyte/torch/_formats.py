"""What the texts for formats say."""

from __future__ import annotations

BITS = {"f32": 32, "f16": 16, "bf16": 16, "e2m1": 4, "e4m3": 8, "e5m2": 8, "nf4": 4, "vq2": 2,
        "vq4": 4}


def bits_of(fmt: str) -> int:
    """Bits of the element that a format begins with."""
    element = fmt.split(" ")[0]
    return BITS.get(element) or int("".join(c for c in element if c.isdigit()))
