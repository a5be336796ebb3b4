#!/usr/bin/env python3
"""What six commands say that a checkpoint is: one line for each checkpoint.

    tools/check_verdicts.py PROGRAM [--configs 500] [--seed 57] [--goldens DIRECTORY]

Asks inspect, verify, run, convert, diff and quantize with --json for all goldens, a model of synth
for each architecture, and so many of these with one thing changed in their config.json. Prints
name, kind, matrices by format and verdict, and exits with 1 where the six do not say the same,
where a command refuses what the verdict takes with a code that is none of its own
(docs/model_files.md), and where `inspect` finds problems and `verify` none.
tests/loading/commands_agree_test.cc does the same within the library.
"""
from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHITECTURES = [("llama", "bf16"), ("qwen2", "bf16"), ("qwen3", "awq"), ("qwen3", "gptq"),
                 ("qwen3-moe", "bf16"), ("gpt-oss", "mxfp4"), ("qwen3.5", "bf16"),
                 ("qwen3-next", "bf16")]
VALUES = [None, -1, 0, 1, 2, 3, 16, 64, 1e30, 0.5, "", "gptq", "awq", True, False, [], {}]
DOCS = Path(__file__).resolve().parent.parent / "docs/model_files.md"
EVERYWHERE = {"file.exists", "usage.prompt"}


def own_codes() -> list[str]:
    """Of the table in the manual; those that end in ".*" are beginnings."""
    part = DOCS.read_text(encoding="utf-8").split("## What a checkpoint is")[1].split("## ")[0]
    return [code for row in re.findall(r"^\|(`.*?)\|", part, re.MULTILINE)
            for code in re.findall(r"`([^`]+)`", row)]


def is_own(code: str, own: list[str]) -> bool:
    return code in EVERYWHERE or any(
        code.startswith(o[:-1]) if o.endswith(".*") else code == o for o in own)


def answers(program: str, model: Path, to: Path) -> dict[str, dict]:
    """The object that each of the six prints."""
    commands = {
        "inspect": ["inspect", str(model)], "verify": ["verify", str(model)],
        "run": ["run", str(model), "-p", "a", "-n", "1"],
        "convert": ["convert", str(model), str(to / "c"), "--to", "bf16", "--allow-lossy"],
        "diff": ["diff", str(model), str(model)],
        "quantize": ["quantize", str(model), str(to / "q"), "--allow-lossy"]}
    found = {}
    for name, command in commands.items():
        done = subprocess.run([program, *command, "--json", "-q"], capture_output=True, text=True,
                              check=False)
        found[name] = json.loads(done.stdout) | {"exit code": done.returncode}
    for made in ("c", "q"):
        shutil.rmtree(to / made, ignore_errors=True)
    return found


def changed(config: dict, choice: random.Random) -> None:
    inner = [config] + [config[k] for k in ("quantization_config", "text_config")
                        if isinstance(config.get(k), dict) and config[k]]
    section = choice.choice(inner)
    key = choice.choice(list(section))
    if choice.randrange(8) == 0:
        del section[key]
    else:
        section[key] = choice.choice(VALUES)


def check(name: str, found: dict[str, dict], own: list[str]) -> bool:
    said = {command: answer.get("checkpoint") for command, answer in found.items()}
    one = said["inspect"] or {}
    formats = ", ".join(f"{f['matrices']} {f['format']}" for f in one.get("formats", []))
    print(f"{name}: {one.get('kind')}; {formats or 'no matrices'}; {one.get('verdict')}")
    right = True
    for command, other in said.items():
        if other != said["inspect"]:
            right = False
            print(f"  {command} says {other}")
        code = found[command].get("error", {}).get("code", "")
        if one.get("verdict") == "ok" and code and not is_own(code, own):
            right = False
            print(f"  {command} refuses it with {code}, which is none of its own codes")
    if found["inspect"]["exit code"] != 0 and found["verify"]["exit code"] == 0:
        right = False
        print(f"  inspect has problems, verify has none: {found['inspect'].get('problems')}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--configs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=57)
    parser.add_argument("--goldens", type=Path, default=DOCS.parent.parent / "tests/data/goldens")
    options = parser.parse_args()
    program, own, right = str(Path(options.program).resolve()), own_codes(), True
    with tempfile.TemporaryDirectory(prefix="subbyte-verdicts-") as folder:
        to, models = Path(folder), []
        for golden in sorted(options.goldens.iterdir()):
            if (golden / "config.json").exists():
                right &= check(golden.name, answers(program, golden, to), own)
        for arch, form in ARCHITECTURES:
            models.append(to / f"{arch}-{form}")
            subprocess.run([program, "synth", str(models[-1]), "--arch", arch, "--shape", "tiny",
                            "--format", form, "-q"], check=True)
            right &= check(models[-1].name, answers(program, models[-1], to), own)
        choice = random.Random(options.seed)
        for number in range(options.configs):
            model = models[number % len(models)]
            before = (model / "config.json").read_text(encoding="utf-8")
            config = json.loads(before)
            changed(config, choice)
            (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
            right &= check(f"{number} {model.name}", answers(program, model, to), own)
            (model / "config.json").write_text(before, encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
