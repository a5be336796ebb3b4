"""Checkpoints of real tools, converted by subbyte to every format and opened by the tools again.

    python3 -m venv build/interop/venv
    build/interop/venv/bin/pip install -r tools/interop/requirements.txt
    build/interop/venv/bin/python tools/interop/interop.py --program build/cpu/app/subbyte

Makes tiny models with random weights in build/interop/work, on the CPU, and prints the table of
docs/conversions.md. A cell is "opens" when transformers reports no missing, unexpected or
mismatched tensor and its logits are those of the dequantized source; otherwise it says what went
wrong. No network is used, and CI does not run this.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tokenizers
import torch
import transformers

TOKENS = [3, 17, 42, 5, 99, 100, 7, 23]
TARGETS = ["pack_quantized", "pack_quantized_lanes", "awq", "gptq", "gptq_v2",
           "nvfp4_pack_quantized", "mxfp4_pack_quantized", "mxfp4", "bnb_nf4", "f32", "bf16"]
# Random weights of this size give logits of about 1; the arithmetic of tools has 16 bits.
TOLERANCE = 0.03


def tiny_qwen3():
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, vocab_size=128, max_position_embeddings=128,
        tie_word_embeddings=False, eos_token_id=None, bos_token_id=None, pad_token_id=None)
    return transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)


def tiny_gpt_oss():
    torch.manual_seed(2)
    config = transformers.GptOssConfig(
        hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, vocab_size=128, max_position_embeddings=128,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=8, eos_token_id=None,
        pad_token_id=None, initial_context_length=64,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    return transformers.GptOssForCausalLM(config).to(torch.bfloat16)


def tiny_tokenizer():
    words = tokenizers.models.WordLevel({str(i): i for i in range(128)}, unk_token="0")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words))


def compressed(model, folder, scheme):
    """What llm-compressor writes for weights alone: round to nearest by compressed-tensors."""
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    dense = folder.with_name(folder.name + "-dense")
    model.save_pretrained(dense)
    model = type(model).from_pretrained(dense, dtype="auto")  # oneshot wants a place it came from
    oneshot(model=model, tokenizer=tiny_tokenizer(),
            recipe=QuantizationModifier(targets="Linear", ignore=["lm_head", "re:.*router"],
                                        **scheme))
    model.save_pretrained(folder, save_compressed=True)


def int_scheme(bits, group, symmetric):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric,
               "strategy": "group" if group > 0 else "channel"}
    if group > 0:
        weights["group_size"] = group
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


SOURCES = {
    "transformers bf16": lambda folder: tiny_qwen3().save_pretrained(folder),
    "llm-compressor W4A16": lambda folder: compressed(tiny_qwen3(), folder,
                                                      int_scheme(4, 32, True)),
    "llm-compressor W4A16_ASYM": lambda folder: compressed(tiny_qwen3(), folder,
                                                           int_scheme(4, 32, False)),
    "llm-compressor W3A16": lambda folder: compressed(tiny_qwen3(), folder,
                                                      int_scheme(3, 32, True)),
    "llm-compressor W8A16": lambda folder: compressed(tiny_qwen3(), folder,
                                                      int_scheme(8, -1, True)),
    "llm-compressor MXFP4A16": lambda folder: compressed(tiny_qwen3(), folder,
                                                         {"scheme": "MXFP4A16"}),
    "llm-compressor NVFP4A16": lambda folder: compressed(tiny_qwen3(), folder,
                                                         {"scheme": "NVFP4A16"}),
    "transformers gpt-oss bf16": lambda folder: tiny_gpt_oss().save_pretrained(folder),
}


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr.strip().splitlines()[-1:]


def logits_of_tool(folder):
    """The logits of transformers, and what its loading report complains about."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype="auto")
    wrong = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0].float()
    return logits, wrong


def judge(folder, expected):
    try:
        logits, wrong = logits_of_tool(folder)
    except Exception as error:  # what a tool throws is its verdict
        return f"refused: {type(error).__name__}: {str(error).splitlines()[0][:90]}"
    if wrong:
        return "; ".join(f"{kind}: {names[0]} and {len(names) - 1} more"
                         for kind, names in wrong.items())
    difference = (logits - expected).abs().max().item()
    return "opens" if difference <= TOLERANCE else f"other logits: {difference:.3g}"


def expected_logits(program, source, work):
    """Of the weights themselves: dequantized by subbyte, run by transformers in f32."""
    dense = work / "expected"
    shutil.rmtree(dense, ignore_errors=True)
    status, _, message = run(program, "convert", source, dense, "--to", "f32", "--allow-lossy")
    if status != 0:
        raise RuntimeError(f"{source}: {message}")
    model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


def row(program, name, work):
    source = work / name.replace(" ", "-")
    shutil.rmtree(source, ignore_errors=True)
    try:
        SOURCES[name](source)
    except Exception as error:
        return {"source": f"not made: {type(error).__name__}: {str(error).splitlines()[0][:90]}"}
    expected = expected_logits(program, source, work)
    cells = {"source": judge(source, expected)}
    for target in TARGETS:
        result = work / "result"
        shutil.rmtree(result, ignore_errors=True)
        status, _, message = run(program, "convert", source, result, "--to", target)
        if status != 0:
            cells[target] = "not written: " + " ".join(message)[-110:]
        else:
            cells[target] = judge(result, expected)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/cpu/app/subbyte")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/interop/work"))
    parser.add_argument("--only", default="", help="sources whose names contain this")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    packages = ["torch", "transformers", "compressed-tensors", "llmcompressor", "bitsandbytes"]
    print(", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages), flush=True)
    table = {}
    for name in SOURCES:
        if options.only not in name:
            continue
        table[name] = row(options.program, name, options.work)
        for target, cell in table[name].items():
            print(f"{name:28} {target:24} {cell}", flush=True)
    (options.work / "table.json").write_text(json.dumps(table, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
