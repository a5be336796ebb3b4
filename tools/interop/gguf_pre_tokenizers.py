"""Ids that llama.cpp gives texts, for each name of tokenizer.ggml.pre.

    pip install xllamacpp gguf
    python tools/interop/gguf_pre_tokenizers.py tests/data/gguf/pre_tokenizers.json [--count 24]

The vocabulary is the same for all: 256 letters of bytes, and every pair of two printable letters of
ASCII, a blank (\u0120) and a line feed (\u010a), in the order of `letters()`. Two letters become a
pair unless a text is cut between them, so that the ids show the cuts. `DIFFERENT` are left out.
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile
import urllib.request

import gguf
import numpy

import llama_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIFFERENT = ("gemma4",)  # merges of characters
PARTS = ["a", "b", "cd", "The", "WORD", "it's", "IT'S", "we'll", "'d", "1", "23", "4567",
         "89012345", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", ".", ",", "!?", "...", "(x)",
         "$", "+", "#", "/", "//", "`", "~", "-", "_", "{}", "<|", "|>", " a", " B", " 7", " .",
         "\u00e9", "\u00df", "\u4e2d\u6587", "\u3042", "\u0939\u093f", "\uac00", "\u0661",
         "\u00a0", "\u3000", "\u2026", "\U0001f600"]


def letters():
    """The letter of each byte, and those that make pairs."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    byte_letters = [chr(byte) if byte in plain else chr(256 + rest.index(byte))
                    for byte in range(256)]
    return byte_letters, [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a"]


def names():
    """The first name of each row of the program's table."""
    text = (ROOT / "src/checkpoints/containers/gguf_pre_tokenizers.cc").read_text()
    table = text[text.index("kAll[] = {"):]
    return [line.split('"')[1].split()[0] for line in table.splitlines()
            if line.startswith(('    {"', '    {.names'))]


def write_model(path, pre):
    """A model of one layer with zeros, which has that vocabulary."""
    byte_letters, alphabet = letters()
    pairs = [(a, b) for a in alphabet for b in alphabet]
    tokens = byte_letters + [a + b for a, b in pairs] + ["<|end|>"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges([f"{a} {b}" for a, b in pairs])
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_add_bos_token(False)
    zeros = numpy.zeros((32, 32), numpy.float16)
    writer.add_tensor("token_embd.weight", numpy.zeros((len(tokens), 32), numpy.float16))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", zeros)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", numpy.ones(32, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ids_of(path, texts):
    server = llama_server.server_of(path, 64)
    result = []
    for text in texts:
        body = json.dumps({"content": text, "add_special": False, "parse_special": False})
        request = urllib.request.Request(server.listening_address + "/tokenize", body.encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            result.append(json.load(answer)["tokens"])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=24)
    options = parser.parse_args()
    chosen = random.Random(60)
    texts = ["".join(chosen.choices(PARTS, k=chosen.randint(3, 8))) for _ in range(options.count)]
    found = {"texts": texts, "ids": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in names():
            if name in DIFFERENT:
                continue
            path = pathlib.Path(folder) / f"{name}.gguf"
            write_model(path, name)
            try:
                found["ids"][name] = ids_of(path, texts)
            except RuntimeError as error:
                print(f"left out: {name}: {error}")
    lines = [json.dumps(found["texts"])]
    lines += [f"{json.dumps(name)}: {json.dumps(ids, separators=(',', ':'))}"
              for name, ids in found["ids"].items()]
    options.out.write_text('{"texts": ' + lines[0] + ',\n"ids": {\n' + ",\n".join(lines[1:])
                           + "\n}}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
