"""Logits of subbyte beside those of transformers on weights dequantized by the definitions.

    build/interop/tools/bin/python tools/interop/dequantized.py build/release/app/subbyte FOLDER...

For checkpoints of families with gated delta nets, flat and wrapped, with experts one by one or as
stacks, whoever quantized them: nothing but PyTorch makes floats of their bits here (delta_nets.py),
and transformers computes in f32. A line for each folder: how far 220 rows of logits are apart, as a
part of the largest logit, and how far those of transformers move when each weight moves by a
rounding of f32; or what was refused. Exit code 1 where one is not equal.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
import transformers
from safetensors.torch import load_file

import compare
import delta_nets

TOKENS = [(i * i + 7 * i) % 113 + 3 for i in range(220)]
# Every product and sum is rounded besides the weights, in an order of its own in both.
ROUNDINGS = 16


def logits_of(folder, weights):
    return compare.logits_of(compare.text_model(folder, weights), TOKENS)


def by_subbyte(program, folder, place):
    """(logits or None, the last line of complaint)."""
    done = subprocess.run([program, "logits", folder, "--ids", ",".join(map(str, TOKENS)), "-o",
                           place, "--force"], capture_output=True, text=True)
    complaint = (done.stderr.strip().splitlines() or [""])[-1]
    return (load_file(place)["logits"] if done.returncode == 0 else None), complaint


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    unequal = 0
    with tempfile.TemporaryDirectory() as work:
        for folder in options.folders:
            ours, complaint = by_subbyte(options.program, folder, f"{work}/logits")
            if ours is None:
                print(f"{folder.name}: refused: {complaint}", flush=True)
                unequal += 1
                continue
            weights = delta_nets.weights(folder)
            theirs = logits_of(folder, weights)
            torch.manual_seed(1)
            moved = logits_of(folder, {
                name: tensor * (1 + (torch.rand_like(tensor) - 0.5) * 2.0**-23)
                for name, tensor in weights.items()})
            far, near = (((found - theirs).abs().max() / theirs.abs().max()).item()
                         for found in (ours, moved))
            best = (ours.argmax(1) == theirs.argmax(1)).sum().item()
            is_equal = far <= ROUNDINGS * max(near, 2.0**-23)
            unequal += not is_equal
            print(f"{folder.name}: {'equal' if is_equal else 'OTHER'} {far:.1e}, a rounding of "
                  f"weights {near:.1e}, {best} of {len(TOKENS)} best tokens", flush=True)
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
