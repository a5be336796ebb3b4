"""What requests are answered through the C interface: events and answers, line by line."""
from __future__ import annotations

import tempfile
from pathlib import Path

import c_program
from kept import FOLDER, ROOT, Texts, as_text
from masks import masked_json, replaced
from scripted_model import write_model

# Of a trained model, whose likeliest tokens are far enough apart for any kernels.
FOR_DEMO = '''{"prompt": "Mr. Sherlock Holmes", "temperature": 0, "max_tokens": 6}
{"messages": [{"role": "user", "content": "Who are you?"}], "temperature": 0, "max_tokens": 6}
'''


def stable(line: str, model: Path) -> str:
    first, _, rest = line.partition(" ")
    if first in ("event", "events", "answer", "session"):
        rest = masked_json(rest)
    return replaced(f"{first} {rest}", {str(model): "MODEL"})


def answers(build: Path, model: Path, requests: str) -> str:
    printed = c_program.run("requests.c", build, model, "256", lines=requests)
    return as_text([stable(line, model) for line in printed.splitlines()])


def texts(build: Path) -> Texts:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        write_model(model)
        scripted = answers(build, model, (FOLDER / "requests.jsonl").read_text())
    return {"c_requests.txt": scripted,
            "c_demo.txt": answers(build, ROOT / "demo/model", FOR_DEMO)}
