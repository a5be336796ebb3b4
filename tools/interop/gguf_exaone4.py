"""What llama.cpp makes of windows in EXAONE 4, beside transformers.

    pip install xllamacpp gguf
    python tools/interop/gguf_exaone4.py

llama.cpp knows the windows of an EXAONE 4 by its 64 layers alone: with another number of them every
layer sees all positions and turns, whatever attention.sliding_window says. So the log probabilities
after prompts of 5 to 17 tokens, with windows of 8, are those of transformers for 64 layers, within
what it rounds to F16, and others for 60.
"""

import pathlib
import sys
import tempfile

import numpy
from safetensors.numpy import load_file

import gguf_files
import tiny
from gguf_greedy import ALL, LlamaCpp

ROUNDED = 0.05  # of a log probability, of 64 layers


def model_of(layers):
    return tiny.family("Exaone4", 26, **{**tiny.SMALL, **tiny.TWO_HEADS, "intermediate_size": 32},
                       num_hidden_layers=layers, sliding_window=8, sliding_window_pattern=4,
                       rope_parameters={"rope_type": "default", "rope_theta": 1000.0})


def difference(folder):
    """The largest of all prompts and tokens."""
    reference = load_file(folder / "reference.safetensors")
    theirs = LlamaCpp(folder / "model.gguf")
    largest = 0
    for i in range(len(gguf_files.PROMPTS)):
        logits = reference[f"prompt{i}.logits"][-1].astype("float64")
        expected = logits - numpy.logaddexp.reduce(logits)
        ids = [int(token) for token in reference[f"prompt{i}.ids"]]
        for token in theirs.after(ids, 1, ALL)[0]["top_logprobs"]:
            if token["logprob"] > -100:
                largest = max(largest, abs(token["logprob"] - expected[token["id"]]))
    return largest


def main():
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for layers in (60, 64):
            path = pathlib.Path(folder) / str(layers)
            gguf_files.write(path, "exaone4", "exaone4", lambda: model_of(layers))
            found[layers] = difference(path)
    for layers, largest in found.items():
        print(f"{layers} layers: log probabilities differ by {largest:.3f} from transformers'")
    return 0 if found[64] < ROUNDED < found[60] else 1


if __name__ == "__main__":
    sys.exit(main())
