"""Ids that llama.cpp and subbyte give the same random texts, with the vocabularies of llama.cpp.

    pip install xllamacpp gguf
    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python   # has models/ggml-vocab-*
    python tools/interop/gguf_token_ids.py build/ci/app/subbyte FOLDER [--count 10000] [--only TEXT]

FOLDER has ggml-vocab-*.gguf. Each becomes a model of one layer of zeros, which both open as
servers; POST /tokenize is asked for every text, with added tokens, which llama.cpp finds in all
texts. Texts are in NFC, into which models of some names put them, and llama.cpp none. A vocabulary
that subbyte does not read is named with its refusal and left out; llama.cpp's own refusals, too.
"""

import argparse
import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.parse

import gguf
import numpy

import llama_server
from gguf_pre_tokenizers import PARTS

SKIPPED = ("GGUF.", "general.", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token")
# Characters that llama.cpp takes for other blanks where a pattern names them.
OTHER_BLANKS = {"deepseek-llm": "\u3000"}
# Blocks of which a text takes its letters.
SCRIPTS = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x400), (0x400, 0x530), (0x5D0, 0x5EB),
           (0x620, 0x6D0), (0x900, 0x980), (0xE00, 0xE5C), (0x1100, 0x1200), (0x2000, 0x2070),
           (0x2190, 0x2400), (0x3040, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xAD00),
           (0x1F300, 0x1F650)]


def texts(count):
    chosen = random.Random(61)
    result = []
    for _ in range(count):
        text = ""
        for _ in range(chosen.randint(1, 10)):
            first, end = chosen.choice(SCRIPTS)
            letters = [chr(chosen.randrange(first, end)) for _ in range(chosen.randint(1, 4))]
            drawn = "".join(c for c in letters if unicodedata.category(c) not in ("Cn", "Cs"))
            text += chosen.choice([drawn, chosen.choice(PARTS), chosen.choice(PARTS)])
        result.append(unicodedata.normalize("NFC", text))
    return result


def write_model(vocabulary, path):
    """A model of one layer with zeros, which has that vocabulary; its pre-tokenizer."""
    reader = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    said = {}
    for name, field in reader.fields.items():
        if name.startswith(SKIPPED) or not name.startswith("tokenizer.") or "template" in name:
            continue
        said[name] = field.contents()
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(name, field.contents(), kind)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    tokens = len(said["tokenizer.ggml.tokens"])
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", numpy.zeros((tokens, 32), numpy.float16))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", numpy.zeros((32, 32), numpy.float16))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", numpy.ones(32, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return said["tokenizer.ggml.model"], said.get("tokenizer.ggml.pre", "none")


def ask(connection, text):
    """The ids of a text; None while the server has no model."""
    body = json.dumps({"content": text, "add_special": False, "parse_special": True})
    try:
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read()).get("tokens")
    except ConnectionRefusedError:
        connection.close()
        return None


def asked(address, all_texts):
    """The ids of each text."""
    place = urllib.parse.urlparse(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    for _ in range(1200):
        if ask(connection, "a") is not None:
            return [ask(connection, text) for text in all_texts]
        time.sleep(0.1)
    raise RuntimeError(f"{address} does not answer")


def ids_of_llama_cpp(path, all_texts):
    server = llama_server.server_of(path, 64)
    return asked(server.listening_address, all_texts)


def subbyte(program, path, all_texts):
    """None where the program does not take the file, and why."""
    done = subprocess.run([program, "tokenize", path, "a"], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1].replace(str(path), "it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([program, "serve", path, "--port", str(port), "--device", "cpu",
                               "-q"], stdout=subprocess.DEVNULL)
    try:
        return asked(f"http://127.0.0.1:{port}", all_texts), ""
    finally:
        server.terminate()
        server.wait()


def check(program, vocabulary, all_texts):
    """How many texts have other ids; None where the vocabulary is left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.gguf"
        kind, pre = write_model(vocabulary, path)
        all_texts = [text for text in all_texts if OTHER_BLANKS.get(pre, "\n\0") not in text]
        ours, why = subbyte(program, path, all_texts)
        if ours is None:
            print(f"left out {vocabulary.name} ({kind}, {pre}): {why}", flush=True)
            return None
        try:
            theirs = ids_of_llama_cpp(path, all_texts)
        except RuntimeError as error:
            print(f"left out {vocabulary.name} ({kind}, {pre}): llama.cpp: {error}", flush=True)
            return None
    wrong = [i for i, ids in enumerate(ours) if ids != theirs[i]]
    print("WRONG" if wrong else "ok", vocabulary.name, kind, pre,
          f"{len(all_texts)} texts, {len(wrong)} differ", flush=True)
    for i in wrong[:4]:
        print("   ", ascii(all_texts[i]), "ours", ours[i], "theirs", theirs[i], flush=True)
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    all_texts = texts(options.count)
    found = [check(options.program, vocabulary, all_texts)
             for vocabulary in sorted(options.folder.glob("ggml-vocab-*.gguf"))
             if options.only in vocabulary.name]
    return 1 if not found or any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
