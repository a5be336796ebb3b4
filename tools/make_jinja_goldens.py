#!/usr/bin/env python3
"""Writes tests/data/jinja/goldens.json: the templates of jinja_cases.py beside it, and what the
renderer of transformers makes of them. Refusals are null.

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
from jinja_cases import EXPRESSIONS, TEMPLATES, VARIABLES  # noqa: E402

TARGET = FOLDER / "goldens.json"
NOW = datetime.datetime(2025, 8, 5, 13, 30)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime.datetime:
        return NOW


def rendered(template: str) -> str | None:
    try:
        return chat_template_utils._compile_jinja_template(template).render(**VARIABLES)
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


def main() -> None:
    chat_template_utils.datetime = FixedClock
    templates = [f"{{{{ {text} }}}}" for text in expressions()] + TEMPLATES
    cases = [{"template": template, "text": rendered(template)} for template in templates]
    cases = [case for case in cases if " at 0x" not in (case["text"] or "")]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    root = {"made_by": f"transformers {version('transformers')}, jinja2 {version('jinja2')}",
            "now": NOW.isoformat(), "variables": VARIABLES, "cases": cases}
    lines = json.dumps(root, ensure_ascii=True, indent=0)
    TARGET.write_text(lines + "\n")
    print(f"{len(cases)} cases, {sum(case['text'] is None for case in cases)} refused")


if __name__ == "__main__":
    main()
