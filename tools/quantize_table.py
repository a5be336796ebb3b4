#!/usr/bin/env python3
"""Prints what each format costs: bits of a weight, perplexity, KL divergence from the source.

    tools/quantize_table.py MODEL FILE [--program build/release/app/subbyte] [--window 512]
                            [--formats awq gptq:3 compressed-tensors:2.5:64] [--text FILE]
                            [--json OUT] [--ggml LIBRARY]

MODEL is a directory with weights in 16 or 32 bits, FILE a text. A format is NAME, NAME:BITS or
NAME:BITS:GROUP; of bits that are a mean, --text is what widths are chosen by. Each is written into
a temporary directory, measured and removed. ggml:TYPE (ggml:q4_K) is a type of llama.cpp, of
which tools/llama_cpp/round_weights.py makes a model in F32 with ggml's own quantizers. The hash of
the model's files and of the text is printed above the table, so that a number can be found again.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FORMATS = [
    "int8", "compressed-tensors:6", "compressed-tensors:5", "awq", "gptq:4", "compressed-tensors:4",
    "nvfp4", "mxfp4", "nf4", "compressed-tensors:3.5", "gptq:3", "compressed-tensors:3",
    "compressed-tensors:2.5", "gptq:2", "compressed-tensors:2", "kbit4", "kbit3", "kbit2", "vq4",
    "vq2",
]


def sha256_of(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def run(program: str, *arguments: str) -> dict | str:
    """The JSON that a command prints, or its message."""
    result = subprocess.run([program, *arguments, "--json", "--no-progress"], capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        return result.stderr.strip().splitlines()[-1]
    return json.loads(result.stdout)


def write(options: argparse.Namespace, text: str, made: Path) -> dict | str:
    """What the format makes of the model, in `made`."""
    name, *more = text.split(":")
    if name == "ggml":
        tool = Path(__file__).parent / "llama_cpp" / "round_weights.py"
        result = subprocess.run([sys.executable, str(tool), str(options.ggml), str(options.model),
                                 str(made), *more], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            return result.stderr.strip().splitlines()[-1]
        return json.loads(result.stdout)
    arguments = ["--format", name]
    for option, value in zip(("--bits", "--group-size"), more):
        arguments += [option, value]
    if more and "." in more[0] and options.text:
        arguments += ["--text", str(options.text)]
    return run(options.program, "quantize", str(options.model), str(made), *arguments)


def measure(options: argparse.Namespace, text: str, folder: Path) -> dict:
    made = folder / text.replace(":", "-")
    row = {"format": text}
    written = write(options, text, made)
    if isinstance(written, str):
        return row | {"refused": written}
    measured = run(options.program, "perplexity", str(made), str(options.file), "--compare",
                   str(options.model), "--window", str(options.window))
    subprocess.run(["rm", "-r", "--", str(made)], check=True)
    if isinstance(measured, str):
        return row | {"refused": measured}
    return row | {"quantized": written, "measured": measured}


def line_of(row: dict) -> str:
    if "refused" in row:
        return f"| {row['format']} | {row['refused']} | | | | | | |"
    written, measured = row["quantized"], row["measured"]
    perplexity, kl = measured["perplexity"], measured["kl"]
    cells = [
        row["format"],
        f"{written['bits_per_weight']:.2f}",
        f"{written['signal_to_noise_db']:.1f}",
        f"{perplexity['value']:.3f} +- {perplexity['error']:.3f}",
        f"{measured['perplexity_ratio']['value']:.4f} +- "
        f"{measured['perplexity_ratio']['error']:.4f}",
        f"{kl['value']:.5f} +- {kl['error']:.5f}",
        f"{measured['kl_99']:.4f}",
        f"{100 * measured['same_top']['value']:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--program", default="build/release/app/subbyte")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--text", type=Path, help="of quantize, for bits that are a mean")
    parser.add_argument("--ggml", type=Path, help="a library of ggml's quantizers, for ggml:TYPE")
    parser.add_argument("--json", type=Path, help="write all numbers to this file, too")
    options = parser.parse_args()
    weights = sorted(options.model.glob("*.safetensors"))
    if not weights or not options.file.is_file():
        print(f"{options.model}, {options.file}: expected a directory with weights and a text",
              file=sys.stderr)
        return 1
    print(f"model sha256 {sha256_of(weights)}, text sha256 {sha256_of([options.file])}, "
          f"windows of {options.window}\n")
    print("| format | bits per weight | SQNR dB | perplexity | ratio | KL | KL 99 % | same top % |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for text in options.formats:
            rows.append(measure(options, text, Path(folder)))
            print(line_of(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
