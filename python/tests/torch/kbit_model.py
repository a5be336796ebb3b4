"""A golden model in kbit, and what transformers computes of its dequantized weights."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

import subbyte

GOLDEN = Path(__file__).parents[3] / "tests" / "data" / "goldens" / "qwen3-bf16"


def make(folder: Path, form: str) -> tuple[Path, list[int], torch.Tensor]:
    """The model's folder, a prompt, and its logits in float32."""
    path = folder / form
    subbyte.quantize(GOLDEN, path, format=form)
    ids = load_file(GOLDEN / "reference.safetensors")["prompt1.ids"].tolist()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN, dtype=torch.float32, attn_implementation="eager")
    checkpoint = subbyte.open_checkpoint(path)
    for name in checkpoint:
        if checkpoint.describe(name)["kind"] != "dense":
            weight = torch.from_numpy(checkpoint[name].dequantize())
            model.get_submodule(name).weight = torch.nn.Parameter(weight)
    with torch.inference_mode():
        return path, ids, model(torch.tensor([ids])).logits[0]
