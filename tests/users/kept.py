"""Texts that say what users have, and how they are compared with what the program says today."""
from __future__ import annotations

import difflib
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
COMMAND = "./dev users --write"

GROWS = {"codes.txt"}  # what is new there is no difference

Texts = dict[str, str]  # by the name of the file


def differences(texts: Texts) -> str:
    """A diff of the kept files and these, and what to do about it; empty where they agree."""
    diff = []
    for name, text in sorted(texts.items()):
        path = FOLDER / "kept" / name
        kept = path.read_text().splitlines() if path.exists() else []
        now = text.splitlines()
        if name in GROWS:
            now = [line for line in now if line in kept]
        diff += difflib.unified_diff(kept, now, f"tests/users/kept/{name}", "what there is now",
                                     lineterm="")
    if not diff:
        return ""
    return "\n".join([*diff, "", "This is what users have, and it changed. Where that is meant, "
                      f"`{COMMAND}` writes it down anew."])


def write(texts: Texts) -> None:
    for name, text in texts.items():
        path = FOLDER / "kept" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def as_text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)
