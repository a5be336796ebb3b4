"""What differs from machine to machine, or from run to run, without its value."""
from __future__ import annotations

import json
import re

MASKED = re.compile(
    r"(seconds|per_second|_ns|_ts|bandwidth|held_bytes|total_bytes)$"
    r"|^(commit|build_commit|device|description|isa|kernels|job|program|cpu_info|test_time|no_gpu"
    r"|request_sha256)$")
MOST = 3  # elements of a list of objects


def masked(value: object, key: str = "") -> object:
    """The same with names of types in place of times, speeds and the machine, numbers with three
    digits after the point, and the first of many objects."""
    if MASKED.search(key):
        return f"<{type(value).__name__}>"
    if isinstance(value, dict):
        return {name: masked(value[name], name) for name in value}
    if isinstance(value, list):
        more = len(value) - MOST if len(value) > MOST and isinstance(value[0], dict) else 0
        shown = [masked(element, key) for element in value[:len(value) - more]]
        return [*shown, f"and {more} more"] if more else shown
    return round(value, 3) if isinstance(value, float) else value


def masked_json(text: str) -> str:
    return json.dumps(masked(json.loads(text)))


def masked_lines(text: str) -> list[str]:
    """One value of JSON, a line for each of its keys; else a value or a text on each line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return [masked_json(line) if line.startswith("{") else line for line in text.splitlines()]
    if not isinstance(value, dict):
        return [masked_json(text)]
    return [f"{key}: {json.dumps(masked(value[key], key))}" for key in value]


def replaced(text: str, places: dict[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    # Identities of answers are made of the request, the version and the machine.
    return re.sub(r'"((?:chat)?cmpl)-[0-9a-f]{32}"', r'"\1-..."', text)
