#!/usr/bin/env python3
"""Writes tests/data/jinja/goldens.json: the templates of jinja_cases.py beside it, and what the
renderer of transformers makes of them; and tests/data/chats/goldens.json: the conversations of
chat_conversations.py, and what it makes of them with each template beside it. Refusals are null.

    PYTHON tools/make_jinja_goldens.py

PYTHON needs transformers (without torch) and jinja2; the versions stand in the file.
"""
from __future__ import annotations

import datetime
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers.utils import chat_template_utils

FOLDER = Path(__file__).resolve().parent.parent / "tests/data/jinja"
sys.path.insert(0, str(FOLDER))
from chat_conversations import CONVERSATIONS  # noqa: E402
from jinja_cases import EXPRESSIONS, TEMPLATES, VARIABLES  # noqa: E402

TARGET = FOLDER / "goldens.json"
CHATS = FOLDER.parent / "chats"
NOW = datetime.datetime(2025, 8, 5, 13, 30)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime.datetime:
        return NOW


def rendered(template: str, variables: dict[str, Any] = VARIABLES) -> str | None:
    try:
        return chat_template_utils._compile_jinja_template(template).render(**variables)
    except Exception:
        return None


def expressions() -> list[str]:
    """Each list of expressions in a line is one template for each of its expressions."""
    return [part for line in EXPRESSIONS.strip().splitlines() for part in split(line)]


def split(line: str) -> list[str]:
    """At each | and comma of the outermost level, where both sides are whole expressions."""
    import jinja2
    environment = jinja2.Environment()
    environment.filters["tojson"] = str
    parts, begin = [], 0
    while begin < len(line):
        for end in range(len(line), begin, -1):
            if end < len(line) and line[end] not in "|,":
                continue
            try:
                environment.parse("{{ " + line[begin:end] + " }}")
                environment.from_string("{{ " + line[begin:end] + " }}")
            except jinja2.TemplateError:
                continue
            break
        else:
            raise SystemExit(f"no expression: {line[begin:]}")
        parts.append(line[begin:end].strip())
        begin = end + 1
    return parts


def variables_of(conversation: dict[str, Any]) -> dict[str, Any]:
    messages = chat_template_utils._normalize_chat_messages(conversation["messages"])
    return {"messages": messages, "tools": conversation.get("tools"), "documents": None,
            "add_generation_prompt": conversation.get("add_generation_prompt", True),
            "bos_token": "<s>", "eos_token": "</s>", **conversation.get("variables", {})}


def write_chats(made_by: str) -> None:
    variables = [variables_of(conversation) for conversation in CONVERSATIONS]
    texts = {path.name: [rendered(path.read_text(encoding="utf-8"), one) for one in variables]
             for path in sorted(CHATS.glob("*.jinja"))}
    root = {"made_by": made_by, "variables": variables, "texts": texts}
    (CHATS / "goldens.json").write_text(json.dumps(root, ensure_ascii=True, indent=0) + "\n")
    for name, found in texts.items():
        print(f"{name}: {len(found)} conversations, {found.count(None)} refused")


def main() -> None:
    chat_template_utils.datetime = FixedClock
    templates = [f"{{{{ {text} }}}}" for text in expressions()] + TEMPLATES
    cases = [{"template": template, "text": rendered(template)} for template in templates]
    cases = [case for case in cases if " at 0x" not in (case["text"] or "")]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    made_by = f"transformers {version('transformers')}, jinja2 {version('jinja2')}"
    root = {"made_by": made_by,
            "now": NOW.isoformat(), "variables": VARIABLES, "cases": cases}
    lines = json.dumps(root, ensure_ascii=True, indent=0)
    TARGET.write_text(lines + "\n")
    print(f"{len(cases)} cases, {sum(case['text'] is None for case in cases)} refused")
    write_chats(made_by)


if __name__ == "__main__":
    main()
