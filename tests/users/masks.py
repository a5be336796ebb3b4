"""What differs from machine to machine, or from run to run, without its value."""
from __future__ import annotations

import json
import re

MASKED = re.compile(r"(seconds|per_second|bytes_held|_bandwidth)$|^(commit|device|isa|kernels|job)$")


def masked(value: object, key: str = "") -> object:
    """The same with names of types in place of times, speeds and the machine, and numbers with three
    digits after the point."""
    if MASKED.search(key):
        return f"<{type(value).__name__}>"
    if isinstance(value, dict):
        return {name: masked(value[name], name) for name in value}
    if isinstance(value, list):
        return [masked(element, key) for element in value]
    return round(value, 3) if isinstance(value, float) else value


def masked_json(text: str) -> str:
    return json.dumps(masked(json.loads(text)))


def replaced(text: str, places: dict[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    return re.sub(r"0\.1\.0\b", "VERSION", text)
