"""Lets llama.cpp open GGUF files that subbyte wrote, and compares log probabilities.

    pip install xllamacpp
    python tools/interop/gguf_llama_cpp.py build/ci/app/subbyte tests/data/gguf/*/model.gguf

Each file becomes a directory of f32, which becomes a file again. `diff` must say that both files
have the same weights, llama.cpp must give the same probabilities for both, and subbyte's must be
near them. A name of a golden that is a directory is converted once.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

import llama_server

PROMPTS = [[1, 2, 3, 4, 5], [90, 7, 63, 7, 91, 12, 31, 5, 80], list(range(11, 93, 5))]
# Of a log probability, where llama.cpp multiplies F16 and F32: sums in f16 of attention.
BOUND = 0.02
# The same where it rounds activations to 8 bits.
BOUND_OF_BLOCKS = 0.3
# llama.cpp wants tokens of Phi-3 by their names, and heads of Qwen1.5 as wide as the model.
NOT_OPENED = ("phi3", "types-two")


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def probabilities_of(path, prompts):
    """Log probabilities of all tokens after each prompt, by id."""
    server = llama_server.server_of(path, 512)
    found = []
    for prompt in prompts:
        answer = server.handle_completions({
            "prompt": prompt, "n_predict": 1, "n_probs": 4096, "temperature": 0.0,
            "cache_prompt": False})
        # Of a token that ends a text it says nothing.
        logprobs = answer["choices"][0]["logprobs"] or {"content": [{"top_logprobs": []}]}
        tokens = logprobs["content"][0]["top_logprobs"]
        found.append({token["id"]: token["logprob"] for token in tokens})
    return found


def subbyte(program, path, prompts, folder):
    found = []
    for prompt in prompts:
        out = folder / "logits.safetensors"
        done = run(program, "logits", path, "--ids", ",".join(map(str, prompt)), "--out", out,
                   "--force", "--device", "cpu")
        assert done.returncode == 0, done.stderr
        last = next(iter(load_file(out).values())).reshape(len(prompt), -1)[-1].astype("float64")
        last -= last.max()
        found.append(last - math.log(numpy.exp(last).sum()))
    return found


def as_llama_cpp_computes(program, source, name, folder):
    """llama.cpp rounds the ends of YaRN's ramp, as config.json may say, and gpt-oss does not: its
    model with rounded ends. Of others the file."""
    if name != "gpt-oss":
        return source
    directory = folder / "rounded"
    done = run(program, "convert", source, directory, "--to", "f32")
    assert done.returncode == 0, done.stderr
    config = json.loads((directory / "config.json").read_text())
    config["rope_scaling"]["truncate"] = True
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def farthest(first, second):
    """The largest difference of likely tokens."""
    return max(abs(a[token] - b[token]) for a, b in zip(first, second)
               for token in a if a[token] > -12)


def check(program, source, folder):
    written = folder / "written.gguf"
    if source.is_dir():
        directory = source
    else:
        directory = folder / "floats"
        done = run(program, "convert", source, directory, "--to", "f32")
        if done.returncode != 0:
            return f"not converted to f32: {done.stderr.strip().splitlines()[-1]}", None
    done = run(program, "convert", directory, written, "--to", "gguf")
    if done.returncode != 0:
        return f"not written: {done.stderr.strip().splitlines()[-1]}", None
    same = run(program, "diff", source, written)
    if same.returncode != 0:
        return f"other weights: {same.stdout.strip().splitlines()[-1]}", True
    if source.parent.name in NOT_OPENED:
        return "the same weights", None
    theirs = probabilities_of(written, PROMPTS)
    if not source.is_dir():
        of_source = farthest(theirs, probabilities_of(source, PROMPTS))
        if of_source > (BOUND_OF_BLOCKS if source.parent.name.startswith("types-") else BOUND):
            return f"llama.cpp: {of_source:.2g} from the file that it was made of", True
    model = as_llama_cpp_computes(program, written, source.parent.name, folder)
    ours = farthest(theirs, subbyte(program, model, PROMPTS, folder))
    bound = BOUND_OF_BLOCKS if source.is_dir() else BOUND
    return f"llama.cpp: {ours:.2g} from subbyte", ours > bound


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("sources", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    failed = 0
    for source in options.sources:
        with tempfile.TemporaryDirectory() as folder:
            text, is_wrong = check(options.program, source, pathlib.Path(folder))
        failed += is_wrong is True
        print({None: "left out", False: "ok", True: "WRONG"}[is_wrong],
              source.parent.name if source.is_file() else source.name, text, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
