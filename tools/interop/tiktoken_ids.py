"""Ids that tiktoken and subbyte give the same random texts, by one tiktoken.model.

    pip install tiktoken gguf xllamacpp
    python tools/interop/tiktoken_ids.py build/ci/app/subbyte VOCABULARY.gguf [--count 10000]

The ranks are those of a byte pair encoding whose ids are ranks, such as llama.cpp's
ggml-vocab-llama-bpe.gguf (gguf_token_ids.py says where it is). Texts stand in one input, a special
token between them.
"""

import argparse
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import tiktoken

from gguf_token_ids import texts
from tokenizers_check import letter

PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BETWEEN = "[EOS]"
BYTES = {letter(byte): byte for byte in range(256)}


def ranks_of(vocabulary):
    """Normal tokens and their ids."""
    fields = gguf.GGUFReader(vocabulary).fields
    tokens = fields["tokenizer.ggml.tokens"]
    types = fields["tokenizer.ggml.token_type"]
    ranks = {}
    for rank, (text, kind) in enumerate(zip(tokens.data, types.data)):
        if types.parts[kind][0] == 1:
            letters = bytes(tokens.parts[text]).decode()
            ranks[bytes(BYTES[one] for one in letters)] = rank
    return ranks


def write_model(ranks, folder):
    lines = [base64.b64encode(token).decode() + f" {rank}" for token, rank in ranks.items()]
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    added = {str(len(ranks) + i): {"content": name, "special": True}
             for i, name in enumerate(["[BOS]", BETWEEN])}
    config = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "kimi_k2"}))
    return {token["content"]: int(key) for key, token in added.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("vocabulary")
    parser.add_argument("--count", type=int, default=10000)
    options = parser.parse_args()
    ranks = ranks_of(options.vocabulary)
    samples = texts(options.count)
    with tempfile.TemporaryDirectory() as name:
        specials = write_model(ranks, pathlib.Path(name))
        made = subprocess.run([options.program, "tokenize", name, "--stdin", "--special"],
                              input=BETWEEN.join(samples).encode(), capture_output=True, check=True)
    reference = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks,
                                  special_tokens=specials)
    found = [[]]
    for one in map(int, made.stdout.split(b",")):
        if one == specials[BETWEEN]:
            found.append([])
        else:
            found[-1].append(one)
    wrong = [text for text, ids in zip(samples, found, strict=True)
             if ids != reference.encode(text, disallowed_special=())]
    print(f"{len(ranks)} ranks: {len(wrong)} of {len(samples)} texts differ")
    for text in wrong[:5]:
        print(f"  {text!r}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
