#!/usr/bin/env python3
"""Compares what `subbyte template` makes of chat templates with transformers' own renderer.

    PYTHON tools/compare_chat_templates.py FOLDER PROGRAM [--show N]

FOLDER has templates (*.jinja), such as vendor/llama.cpp/models/templates in the source
distribution of llama-cpp-python, which are not part of this repository; PROGRAM is subbyte. PYTHON
needs transformers (without torch) and jinja2. Each template is rendered for each conversation of
chat_conversations.py: texts must be equal byte for byte, and what one refuses the other must
refuse. A conversation with calls is sent as a request, too, of which arguments may come in the form
that the template takes: as an object, or as the text of it. Prints the differences and, as the last
lines, how many agree.
"""
from __future__ import annotations

import argparse
import collections
import copy
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from transformers.utils import chat_template_utils  # noqa: E402

from chat_conversations import CONVERSATIONS  # noqa: E402

NOW = datetime.datetime(2025, 8, 5, 13, 30)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime.datetime:
        return NOW


def variables_of(conversation: dict[str, Any]) -> dict[str, Any]:
    return {**TOKENS, **conversation.get("variables", {})}


def expected(template: str, conversation: dict[str, Any]) -> str | None:
    """What apply_chat_template renders, or None for what it refuses."""
    messages = chat_template_utils._normalize_chat_messages(conversation["messages"])
    try:
        return chat_template_utils.render_jinja_template(
            conversations=[messages], tools=conversation.get("tools"), chat_template=template,
            add_generation_prompt=conversation.get("add_generation_prompt", True),
            **variables_of(conversation))[0][0]
    except Exception as error:  # whatever Python raises is a refusal
        return None if not os.environ.get("SHOW") else print("  reference:", repr(error))


def found(program: str, path: Path, conversation: dict[str, Any], folder: Path,
          is_request: bool = False) -> tuple[str | None, str]:
    chat, tools = folder / "chat.json", folder / "tools.json"
    has_tools = "tools" in conversation
    request = {"messages": conversation["messages"],
               **({"tools": conversation["tools"]} if has_tools else {})}
    # A list goes to the template as it is.
    chat.write_text(json.dumps(request if is_request else conversation["messages"]))
    command = [program, "template", str(path), "--messages", str(chat), "--now", NOW.isoformat()]
    if has_tools and not is_request:
        tools.write_text(json.dumps(conversation["tools"]))
        command += ["--tools", str(tools)]
    for name, value in variables_of(conversation).items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    if not conversation.get("add_generation_prompt", True):
        command.append("--no-generation-prompt")
    done = subprocess.run(command, capture_output=True)
    error = done.stderr.decode()
    if done.returncode not in (0, 1) or (done.returncode == 1 and error.count("\n") != 1):
        raise SystemExit(f"{path.name}: exit {done.returncode}: {error}")
    return (done.stdout.decode() if done.returncode == 0 else None), error.strip()


def in_form(conversation: dict[str, Any], form: type) -> dict[str, Any]:
    """The conversation with the arguments of calls as texts (str) or objects (dict)."""
    changed = copy.deepcopy(conversation)
    for message in changed["messages"]:
        for call in message.get("tool_calls") or []:
            value = call["function"]["arguments"]
            if form is dict and isinstance(value, str):
                call["function"]["arguments"] = json.loads(value)
            if form is str and isinstance(value, dict):
                call["function"]["arguments"] = json.dumps(value, ensure_ascii=False,
                                                           separators=(",", ":"))
    return changed


def compare_request(program: str, path: Path, template: str, conversation: dict[str, Any],
                    folder: Path) -> str:
    """How the prompt of a request with calls relates to what the reference renders."""
    text, error = found(program, path, conversation, folder, is_request=True)
    if text is None and any(f"[{code}" in error for code in ("completion.", "chat.", "json.")):
        return "refused before the template"
    if text == expected(template, conversation):
        return "as sent"
    for form in (dict, str):
        if text is not None and text == expected(template, in_form(conversation, form)):
            return "in the other form"
    print(f"{path.name}, a request: {error or text}")
    return "differ"


def first_difference(a: str, b: str) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}: expected {a[max(0, at - 40):at + 40]!r}, found {b[max(0, at - 40):at + 40]!r}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("program")
    parser.add_argument("--show", type=int, default=100)
    options = parser.parse_args()
    chat_template_utils.datetime = FixedClock
    equal = refused = whole = differing = 0
    requests: collections.Counter[str] = collections.Counter()
    paths = sorted(options.folder.glob("*.jinja"))
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            template = path.read_text(encoding="utf-8")
            before = differing
            for index, conversation in enumerate(CONVERSATIONS):
                if any(m.get("tool_calls") for m in conversation["messages"]):
                    for form in (dict, str):
                        requests[compare_request(options.program, path, template,
                                                 in_form(conversation, form), Path(folder))] += 1
                wanted = expected(template, conversation)
                text, error = found(options.program, path, conversation, Path(folder))
                if wanted == text:
                    equal += text is not None
                    refused += text is None
                    continue
                differing += 1
                if differing <= options.show:
                    why = (f"expected a refusal, found {text[-80:]!r}" if wanted is None and text
                           is not None else f"refused: {error}" if text is None
                           else first_difference(wanted or "", text))
                    print(f"{path.name} [{index}]: {why}")
            whole += differing == before
    print(f"{whole} of {len(paths)} templates agree in all of {len(CONVERSATIONS)} conversations: "
          f"{equal} texts equal, {refused} refused by both, {differing} differ")
    print("requests with calls: " + ", ".join(f"{n} {how}" for how, n in requests.most_common()))
    return 1 if differing or requests["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
