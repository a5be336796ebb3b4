#!/usr/bin/env python3
"""Compares what `subbyte template` makes of chat templates with transformers' own renderer.

    PYTHON tools/compare_chat_templates.py FOLDER PROGRAM [--show N]

FOLDER has templates (*.jinja), such as vendor/llama.cpp/models/templates in the source
distribution of llama-cpp-python, which are not part of this repository; PROGRAM is subbyte. PYTHON
needs transformers (without torch) and jinja2. Each template is rendered for each conversation of
chat_conversations.py: texts must be equal byte for byte, and what one refuses the other must
refuse. Prints the differences and, as the last line, how many agree.
"""
from __future__ import annotations

import argparse
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


def found(program: str, path: Path, conversation: dict[str, Any],
          folder: Path) -> tuple[str | None, str]:
    chat, tools = folder / "chat.json", folder / "tools.json"
    chat.write_text(json.dumps(conversation["messages"]))  # a list goes to the template as it is
    command = [program, "template", str(path), "--messages", str(chat), "--now", NOW.isoformat()]
    if "tools" in conversation:
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
    paths = sorted(options.folder.glob("*.jinja"))
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            template = path.read_text(encoding="utf-8")
            before = differing
            for index, conversation in enumerate(CONVERSATIONS):
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
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
