"""docs/python_arguments.md, made of what the package does with each argument of others.

    python python/tests/argument_page.py     writes it; test_foreign.py compares
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from subbyte import _core
from subbyte._foreign import ARGUMENTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python_arguments.md"
#: Every argument of functions of other packages (tools/interop/python_examples.py reads them).
NAMES: dict[str, list[str]] = json.loads(Path(__file__).with_name(
    "foreign_arguments.json").read_text())
#: Ours for each of them, and whether fields of requests are taken, too.
OURS = {"vLLM: LLM": ("LLM", False), "vLLM: SamplingParams": ("SamplingParams", True),
        "vLLM: LLM.generate": ("generate()", False), "vLLM: LLM.chat": ("chat()", False),
        "llama-cpp-python: Llama": ("LLM", False),
        "llama-cpp-python: Llama.from_pretrained": ("LLM", False),
        "llama-cpp-python: Llama.create_completion": ("SamplingParams", True),
        "llama-cpp-python: Llama.create_chat_completion": ("SamplingParams", True)}
HEAD = """# Arguments of vLLM and llama-cpp-python

What [the package](python.md) does with each argument of these functions. One that would change what
comes out and is not computed is refused in one line, which says what to do instead. None and
empty lists, dicts and texts ask for nothing anywhere.

The page is made of `app/foreign_names.def` and `src/completions/request_keys.def`, which the
program reads, too.

`tools/interop/python_examples.py` runs examples of theirs, of which the imports and the model alone
differ. Tried on 2026-11-28:

|file|commit|what came of it|
|---|---|---|
|vLLM, examples/basic/offline_inference/basic.py|995b9265|runs|
|vLLM, examples/basic/offline_inference/chat.py|41c5903d|runs, with `--chat-template-path`, too|
|llama-cpp-python, `README.md`, "High-level API"|3691546f|of 12 blocks 3 run; refused in a line: a \
GGUF file, JSON (2 blocks), `chatml-function-calling`, a tokenizer of its own, images (2), a draft \
model, embeddings|
"""


def rule_of(function: str, name: str) -> tuple[str, str, str]:
    """What becomes of an argument: "taken" with our name, or "else" with the neutral values in JSON
    and what to do instead."""
    called, has_fields = OURS[function]
    if name in ARGUMENTS[called] or (has_fields and name in ("prompt", "stream")):
        return "taken", name, ""
    field = _core.field_rule(name) if has_fields else None
    if field is not None:
        use, neutral = field
        if use == "computed":
            return "taken", name, ""
        return "else", "*" if use == "ignored" else neutral, "it is not computed"
    found = _core.foreign_argument(name)
    assert found is not None, f"{function}: {name} has no row in app/foreign_names.def"
    ours, neutral, instead = found
    if ours in ARGUMENTS[called]:
        return "taken", ours, ""
    return "else", neutral, instead or f"`{ours}` is another function's"


def words(function: str, name: str) -> tuple[str, str]:
    """The two right columns of its row."""
    kind, first, instead = rule_of(function, name)
    if kind == "taken":
        return ("taken" if first == name else f"taken as `{first}`"), ""
    if first == "*":
        return "changes nothing", ""
    neutral = ", ".join(f"`{json.dumps(value)}`" for value in json.loads(f"[{first}]"))
    return f"refused{f' but for {neutral}' if neutral else ''}", instead


def table(function: str, names: list[str]) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for name in names:
        rows.setdefault(words(function, name), []).append(f"`{name}`")
    lines = [f"|{', '.join(group)}|{what}|{instead}|"
             for (what, instead), group in sorted(rows.items(), key=lambda row: order(row[0][0]))]
    return "\n".join(["|arguments|here|instead|", "|---|---|---|", *lines, ""])


def order(what: str) -> int:
    return 0 if what.startswith("taken") else 1 if what == "changes nothing" else 2


def page(names: Mapping[str, list[str]] = NAMES) -> str:
    return HEAD + "".join(f"\n## {function}\n\n{table(function, listed)}"
                          for function, listed in names.items())


if __name__ == "__main__":
    PAGE.write_text(page())
