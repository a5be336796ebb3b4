"""What the other functions of the C interface return, and the numbers that they compute."""
from __future__ import annotations

import tempfile
from pathlib import Path

import c_program
from kept import ROOT, Texts, as_text
from masks import masked_json, replaced
from scripted_model import write_model

GOLDEN = ROOT / "tests/data/goldens/llama3-bf16"


def texts(build: Path) -> Texts:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        write_model(model)
        printed = c_program.run("calls.c", build, model, GOLDEN, folder)
    lines = ["json " + masked_json(line[5:]) if line.startswith("json ") else line
             for line in printed.splitlines()]
    places = {str(model): "MODEL", str(GOLDEN): "GOLDEN", folder: "FOLDER"}
    return {"c_calls.txt": as_text([replaced(line, places) for line in lines])}
