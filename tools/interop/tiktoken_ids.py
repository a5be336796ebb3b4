"""Ids that tiktoken and subbyte give the same random texts, by a tiktoken.model and a tekken.json.

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
SPECIAL = 1000  # ids before the ranks of a tekken.json
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


def write_tekken(ranks, folder):
    named = ["<unk>", "<s>", BETWEEN]
    (folder / "tekken.json").write_text(json.dumps({
        "config": {"pattern": PATTERN, "default_num_special_tokens": SPECIAL,
                   "default_vocab_size": SPECIAL + len(ranks)},
        "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(),
                   "token_str": None} for token, rank in ranks.items()],
        "special_tokens": [{"rank": rank, "token_str": token, "is_control": True}
                           for rank, token in enumerate(named)]}))
    (folder / "config.json").write_text(json.dumps({"model_type": "mistral"}))
    return {token: rank for rank, token in enumerate(named)}


def differing(program, write, ranks, samples, first):
    """Texts that have other ids than by tiktoken; ids of ranks begin at `first`."""
    with tempfile.TemporaryDirectory() as name:
        specials = write(ranks, pathlib.Path(name))
        made = subprocess.run([program, "tokenize", name, "--stdin", "--special"],
                              input=BETWEEN.join(samples).encode(), capture_output=True, check=True)
    reference = tiktoken.Encoding("ranks", pat_str=PATTERN, mergeable_ranks=ranks,
                                  special_tokens={})
    found = [[]]
    for one in map(int, made.stdout.split(b",")):
        if one == specials[BETWEEN]:
            found.append([])
        else:
            found[-1].append(one - first)
    return [text for text, ids in zip(samples, found, strict=True)
            if ids != reference.encode(text, disallowed_special=())]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("vocabulary")
    parser.add_argument("--count", type=int, default=10000)
    options = parser.parse_args()
    ranks = ranks_of(options.vocabulary)
    samples = texts(options.count)
    wrong = []
    for write, first in ((write_model, 0), (write_tekken, SPECIAL)):
        other = differing(options.program, write, ranks, samples, first)
        print(f"{write.__name__}: {len(ranks)} ranks, {len(other)} of {len(samples)} texts differ")
        wrong += other
    for text in wrong[:5]:
        print(f"  {text!r}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
