"""Saves a small tokenizer as GPTQModel does, with TokeNicer, and what transformers makes of texts.

    PYTHON tools/interop/gptqmodel_tokenizer.py tests/data

PYTHON needs tokenicer and transformers (without torch). Writes tests/data/tokenizers/gptqmodel: the
files that TokeNicer saved of the golden qwen35 beside the config.json of a Qwen3, of which the keys
that say what it is are kept, and the ids of some texts.
"""
from __future__ import annotations

import json
import pathlib
import shutil
import sys
import tempfile

from tokenicer import Tokenicer
from transformers import AutoTokenizer

TEXTS = ["hello world", "It's 12:30, the dog's 1234 bones!", "e\u0301 \u00c9 \u4e2d\u6587",
         "a<|im_end|>b</s>", "  \n\t x\r\n\r\n", "snake_case CamelCase"]


def main() -> None:
    data = pathlib.Path(sys.argv[1])
    kept = data / "tokenizers" / "gptqmodel"
    kept.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        shutil.copy(data / "goldens" / "gptqmodel-4-bits" / "config.json", source)
        shutil.copy(data / "tokenizers" / "qwen35.tokenizer.json", source / "tokenizer.json")
        (source / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}))
        Tokenicer.load(folder).save_pretrained(str(kept))
        config = json.loads((source / "config.json").read_text())
    config = {key: config[key] for key in ("architectures", "model_type", "transformers_version")}
    (kept / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer = json.loads((kept / "tokenizer.json").read_text())
    (kept / "tokenizer.json").write_text(
        json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n")
    made = AutoTokenizer.from_pretrained(str(kept))
    cases = [{"text": text, "ids": made(text, add_special_tokens=False)["input_ids"]}
             for text in TEXTS]
    (kept / "cases.json").write_text(
        "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
